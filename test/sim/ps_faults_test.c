/* Parameter servers when a worker dies: a worker is killed at each message that it sends, in the
 * middle of a push among others. The run ends well, and all shards have applied the same orders. */
#include "run_files.h"
#include "sim_cluster.h"
#include "strategy/ps_client.h"
#include "sweep_stride.h"

/* `ps` and the table of strategies, with a worker that pushes NaN. */
static int planted_push(struct ps_client *c, uint64_t samples, bool lost);
static void planted_push_from(struct ps_client *c, uint64_t samples, size_t from);
extern const struct strategy_ops planted_ps;

#define strategy_ps         planted_ps
#define ps_client_push      planted_push
#define ps_client_push_from planted_push_from

#include "strategy/ps.c"
#include "strategy/strategy.c"

#undef ps_client_push
#undef ps_client_push_from

static struct {
    bool nan, lost;
    uint32_t node, all_from; /* this one's second push; or all from some push on */
} plant;

/* A worker's residual before its push, and how much a lost one has changed it. */
static struct {
    float before[2048];
    int lost;
    double apart;
} owed;

static void planted_push_from(struct ps_client *c, uint64_t samples, size_t from)
{
    if (c->m->world->self == plant.node && !ps_client_is_early(c))
        memcpy(owed.before, c->residual.at, c->residual.n * sizeof(float));
    ps_client_push_from(c, samples, from);
}

static void compare_owed(const struct ps_client *c)
{
    owed.lost++;
    for (size_t i = 0; i < c->residual.n; i++)
        owed.apart = fmax(owed.apart, fabs((double)(c->residual.at[i] - owed.before[i])));
}

static int planted_push(struct ps_client *c, uint64_t samples, bool lost)
{
    uint64_t before = c->pushed - ps_client_is_early(c);
    bool here = (c->m->world->self == plant.node && before == 1) ||
                (plant.all_from > 0 && before + 1 >= plant.all_from);
    /* Of a push that has begun to leave, shard 0's part is still to be written. */
    float *at = ps_client_is_early(c) ? c->m->learner->dx.at : &c->out.at[c->out.n / 2];
    if (here && plant.nan)
        *at = (float)NAN;
    bool early = ps_client_is_early(c);
    int rc = ps_client_push(c, samples, lost || (here && plant.lost));
    if (here && plant.lost && early)
        compare_owed(c);
    return rc;
}

static const char calm[] = "node { count: 2 } node { speed: 0.6 } node { speed: 1.4 }\n"
                           "step_seconds: 0.004 link { mbit: 100 }\n";

enum { NODES = 4, STRIDE = SWEEP_STRIDE(5, 5) };

/* The servers' reports at their end: the orders that they have carried out, and a hash over
 * them. */
struct shards {
    struct {
        bool ended;
        unsigned long long orders, history;
    } at[NODES + 1][NODES]; /* by node (the last: the driver) and shard */
    bool dead[NODES + 1];
    int taken; /* over, by another server */
    int named; /* how often worker 2's second push was named as not finite */
};

static void on_line(void *user, const char *text)
{
    struct shards *s = user;
    unsigned shard, node;
    unsigned long long orders, history;
    if (sscanf(text, "shard %u at worker %u ends after %llu orders (%llx)", &shard, &node, &orders,
               &history) == 4 &&
        shard < NODES) {
        node = node < NODES ? node : NODES;
        s->at[node][shard].ended = true;
        s->at[node][shard].orders = orders;
        s->at[node][shard].history = history;
    }
    if (strstr(text, "is lost: its connection has ended") &&
        sscanf(text, "worker %u", &node) == 1 && node < NODES)
        s->dead[node] = true;
    s->named += strcmp(text, "worker 2: its push 2 is not finite and is left out") == 0;
    s->taken += strstr(text, "continues at worker") != NULL;
}

struct swept {
    int runs, ended, unformed, takeovers;
};

/* All servers that are left have carried out the same; how many there are. */
static int expect_agreement(const struct shards *s, uint32_t node, uint64_t send)
{
    int left = 0;
    unsigned long long orders = 0, history = 0;
    for (int i = 0; i <= NODES; i++)
        for (int k = 0; k < NODES; k++) {
            if (!s->at[i][k].ended || s->dead[i])
                continue;
            if (left++ == 0) {
                orders = s->at[i][k].orders;
                history = s->at[i][k].history;
            } else if (s->at[i][k].orders != orders || s->at[i][k].history != history) {
                fail_msg("worker %u killed at message %llu: shard %d at worker %d has %llu orders "
                         "(%llx), another %llu (%llx)",
                         node, (unsigned long long)send, k, i, s->at[i][k].orders,
                         s->at[i][k].history, orders, history);
            }
        }
    return left;
}

