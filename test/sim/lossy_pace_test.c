/* Checkpoints of `pace` with a lossy wire: behind the exchanges whose results are in the file no
 * member owes anything, in no lane. */
#include "coll/exchange.h"
#include "model/weights.h"
#include "real/disk.h"
#include "sim_cluster.h"
#include "strategy_sim.h"
#include "tensor/vec.h"
#include "train/rundir.h"
#include "train/worker.h"

enum { NODES = 4, LANES = 4, EXCHANGES = 2400, FLOATS = 1200 };

/* By lane and exchange: its result, and the largest value that a member owed behind it. */
static struct seen {
    const struct exchange *exchange[NODES + 1][LANES]; /* the driver's are the last */
    uint64_t completed[NODES + 1][LANES];
    uint32_t lanes;
    float result[LANES][EXCHANGES][FLOATS];
    double owed[LANES][EXCHANGES];
    /* A worker's residuals as of the last event, and values whose unit has changed since. */
    struct {
        struct range owned;
        float residual[FLOATS];
    } before[NODES][LANES];
    int to_results, to_sums;
} seen;

static uint32_t place_of(uint32_t node)
{
    return node == WORLD_DRIVER ? NODES : node;
}

static void on_opened(void *user, uint32_t node, const struct exchange *e)
{
    (void)user;
    assert_true(place_of(node) <= NODES && e->lane < LANES);
    seen.exchange[place_of(node)][e->lane] = e;
    seen.lanes = e->lane + 1 > seen.lanes ? e->lane + 1 : seen.lanes;
}

static void look_at(const struct exchange *e, uint64_t n)
{
    const struct vec *residual = &e->residual[n & 1];
    double *owed = &seen.owed[e->lane][n];
    assert_true(n < EXCHANGES && e->n_floats <= FLOATS);
    for (size_t i = 0; i < residual->n; i++)
        *owed = fmax(*owed, fabs((double)residual->at[i]));
    memcpy(seen.result[e->lane][n], e->result[n & 1].at, e->n_floats * sizeof(float));
}

static bool is_within(size_t i, struct range r)
{
    return i >= r.from && i < r.from + r.len;
}

/* Units differ by the weight of the last result. */
static void look_at_units(const struct exchange *e, uint32_t p)
{
    const struct vec *residual = &e->residual[e->completed & 1];
    float weight = (float)exchange_result_meta(e)->weight,
          *before = seen.before[p][e->lane].residual;
    struct range had = seen.before[p][e->lane].owned;
    bool moved = had.from != e->owned.from || had.len != e->owned.len;
    for (size_t i = 0; moved && i < residual->n && weight > 0; i++) {
        bool now = is_within(i, e->owned), was = is_within(i, had);
        float times = now == was ? 1 : now ? 1 / weight : weight;
        assert_true(fabsf(residual->at[i] - before[i] * times) <= 1e-5f * fabsf(residual->at[i]));
        seen.to_results += now && !was && before[i] != 0;
        seen.to_sums += was && !now && before[i] != 0;
    }
    seen.before[p][e->lane].owned = e->owned;
    if (residual->n > 0)
        memcpy(before, residual->at, residual->n * sizeof *before);
}

/* The first worker makes the checkpoints: from when one is due, for some exchanges, another model
 * is still being sent. Nothing is evaluated in such a run. */
static struct {
    bool copies, on;
    const struct worker *worker;
    uint64_t until;
} hold;

static void hold_copies(void)
{
    if (!hold.copies || !hold.worker || seen.completed[0][0] == 0)
        return;
    bool due = atomic_load(&hold.worker->group.model_requests) & MODEL_CHECKPOINT;
    const struct publisher *p = &hold.worker->publisher;
    uint64_t now = seen.completed[0][0];
    if (!due)
        hold.until = now + 40;
    if (due && now < hold.until ? !atomic_load(&p->busy) : hold.on) {
        hold.on = !hold.on;
        atomic_store((atomic_bool *)&p->busy, hold.on);
    }
}

/* As of the last event: the values owed behind a worker's last exchange, or in one begun since. */
static struct {
    float owed[NODES][LANES][FLOATS];
    size_t results, others; /* that leaves have received; of them those of the other parity */
} leaf;

/* A leaf's result leaves it what it owed, since its proxy's exchanges send nothing of that. */
static void on_leaf_event(void *user, uint32_t node)
{
    const struct sim_train *t = user;
    (void)node;
    for (uint32_t p = 0; p < NODES && t->rc == OK; p++)
        for (uint32_t i = 0; i < seen.lanes; i++) {
            const struct exchange *e = seen.exchange[p][i];
            if (!e)
                continue;
            uint64_t n = e->completed, begun = e->attempted > n ? e->attempted : n;
            size_t bytes = e->residual[0].n * sizeof(float);
            if (n != seen.completed[p][i] && members_has(&group_view(e->group)->leaves, p) &&
                !members_has(&exchange_result_meta(e)->participants, p)) {
                assert_memory_equal(e->residual[n & 1].at, leaf.owed[p][i], bytes);
                leaf.results++;
                leaf.others += (n - seen.completed[p][i]) & 1;
            }
            seen.completed[p][i] = n;
            memcpy(leaf.owed[p][i], e->residual[begun & 1].at, bytes);
        }
}

