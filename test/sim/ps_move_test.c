/* Shards of a parameter server that move to another worker, and a run with shards that is resumed:
 * no momentum, no moment of Adam and no push is lost, where a server leaves in good order. Where
 * servers die, at most the newest pushes of the dead are. */
#include "sim_cluster.h"
#include "strategy/ps_client.h"
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { NODES = 6, SHARDS = 4, ORDERS = 4000, STRIDE = SWEEP_STRIDE(3, 3) };

/* The optimizers, each with vectors that a shard keeps; the rate does not depend on the clock. */
static const char *const solvers[] = {
    "solver={ base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' }",
    "solver={ type: 'Adam' base_lr: 0.002 momentum: 0.9 momentum2: 0.999 lr_policy: 'fixed' }"};

/* ---- what the servers do ---- */

struct order {
    uint64_t model, history, offset, applied[NODES];
};

static struct {
    struct order at[SHARDS][ORDERS], undone[SHARDS][ORDERS]; /* by version; by number */
    uint64_t version[SHARDS], undone_count[SHARDS], pushed[NODES];
    uint32_t host[SHARDS]; /* where it was served last */
    const char *name;
    uint64_t gone; /* workers that leave or die, bit by bit */
    bool dies;
    int moves, equals;
    uint64_t lost;         /* pushes of the dead, at most in one move */
    double at_last;        /* s: of the last order */
    uint64_t final[NODES]; /* pushes in the newest state that a worker has fetched after its loop */
    int finals;
} seen;

/* x̃, s̃ and the optimizer's vectors of a shard. */
static uint64_t bits_of(const struct ps_server *server)
{
    const struct shard *shard = &server->shard;
    uint64_t hash = vec_hash(&shard->both, vec_all(&shard->both));
    size_t states = shard->x.n > 0 ? server->layout.vectors : 0;
    assert_true(shard->x.n == 0 || states > 0 || shard->config.rule == SHARD_UPDATES);
    for (size_t i = 0; i < states; i++)
        hash = hash * 31 + vec_hash(&shard->optim.state[i], vec_all(&shard->x));
    return hash * 31 + shard->optim.updates;
}

/* A shard goes back to an order that it, perhaps at another worker, has carried out before. */
static void expect_that_state(const struct ps_server *server, const struct order *now)
{
    size_t shard = server->config.index;
    uint64_t version = server->version;
    const struct order *then = &seen.at[shard][version];
    if (version == 0)
        return;
    if (then->model != now->model || then->history != now->history || then->offset != now->offset)
        fail_msg("%s: shard %zu is not what it was after order %llu", seen.name, shard,
                 (unsigned long long)version);
    for (uint32_t p = 0; p < NODES; p++) {
        if (!(seen.gone >> p & 1) || members_has(&server->known, p))
            continue; /* a member sends again what the state lacks */
        uint64_t lost = seen.pushed[p] - then->applied[p];
        if (lost > 0 && !seen.dies)
            fail_msg("%s: shard %zu has lost %llu pushes of worker %u", seen.name, shard,
                     (unsigned long long)lost, p);
        seen.lost = lost > seen.lost ? lost : seen.lost;
    }
}

static void on_served(void *user, const struct ps_server *server, bool recovered)
{
    (void)user;
    size_t shard = server->config.index;
    uint64_t version = server->version;
    struct order now = {
        .model = bits_of(server), .history = server->history, .offset = server->sample_offset};
    assert_true(shard < SHARDS && version < ORDERS);
    uint32_t self = server->world->self, from = seen.host[shard];
    if (seen.version[shard] > 0 && self != from && members_has(&server->known, from))
        fail_msg("%s: shard %zu moves from worker %u, which is there, to %u", seen.name, shard,
                 from, self);
    seen.host[shard] = self;
    for (uint32_t p = 0; p < NODES; p++)
        if (members_has(&server->known, p))
            now.applied[p] = server->done[p];
        else if (version > 0) /* it is gone, and no further push of its comes */
            now.applied[p] = seen.at[shard][version - 1].applied[p];
    if (recovered) {
        expect_that_state(server, &now);
        seen.moves++;
        for (uint64_t n = version + 1; n <= seen.version[shard]; n++) {
            assert_true(seen.undone_count[shard] < ORDERS);
            seen.undone[shard][seen.undone_count[shard]++] = seen.at[shard][n];
        }
    } else {
        /* The same pushes in the same order as before give the same bits. */
        for (uint64_t i = 0; i < seen.undone_count[shard]; i++) {
            const struct order *before = &seen.undone[shard][i];
            if (before->history == now.history && before->model != now.model)
                fail_msg("%s: shard %zu differs after order %llu", seen.name, shard,
                         (unsigned long long)version);
            seen.equals += before->history == now.history;
        }
        seen.at[shard][version] = now;
    }
    seen.version[shard] = version;
    seen.at_last = world_seconds(world_now(server->world));
}

