/* Checkpoints of parameter servers with a lossy wire contain all that was pushed: the model in the
 * file is the initial one and the sum of all pushes, as the workers made them before their codec
 * rounded them. Between checkpoints the servers' model lacks what the workers still owe. */
#include "model/weights.h"
#include "real/disk.h"
#include "sim_cluster.h"
#include "strategy/ps_client.h"
#include "strategy_sim.h"
#include "train/rundir.h"

enum { NODES = 4, PUSHES = 1200, ORDERS = 4 * PUSHES, FLOATS = 1200 };

#define RATE 0.05

/* A run as the observers see it. Sums are of a worker's pushes up to the kth. */
static struct seen {
    bool mean;  /* an order has a push of each, whose mean is one gradient; else sums of steps */
    bool parts; /* pushes leave in parts, some of them before they are complete */
    const struct ps_client *client[NODES];
    uint64_t applied[2];
    double owed[2]; /* by shard */
    size_t n;       /* floats of x */
    float first[FLOATS];
    double sum[NODES][PUSHES][FLOATS];
    uint64_t pushes[NODES],
        done[NODES]; /* `done`: those that are applied, also of one that is gone */
    /* By order: the model, and how far it is from all pushes in it. */
    float model[ORDERS][FLOATS];
    double lacks[ORDERS];
    uint64_t orders;
} seen;

static void on_contribution(void *user, uint32_t node, struct vec *push)
{
    uint64_t k = ++seen.pushes[node];
    (void)user;
    assert_true(node < NODES && k < PUSHES && push->n <= FLOATS);
    for (size_t i = 0; i < push->n; i++)
        seen.sum[node][k][i] = seen.sum[node][k - 1][i] + (double)push->at[i];
}

static void on_pushed(void *user, uint32_t node, const struct ps_client *client)
{
    (void)user;
    seen.client[node] = client;
    if (seen.n > 0)
        return;
    seen.n = client->state.x.n;
    assert_true(seen.n <= FLOATS && client->state.s.n == 0);
    memcpy(seen.first, client->state.x.at, seen.n * sizeof(float));
}

/* Of pushes in parts, what the workers have kept, while all wait for the order. */
static void add_residuals(const struct ps_server *server)
{
    size_t shard = server->config.index, from = server->shard.range.from;
    if (seen.applied[shard] < server->done[0]) {
        seen.applied[shard] = server->done[0];
        seen.owed[shard] = 0;
        for (size_t i = 0; i < server->shard.x.n; i++) {
            double all = 0;
            for (uint32_t p = 0; p < NODES; p++)
                all += (double)seen.client[p]->residual.at[from + i];
            seen.owed[shard] = fmax(seen.owed[shard], fabs(all * RATE / NODES));
        }
    }
    seen.lacks[server->version] = fmax(seen.lacks[server->version], seen.owed[shard]);
}

/* x̃ = the initial model, and the sum of the steps; or, of gradients, −η · their mean over the
 * workers, all of which have pushed as often. */
static void on_served(void *user, const struct ps_server *server, bool recovered)
{
    const struct vec *x = &server->shard.x;
    size_t from = server->shard.range.from;
    uint64_t v = server->version;
    (void)user;
    assert_false(recovered);
    assert_true(v > 0 && v < ORDERS && seen.n > 0);
    for (uint32_t p = 0; p < NODES; p++)
        if (members_has(&server->known, p))
            seen.done[p] = server->done[p];
    for (size_t i = 0; i < x->n; i++) {
        double all = 0;
        for (uint32_t p = 0; p < NODES; p++)
            all += seen.sum[p][seen.done[p]][from + i];
        all = (double)seen.first[from + i] + all * (seen.mean ? -RATE / NODES : 1);
        if (!seen.parts)
            seen.lacks[v] = fmax(seen.lacks[v], fabs((double)x->at[i] - all));
        seen.model[v][from + i] = x->at[i];
    }
    if (seen.parts)
        add_residuals(server);
    seen.orders = v > seen.orders ? v : seen.orders;
}

static atomic_int leave[NODES];

static void on_fault(void *user, const struct sim_fault *fault)
{
    (void)user;
    atomic_store(&leave[fault->node], 1);
}

static void watch_servers(void *user, uint32_t node, struct train_host *host)
{
    static const struct train_watch watch = {
        .exchanges = {.served = on_served, .pushed = on_pushed, .contributes = on_contribution}};
    (void)user;
    host->watch = &watch;
    if (node < NODES)
        host->leave = &leave[node];
}

/* The order of which a file has the model, bit for bit. */
static uint64_t order_of(const char *path, const struct net *net)
{
    float x[FLOATS] = {0}; /* segments begin at round offsets */
    const struct weights_into into = {net_segments(net), net_state_segments(net), x, NULL};
    struct err err = {0};
    assert_int_equal(net_segments(net)->total, seen.n);
    if (model_weights_load(path, WEIGHTS_ALL, &into, NULL, &err) != OK)
        fail_msg("%s", err.text);
    for (uint64_t v = seen.orders; v > 0; v--)
        if (memcmp(seen.model[v], x, seen.n * sizeof(float)) == 0)
            return v;
    fail_msg("%s has a model that no order has made", path);
    return 0;
}