/* Kill `node` at each stride-th message that it sends, the first among them. */
static void kill_at_each(struct ground *g, const char *cluster, uint32_t node, int shards,
                         uint64_t stride, struct swept *sum)
{
    struct shards seen = {.taken = 0};
    struct sim_train whole = {.ground = g, .cluster = cluster, .line = on_line, .user = &seen};
    sim_train_play(&whole);
    assert_int_equal(whole.rc, OK);
    int left = expect_agreement(&seen, node, 0);
    assert_true(whole.deaths > 0 ? left > 0 : left == shards);
    for (uint64_t send = 1; send <= whole.sent[node]; send += stride * STRIDE) {
        struct sim_train t = {.ground = g,
                              .cluster = cluster,
                              .kill_node = node,
                              .kill_send = send,
                              .line = on_line,
                              .user = &seen};
        seen = (struct shards){.taken = 0};
        sim_train_play(&t);
        sum->runs++;
        if (t.exchanges == 0) {
            sum->unformed++; /* the group never formed: the driver gives up after a minute */
            assert_int_equal(t.rc, ERR_TIMEOUT);
            continue;
        }
        if (t.rc != OK)
            fail_msg("worker %u killed at message %llu: %s", node, (unsigned long long)send,
                     t.err.text);
        assert_true(t.end_s < whole.end_s + 3);
        assert_true(expect_agreement(&seen, node, send) > 0);
        sum->ended++;
        sum->takeovers += seen.taken;
    }
}

static struct swept sweep_deaths(struct tiny *t, const char *cluster, const char *options,
                                 int shards, uint64_t stride)
{
    const char *const set[] = {"stop.steps=4", "validation=0", "solver.momentum=0", options, NULL};
    struct ground g;
    struct swept sum = {0};
    ground_open(&g, t, set);
    for (uint32_t node = 0; node < NODES; node++)
        kill_at_each(&g, cluster, node, shards, stride, &sum);
    print_message("    %s: %d runs, %d ended well with %d takeovers, %d never formed\n", options,
                  sum.runs, sum.ended, sum.takeovers, sum.unformed);
    /* a worker sends four messages before the group is complete */
    assert_true(sum.ended > 20 / STRIDE && sum.unformed <= 4 * NODES);
    assert_true(shards == 1 || sum.takeovers > 20 / STRIDE);
    ground_close(&g);
    return sum;
}

static void test_a_worker_dies_and_the_others_go_on(void **state)
{
    static const char *const options[] = {"bsp", "asp", "ssp", "dssp"};
    char set[96];
    for (int i = 0; i < 4; i++) {
        snprintf(set, sizeof set, "strategy.ps={ consistency: %s }", options[i]);
        sweep_deaths(*state, calm, set, 1, 1);
    }
    sweep_deaths(*state, calm, "strategy.downpour={ n_push: 2 n_fetch: 3 }", 1, 1);
}

/* A server among them: the next worker continues with its shard. */
static void test_a_server_dies_and_the_others_go_on(void **state)
{
    sweep_deaths(*state, calm, "strategy.ps={ consistency: bsp servers: 2 }", 2, 1);
    sweep_deaths(*state, calm, "strategy.ps={ consistency: asp servers: 3 }", 3, 2);
    sweep_deaths(*state, calm, "strategy.ps={ s_lower: 1 r_max: 2 colocated: true }", 4, 3);
    sweep_deaths(*state, calm, "strategy.ps={ consistency: ssp staleness: 1 servers: 2 }", 2, 2);
    sweep_deaths(*state, calm, "strategy.downpour={ n_push: 1 n_fetch: 2 colocated: true }", 4, 3);
}

/* Shard 2 receives all messages from the clock later than shard 1: when the clock dies, one has
 * orders that the other lacks, and sends them on. */
static void test_most_advanced_server_passes_on_orders(void **state)
{
    char cluster[256];
    snprintf(cluster, sizeof cluster, "%s delay { from: 0 to: 2 tag: 'transfer' seconds: 0.003 }",
             calm);
    sweep_deaths(*state, cluster, "strategy.ps={ consistency: asp servers: 3 }", 3, 3);
    sweep_deaths(*state, cluster, "strategy.ps={ consistency: bsp colocated: true }", 4, 4);
}