static void on_pushed(void *user, uint32_t node, const struct ps_client *client)
{
    (void)user;
    assert_true(node < NODES);
    seen.pushed[node] = client->pushed;
    if (!client->ended)
        return;
    memcpy(seen.final, client->state.push, sizeof seen.final);
    seen.finals++;
}

static atomic_int leave[NODES];

static void on_fault(void *user, const struct sim_fault *fault)
{
    (void)user;
    if (strcmp(fault->what, "leave") == 0)
        atomic_store(&leave[fault->node], 1);
}

static void watch_servers(void *user, uint32_t node, struct train_host *host)
{
    static const struct train_watch watch = {
        .exchanges = {.served = on_served, .pushed = on_pushed}};
    (void)user;
    host->watch = &watch;
    if (node < NODES)
        host->leave = &leave[node];
}

/* When all has ended, each shard contains every push of the workers that are still there. */
static void expect_all_pushes(int shards)
{
    for (int k = 0; k < shards; k++)
        for (uint32_t p = 0; p < NODES; p++) {
            const struct order *last = &seen.at[k][seen.version[k]];
            if (!(seen.gone >> p & 1) && last->applied[p] != seen.pushed[p])
                fail_msg("%s: shard %d contains %llu of %llu pushes of worker %u", seen.name, k,
                         (unsigned long long)last->applied[p], (unsigned long long)seen.pushed[p],
                         p);
        }
}

static void play_faults(struct ground *g, const char *faults, int shards, uint64_t gone, bool dies)
{
    char cluster[768];
    snprintf(cluster, sizeof cluster,
             "node { count: 2 } node { speed: 0.6 } node { speed: 1.4 }\n"
             "step_seconds: 0.004 link { mbit: 100 }\n%s",
             faults);
    struct sim_train t = {
        .ground = g, .cluster = cluster, .host = watch_servers, .fault = on_fault};
    memset(&seen, 0, sizeof seen);
    memset(leave, 0, sizeof leave);
    seen.name = faults;
    seen.gone = gone;
    seen.dies = dies;
    sim_train_play(&t);
    if (t.rc != OK)
        fail_msg("%s: %s", faults, t.err.text);
    assert_string_equal(t.report.reason, "steps");
    expect_all_pushes(shards);
}

static const struct way {
    const char *strategy;
    int shards;
} ways[] = {{"strategy.ps={ consistency: bsp servers: 2 }", 2},
            {"strategy.ps={ consistency: asp servers: 2 }", 2},
            {"strategy.ps={ consistency: ssp staleness: 2 colocated: true }", 4},
            {"strategy.ps={ s_lower: 1 r_max: 2 servers: 3 }", 3}};

enum { WAYS = sizeof ways / sizeof *ways, MOMENTS = 9 };

/* Play each way at some moments; `format` has the moment, and a worker. */
static void sweep_moments(struct tiny *t, const char *format, uint64_t gone, bool dies)
{
    int moves = 0, equals = 0;
    uint64_t lost = 0;
    for (size_t w = 0; w < WAYS * 2; w++) {
        const char *const set[] = {"stop={ steps: 40 }", "validation=0", solvers[w % 2],
                                   ways[w / 2].strategy, NULL};
        struct ground g;
        ground_open(&g, t, set);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            char faults[256];
            double at = 0.02 + 0.013 * i;
            uint32_t node = gone ? 0 : (uint32_t)i % 2;
            snprintf(faults, sizeof faults, format, at, node, at, node + 1);
            play_faults(&g, faults, ways[w / 2].shards, gone ? gone : UINT64_C(1) << node, dies);
            moves += seen.moves;
            equals += seen.equals;
            lost = seen.lost > lost ? seen.lost : lost;
        }
        ground_close(&g);
    }
    print_message("    %d times a shard continued from a state, %d orders were repeated; at most "
                  "%d pushes of a worker are lost\n",
                  moves, equals, (int)lost);
    assert_true(moves > 0);
    assert_true(lost < PS_PUSHES_KEPT + 1);
}

/* A worker that serves a shard leaves: nothing is lost, not even a push of its own. */
static void test_a_server_leaves_in_good_order(void **state)
{
    sweep_moments(*state, "fault { at: %.4f leave: %u }", 0, false);
}