/* After each event: exchanges that have been completed. */
static void on_event(void *user, uint32_t node)
{
    const struct sim_train *t = user;
    (void)node;
    if (t->rc != OK)
        return;
    hold_copies();
    for (uint32_t p = 0; p <= NODES; p++)
        for (uint32_t i = 0; i < seen.lanes; i++) {
            const struct exchange *e = seen.exchange[p][i];
            if (e && p < NODES && e->config.split == EXCHANGE_AT_OWNERS)
                look_at_units(e, p);
            if (!e || e->completed == seen.completed[p][i])
                continue;
            seen.completed[p][i] = e->completed;
            look_at(e, e->completed);
        }
}

/* Its exchanges are gone with it. */
static void on_driver(void *user, const struct driver *d)
{
    (void)user;
    if (!d)
        memset(seen.exchange[NODES], 0, sizeof seen.exchange[NODES]);
}

static void on_worker(void *user, uint32_t node, const struct worker *w)
{
    (void)user;
    if (node == 0)
        hold.worker = w;
    if (!w)
        memset(seen.exchange[node], 0, sizeof seen.exchange[node]);
}

static void watch_exchanges(void *user, uint32_t node, struct train_host *host)
{
    static const struct train_watch watch = {
        .driver = on_driver, .worker = on_worker, .exchanges = {.opened = on_opened}};
    (void)user;
    (void)node;
    host->watch = &watch;
}

/* The exchange of the lane whose result is nearest to that part of a model. */
static uint64_t nearest_exchange(uint32_t lane, const float *x, size_t n, double *apart)
{
    uint64_t best = 0;
    *apart = INFINITY;
    for (uint64_t k = 1; k < EXCHANGES && k <= seen.completed[NODES - 1][lane]; k++) {
        double most = 0;
        for (size_t i = 0; i < n; i++)
            most = fmax(most, fabs((double)(x[i] - seen.result[lane][k][i])));
        if (most < *apart) {
            *apart = most;
            best = k;
        }
    }
    return best;
}

static void judge_file(const char *path, const struct net *net)
{
    float x[FLOATS] = {0};
    const struct weights_into into = {net_segments(net), net_state_segments(net), x, NULL};
    struct err err = {0};
    if (model_weights_load(path, WEIGHTS_ALL, &into, NULL, &err) != OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < seen.lanes; i++) {
        double apart;
        struct range r = range_shard(net_segments(net)->total, seen.lanes, i);
        uint64_t n = nearest_exchange(i, x + r.from, r.len, &apart);
        if (!(apart < 1e-6) || seen.owed[i][n] > 0)
            fail_msg("%s: lane %u is %g apart from exchange %llu, which leaves %g owed", path, i,
                     apart, (unsigned long long)n, seen.owed[i][n]);
    }
}

static void play_until(struct tiny *t, const char *stop, const char *strategy, const char *wire,
                       const char *cluster)
{
    struct ground g;
    struct rundir dir;
    struct err err = {0};
    char out[256], lossy[64], path[3][512];
    snprintf(lossy, sizeof lossy, "collective.wire=%s", wire);
    const char *const set[] = {stop,
                               "validation=0",
                               "checkpoint.every_seconds=0.7",
                               "solver={ base_lr: 0.05 lr_policy: 'fixed' }",
                               lossy,
                               strategy,
                               hold.copies ? "evaluate.every_steps=1000000" : NULL,
                               NULL};
    memset(&seen, 0, sizeof seen);
    print_message("    %s, %s\n", strategy, wire);
    ground_open(&g, t, set);
    assert_int_equal(rundir_create(&dir, real_disk(), tiny_out(t, out), "lossy", &err), OK);
    struct sim_train trial = {.ground = &g,
                              .cluster = cluster,
                              .host = watch_exchanges,
                              .observe = on_event,
                              .options = {.dir = &dir}};
    trial.user = &trial;
    sim_train_play(&trial);
    if (trial.rc != OK)
        fail_msg("%s, %s: %s", strategy, wire, trial.err.text);
    int count = run_checkpoints(dir.path, path);
    assert_true(count == 3);
    for (int k = 0; k < 2; k++) /* the third one is of the run's end */
        judge_file(path[k], g.ws->train);
    double most = 0;
    for (uint64_t n = 0; n < EXCHANGES; n++)
        most = fmax(most, seen.owed[0][n]);
    print_message("        behind an exchange as much as %g is owed\n", most);
    assert_true(most > 1e-4);
    rundir_close(&dir);
    ground_close(&g);
}