/* At most, what an order lacks, and the last checkpoints. */
static void judge_checkpoints(const struct rundir *dir, const struct net *net)
{
    char path[3][512];
    double most = 0;
    int count = run_checkpoints(dir->path, path);
    for (uint64_t v = 1; v <= seen.orders; v++)
        most = fmax(most, seen.lacks[v]);
    print_message("    %d checkpoints; of %llu orders one lacks %g\n", count,
                  (unsigned long long)seen.orders, most);
    assert_true(count >= 3 && most > 5e-5);
    for (int k = 0; k < 3; k++) {
        uint64_t v = order_of(path[k], net);
        print_message("        order %llu lacks %g\n", (unsigned long long)v, seen.lacks[v]);
        assert_true(seen.lacks[v] < 2e-6);
    }
}

static void play_until(struct tiny *t, const char *stop, const char *strategy, const char *wire,
                       const char *cluster)
{
    struct ground g;
    struct rundir dir;
    struct err err = {0};
    char out[256], lossy[64];
    snprintf(lossy, sizeof lossy, "collective.wire=%s", wire);
    const char *const set[] = {stop,
                               "validation=0",
                               "checkpoint.every_seconds=0.7",
                               "solver={ base_lr: 0.05 lr_policy: 'fixed' }",
                               lossy,
                               strategy,
                               NULL};
    memset(&seen, 0, sizeof seen);
    seen.mean = strstr(strategy, "bsp") != NULL;
    seen.parts = seen.mean && strstr(strategy, "servers: 2");
    ground_open(&g, t, set);
    assert_int_equal(rundir_create(&dir, real_disk(), tiny_out(t, out), "lossy", &err), OK);
    struct sim_train trial = {.ground = &g,
                              .cluster = cluster,
                              .host = watch_servers,
                              .fault = on_fault,
                              .options = {.dir = &dir}};
    memset(leave, 0, sizeof leave);
    sim_train_play(&trial);
    if (trial.rc != OK)
        fail_msg("%s, %s: %s", strategy, wire, trial.err.text);
    judge_checkpoints(&dir, g.ws->train);
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

static const char *const strategies[] = {
    "strategy.ps={ consistency: bsp }",
    "strategy.ps={ consistency: bsp servers: 2 }",
    "strategy.downpour={ n_push: 1 n_fetch: 1 }",
    "strategy.downpour={ n_push: 2 n_fetch: 3 }",
    "strategy.downpour={ n_push: 1 n_fetch: 1 servers: 2 }",
    "strategy.downpour={ n_push: 2 n_fetch: 3 colocated: true }",
};

static void test_a_checkpoint_lacks_nothing(void **state)
{
    static const char *const wires[] = {"topk64", "int8", "topk16"};
    for (size_t i = 0; i < 2 * (sizeof strategies / sizeof *strategies); i++) {
        const char *strategy = strategies[i / 2], *wire = wires[i % 3];
        print_message("    %s, %s\n", strategy, wire);
        play_run(*state, strategy, wire, i % 2 ? UNEQUAL : SIM_CALM);
    }
}

/* A flush that waits for steps costs no more than its vectors take. */
static void test_long_steps_need_no_rest(void **state)
{
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        play_run(*state, strategies[i], "topk64",
                 "node { count: 4 } step_seconds: 0.05 link { mbit: 100 }\n");
}

/* A flush for which all wait alike is not given up when it takes longer than `every_seconds`. */
static void test_rare_pushes_are_awaited(void **state)
{
    for (size_t i = 2; i < sizeof strategies / sizeof *strategies; i++)
        play_until(*state, "stop={ epochs: 12 }", strategies[i], "topk64",
                   "node { count: 4 } step_seconds: 0.5 link { mbit: 100 }\n");
}

/* A worker's last push delivers what it owes. */
static void test_a_leaving_worker_delivers(void **state)
{
    play_run(*state, "strategy.downpour={ n_push: 2 n_fetch: 3 }", "topk64",
             UNEQUAL "fault { at: 0.331 leave: 1 }");
    play_run(*state, "strategy.downpour={ n_push: 1 n_fetch: 1 servers: 2 }", "topk16",
             UNEQUAL "fault { at: 0.333 leave: 2 }");
}

/* So does one that begins when the run has been stopped. */
static void test_a_stop_delivers(void **state)
{
    for (size_t i = 2; i < 5; i++)
        play_until(*state, "stop={ seconds: 2 }", strategies[i], "topk64", SIM_CALM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_checkpoint_lacks_nothing),
        cmocka_unit_test(test_long_steps_need_no_rest),
        cmocka_unit_test(test_rare_pushes_are_awaited),
        cmocka_unit_test(test_a_leaving_worker_delivers),
        cmocka_unit_test(test_a_stop_delivers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