/* Both that serve shards leave at once; where all serve one, the others continue. */
static void test_two_servers_leave_at_once(void **state)
{
    sweep_moments(*state, "fault { at: %.4f leave: %u } fault { at: %.4f leave: %u }", 3, false);
}

static void test_a_server_dies(void **state)
{
    sweep_moments(*state, "fault { at: %.4f kill: %u }", 0, true);
}

/* Where two serve, these are all servers, and with them the clock: the run still ends with its last
 * step. */
static void test_all_servers_die_at_once(void **state)
{
    sweep_moments(*state, "fault { at: %.4f kill: %u } fault { at: %.4f kill: %u }", 3, true);
}

/* The clock dies when loops have ended or are about to: the others send again what no state
 * contains, and the final model is fetched behind that. */
static void test_the_clock_dies_at_the_end(void **state)
{
    enum { TIMES = 24 };
    int fetched = 0;
    for (size_t i = 0; i < 4; i++) {
        const char *const set[] = {"stop={ steps: 40 }", "validation=0", solvers[i % 2],
                                   ways[i / 2].strategy, NULL};
        struct ground g;
        ground_open(&g, *state, set);
        play_faults(&g, "", 2, 0, false);
        double end = seen.at_last;
        for (int k = 0; k < TIMES; k++) {
            char faults[64];
            snprintf(faults, sizeof faults, "fault { at: %.5f kill: 0 }", end - 0.006 + 0.0005 * k);
            play_faults(&g, faults, 2, 1, true);
            fetched += seen.finals > 0;
            for (uint32_t p = 1; p < NODES && seen.finals > 0; p++)
                if (seen.final[p] != seen.pushed[p])
                    fail_msg("%s: the final model has %llu of %llu pushes of worker %u", faults,
                             (unsigned long long)seen.final[p], (unsigned long long)seen.pushed[p],
                             p);
        }
        ground_close(&g);
    }
    assert_true(fetched > 0);
}

/* Two begin the run and serve, two join it. When the first two have left, joiners serve. */
static void test_joiners_take_over(void **state)
{
    static const char *const what[] = {"leave", "kill"};
    tiny_elastic(*state);
    for (int i = 0; i < 8; i++) {
        char faults[320];
        const char *const set[] = {"stop={ steps: 60 }",
                                   "validation=0",
                                   "workers_min=2",
                                   "workers_max=4",
                                   solvers[i % 2],
                                   ways[i / 2 % 2].strategy,
                                   NULL};
        struct ground g;
        double at = 0.06 + 0.011 * i;
        ground_open(&g, *state, set);
        snprintf(faults, sizeof faults,
                 "fault { at: 0.01 join: 2 } fault { at: 0.02 join: 3 }"
                 "fault { at: %.4f %s: 0 } fault { at: %.4f %s: 1 }",
                 at, what[i / 4], at + 0.03, what[i / 4]);
        play_faults(&g, faults, 2, 3, i / 4 == 1);
        assert_true(seen.moves >= 4);
        ground_close(&g);
    }
}

/* A run of two workers and two shards, and more that join it. */
static void play_joiners(struct tiny *t, int i, const char *faults, uint64_t gone, bool dies)
{
    const char *const set[] = {"stop={ steps: 200 }",
                               "validation=0",
                               "workers_min=2",
                               "workers_max=4",
                               solvers[i % 2],
                               ways[i / 2 % 2].strategy,
                               NULL};
    struct ground g;
    ground_open(&g, t, set);
    play_faults(&g, faults, 2, gone, dies);
    ground_close(&g);
}

/* Both that began the run have left, and one that joins then has a lower number than the server,
 * which lives: the shards stay. */
static void test_a_joiner_takes_no_shard_from_a_living_server(void **state)
{
    tiny_elastic(*state);
    for (int i = 0; i < 24; i++) {
        char faults[320];
        snprintf(
            faults, sizeof faults,
            "fault { at: 0.01 join: 3 } fault { at: 0.05 leave: 0 } fault { at: 0.06 leave: 1 }"
            "fault { at: %.4f join: 2 }",
            0.1 + 0.0017 * i);
        play_joiners(*state, i, faults, 3, false);
        assert_in_range(seen.moves, 2, 4); /* of each shard: when 0 leaves, and when 1 does */
    }
}

/* The server receives the view with such a joiner late, when that has died again: it has seen
 * nothing of it. */