static void play_run(struct tiny *t, const char *strategy, const char *wire, const char *cluster)
{
    play_until(t, "stop={ epochs: 40 }", strategy, wire, cluster);
}

#define UNEQUAL                                                   \
    "node { count: 2 } node { speed: 0.6 } node { speed: 1.4 }\n" \
    "step_seconds: 0.004 link { mbit: 100 }\n"

/* A lane has a result long before training may adopt it. */
#define SLOW_COPIES SIM_CALM "costs { copy_gb_s: 0.005 }\n"

/* A flush that waits for steps costs no more than its vectors take. */
#define LONG_STEPS "node { count: 4 } step_seconds: 0.05 link { mbit: 100 }\n"

static void test_a_checkpoint_lacks_nothing(void **state)
{
    play_run(*state, "strategy.pace={ gamma: 0 shards: 3 }", "topk64", SIM_CALM);
    play_run(*state, "strategy.pace={ gamma: 0 shards: 3 }", "int8", UNEQUAL);
    play_run(*state, "strategy.pace={ gamma: 0 coordination: symmetric shards: 4 }", "topk16",
             SIM_CALM);
    play_run(*state, "strategy.pace={ gamma: 0 coordination: symmetric shards: 3 }", "topk64",
             UNEQUAL);
    play_run(*state, "strategy.pace={ gamma: 0 coordination: symmetric shards: 4 }", "topk64",
             SLOW_COPIES);
    play_run(*state, "strategy.pace={ gamma: 0 shards: 4 }", "topk64", SLOW_COPIES);
    play_run(*state, "strategy.pace={ gamma: 0 shards: 3 }", "topk64", LONG_STEPS);
    play_run(*state, "strategy.pace={ gamma: 0 coordination: symmetric shards: 3 }", "topk64",
             LONG_STEPS);
}

/* Parts of other owners move: what is owed in one that becomes a worker's own is owed to results
 * from then on, and the reverse, but it is no less and no more. */
static void test_a_death_moves_what_is_owed(void **state)
{
    play_run(*state, "strategy.pace={ gamma: 0 coordination: symmetric shards: 3 }", "topk64",
             SIM_CALM "fault { at: 0.3 kill: 1 }");
    print_message("        %d values become owed to results, %d to sums\n", seen.to_results,
                  seen.to_sums);
    assert_true(seen.to_results > 20 && seen.to_sums > 20);
}

/* The next worker that makes the checkpoints has counted only the flushes that it asks for. */
static void test_a_death_needs_no_rest(void **state)
{
    play_until(*state, "stop={ seconds: 7.5 }",
               "strategy.pace={ gamma: 0 coordination: symmetric shards: 4 }", "topk64",
               "node { count: 4 } step_seconds: 0.004 link { mbit: 30 } fault { at: 5 kill: 0 }");
}

/* A checkpoint whose copy waits until another model has been sent lacks nothing either. */
static void test_a_copy_that_waits_lacks_nothing(void **state)
{
    hold.copies = true;
    play_until(*state, "stop={ seconds: 4 }",
               "strategy.pace={ gamma: 0 coordination: symmetric shards: 3 }", "topk64",
               "node { count: 4 } step_seconds: 0.004 link { mbit: 30 }\n");
}

static void test_a_leaf_keeps_what_it_owes(void **state)
{
    static const char *const set[] = {
        "stop={ seconds: 3 }", "validation=0", "collective.wire=topk64",
        "strategy.pace={ gamma: 0 coordination: symmetric shards: 3 }", NULL};
    struct ground g;
    memset(&seen, 0, sizeof seen);
    ground_open(&g, *state, set);
    struct sim_train trial = {.ground = &g,
                              .cluster = "node { count: 4 } step_seconds: 0.01 link { mbit: 3 }\n"
                                         "fault { at: 0.6 clog: 1 factor: 10 for: 0.8 }\n"
                                         "fault { at: 1.8 clog: 2 factor: 10 for: 0.8 }\n",
                              .host = watch_exchanges,
                              .observe = on_leaf_event};
    trial.user = &trial;
    sim_train_play(&trial);
    if (trial.rc != OK)
        fail_msg("%s", trial.err.text);
    print_message("    leaves have received %zu results, %zu of them of the other parity\n",
                  leaf.results, leaf.others);
    assert_true(leaf.results >= 10 && leaf.others >= 3);
    ground_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_checkpoint_lacks_nothing),
        cmocka_unit_test(test_a_death_moves_what_is_owed),
        cmocka_unit_test(test_a_death_needs_no_rest),
        cmocka_unit_test(test_a_copy_that_waits_lacks_nothing),
        cmocka_unit_test(test_a_leaf_keeps_what_it_owes),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