/* And a second one at some moment of the run: often while the shards of the first are moved. */
static void test_two_die_and_the_others_go_on(void **state)
{
    static const char *const options[] = {
        "strategy.ps={ consistency: bsp colocated: true }",
        "strategy.ps={ consistency: ssp staleness: 1 servers: 2 }",
        "strategy.downpour={ n_push: 2 n_fetch: 1 servers: 3 }"};
    static const int shards[] = {4, 2, 3};
    for (int i = 0; i < 6; i++) {
        char cluster[256];
        snprintf(cluster, sizeof cluster, "%s fault { at: %g kill: %d }", calm, 0.006 + 0.0043 * i,
                 (i + 1) % NODES);
        sweep_deaths(*state, cluster, options[i % 3], shards[i % 3], 7);
    }
}

/* One push of one worker that is not finite: all shards drop it, whichever part was not finite, and
 * all workers continue. */
static void test_what_is_no_number_is_left_out(void **state)
{
    static const char *const options[] = {"strategy.ps={ consistency: bsp }",
                                          "strategy.ps={ consistency: ssp servers: 2 }",
                                          "strategy.ps={ consistency: asp colocated: true }"};
    for (int i = 0; i < 6; i++) {
        const char *const set[] = {"stop.steps=4", "validation=0", options[i / 2], NULL};
        struct ground g;
        struct shards seen = {.taken = 0};
        struct sim_train t = {.ground = &g, .cluster = calm, .line = on_line, .user = &seen};
        ground_open(&g, *state, set);
        plant.nan = i % 2 == 0;
        plant.lost = i % 2 == 1; /* its loss was not finite: it reports this itself */
        plant.node = 2;
        sim_train_play(&t);
        plant.nan = plant.lost = false;
        assert_int_equal(t.rc, OK);
        assert_int_equal(seen.named, i % 2 == 0);
        if (!isfinite(t.report.test_loss) || t.report.used < 16 * 16)
            fail_msg("%s: loss %g, %llu records", options[i / 2], t.report.test_loss,
                     (unsigned long long)t.report.used);
        assert_int_equal(expect_agreement(&seen, 2, 0), i < 2 ? 1 : i < 4 ? 2 : 4);
        ground_close(&g);
    }
}

/* A push that is lost when parts of it have left delivers nothing of what its worker owed. */
static void test_a_lost_push_is_owed_again(void **state)
{
    const char *const set[] = {"stop.steps=4", "validation=0",
                               "strategy.ps={ consistency: bsp servers: 2 }",
                               "collective.wire=topk64", NULL};
    struct ground g;
    struct sim_train t = {.ground = &g, .cluster = calm};
    ground_open(&g, *state, set);
    owed.lost = 0;
    plant.lost = true;
    plant.node = 2;
    sim_train_play(&t);
    plant.lost = false;
    assert_int_equal(t.rc, OK);
    print_message("    owes %g more or less\n", owed.apart);
    assert_true(owed.lost == 1 && owed.apart < 1e-6);
    ground_close(&g);
}

/* If no worker has a finite model any more, the run reports this. */
static void test_when_all_is_lost_the_run_ends(void **state)
{
    static const char *const options[] = {"strategy.ps={ consistency: bsp }",
                                          "strategy.ps={ consistency: dssp }",
                                          "strategy.ps={ consistency: ssp colocated: true }"};
    for (int i = 0; i < 3; i++) {
        const char *const set[] = {"stop.steps=40", "validation=0", options[i], NULL};
        struct ground g;
        struct sim_train t = {.ground = &g, .cluster = calm};
        ground_open(&g, *state, set);
        plant.lost = true;
        plant.all_from = 5;
        sim_train_play(&t);
        plant.lost = false;
        plant.all_from = 0;
        assert_int_equal(t.rc, ERR_DIVERGED);
        assert_non_null(strstr(t.err.text, "the model diverged"));
        ground_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_dies_and_the_others_go_on),
        cmocka_unit_test(test_a_server_dies_and_the_others_go_on),
        cmocka_unit_test(test_most_advanced_server_passes_on_orders),
        cmocka_unit_test(test_two_die_and_the_others_go_on),
        cmocka_unit_test(test_what_is_no_number_is_left_out),
        cmocka_unit_test(test_a_lost_push_is_owed_again),
        cmocka_unit_test(test_when_all_is_lost_the_run_ends),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