static void test_a_server_skips_the_views_of_a_joiner(void **state)
{
    tiny_elastic(*state);
    for (int i = 0; i < 24; i++) {
        char faults[512];
        snprintf(
            faults, sizeof faults,
            "node {} fault { at: 0.01 join: 3 } fault { at: 0.02 join: 4 }"
            "fault { at: 0.05 leave: 0 } fault { at: 0.06 leave: 1 } fault { at: 0.15 join: 2 }"
            "delay { from: -1 to: 3 tag: 'view' nth: 5 seconds: 0.1 } fault { at: %.4f kill: 2 }",
            0.152 + 0.001 * i);
        play_joiners(*state, i, faults, 7, true);
    }
}

/* Two joiners with lower numbers than the server come one after another, and the first one opens
 * its client when both are in: it has not seen the view in which others may push to it. */
static void test_a_joiner_skips_its_first_view(void **state)
{
    static const char *const set[] = {"stop={ steps: 200 }",
                                      "validation=0",
                                      "workers_min=2",
                                      "workers_max=4",
                                      "solver.momentum=0",
                                      "strategy.downpour={ servers: 2 n_push: 4 n_fetch: 8 }",
                                      NULL};
    tiny_elastic(*state);
    for (int i = 0; i < 48; i++) {
        char faults[512];
        struct ground g;
        double at = 0.15 + 0.0029 * (i / 4);
        snprintf(faults, sizeof faults,
                 "node { count: 2 } fault { at: 0.01 join: 4 } fault { at: 0.02 join: 5 }"
                 "fault { at: 0.05 leave: 2 } fault { at: 0.06 leave: 3 }"
                 "fault { at: %.4f join: 1 } fault { at: %.4f join: 0 }"
                 "delay { from: 4 to: 1 tag: 'model' seconds: 0.05 }",
                 at, at + 0.002 * (i % 4));
        ground_open(&g, *state, set);
        play_faults(&g, faults, 2, 12, false);
        ground_close(&g);
    }
}

/* A worker that serves nothing leaves, and then the server does: the state that is left has the
 * pushes of both. */
static void test_a_worker_leaves_before_its_server(void **state)
{
    tiny_elastic(*state);
    for (int i = 0; i < 48; i++) {
        char faults[512];
        double at = 0.1 + 0.0031 * i;
        snprintf(faults, sizeof faults,
                 "fault { at: 0.01 join: 2 } fault { at: 0.02 join: 3 } fault { at: %.4f leave: 2 }"
                 "fault { at: %.4f leave: 0 } fault { at: %.4f leave: 1 }",
                 at, at + 0.001 * (i % 8), at + 0.002 * (i % 8));
        play_joiners(*state, i, faults, 7, false);
    }
}

/* ---- resumed ---- */

/* In rounds the result does not depend on time: ten steps and, resumed, ten more are twenty. */
static void test_a_resumed_run_has_its_optimizer(void **state)
{
    static const char *const strategies[] = {"strategy.ps={ consistency: bsp }",
                                             "strategy.ps={ consistency: bsp servers: 2 }",
                                             "strategy.ps={ consistency: bsp servers: 3 }",
                                             "strategy.ps={ consistency: bsp colocated: true }"};
    for (size_t i = 0; i < 8; i++) {
        struct sim_run whole = {0}, r = {0};
        const char *solver = solvers[i % 2], *strategy = strategies[i / 2];
        SIM(*state, SIM_CALM, &whole, solver, strategy, "stop={ steps: 20 }");
        SIM(*state, SIM_CALM, &r, solver, strategy, "stop={ steps: 10 }");
        SIM(*state, SIM_CALM, &r, solver, strategy, "stop={ steps: 20 }");
        assert_true(run_number(r.dir, "start", 1, "resumed_after") > 0);
        if (!run_same_bits(r.dir, whole.dir, "final.safetensors"))
            fail_msg("%s, %s: another model (%s)", strategy, solver, r.dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_leaves_in_good_order),
        cmocka_unit_test(test_two_servers_leave_at_once),
        cmocka_unit_test(test_a_server_dies),
        cmocka_unit_test(test_all_servers_die_at_once),
        cmocka_unit_test(test_the_clock_dies_at_the_end),
        cmocka_unit_test(test_a_resumed_run_has_its_optimizer),
        cmocka_unit_test(test_joiners_take_over), /* the last two: they change the job */
        cmocka_unit_test(test_a_joiner_takes_no_shard_from_a_living_server),
        cmocka_unit_test(test_a_server_skips_the_views_of_a_joiner),
        cmocka_unit_test(test_a_joiner_skips_its_first_view),
        cmocka_unit_test(test_a_worker_leaves_before_its_server),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
