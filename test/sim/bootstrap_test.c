/* The initial state of a run from files or a checkpoint: the driver sends each part of it to one
 * worker, and the workers pass the parts on, even when members die meanwhile. */
#include "sim_cluster.h"
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { NODES = 4, MANY = 8, STRIDE = SWEEP_STRIDE(11, 11) };

/* A model of several parts, 92,000 floats, that nothing moves: at such a rate. */
#define UNMOVED "solver.base_lr=1e-12"

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a'\n"
    "  inner_product_param { num_output: 620 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'b' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'loss' }\n";

static const double model_bits = 32.0 * (620 * (TINY_SIDE * TINY_SIDE + 1) + 3 * 621);

/* A run that leaves a model for others to begin with. */
static struct sim_run train_run(struct tiny *t)
{
    struct sim_run r = {0};
    tiny_write(t, "net.prototxt", net);
    SIM(t, SIM_CALM, &r, "seed=5", "stop.steps=8");
    return r;
}

static void weights_of(const struct sim_run *r, char set[256])
{
    snprintf(set, 256, "weights=%s/final.safetensors", r->dir);
}

static void test_all_begin_with_what_the_file_has(void **state)
{
    static const char *const way[] = {
        "strategy.sync.tau=2", "strategy.allreduce={}", "strategy.ps={ consistency: bsp }",
        "strategy.mpca={}",    "strategy.pace={}",      "strategy.easgd={}",
        "strategy.gossip={}",  "strategy.diloco.tau=2", "local=2"};
    struct tiny *t = *state;
    struct sim_run from = train_run(t);
    char weights[256];
    weights_of(&from, weights);
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        struct sim_run r = {0};
        SIM(t, SIM_CALM, &r, weights, UNMOVED, "threads=2", way[i], "stop.steps=4");
        double apart = run_difference(r.dir, from.dir);
        if (!(apart < 1e-6))
            fail_msg("%s: %g from what it began with", way[i], apart);
    }
}

/* One model passes the driver's link, and two at most each worker's: all have begun, stepped and
 * exchanged in the time that four would take; one after the other eight would. */
static void test_eight_begin_while_one_link_would_take_four(void **state)
{
    struct tiny *t = *state;
    struct sim_run from = train_run(t), fresh = {0}, r = {0};
    const double mbit = 10, model_s = model_bits / (mbit * 1e6);
    const char *cluster = "node { count: 8 } step_seconds: 0.004 link { mbit: 10 }\n";
    char weights[256];
    weights_of(&from, weights);
    SIM(t, cluster, &fresh, "workers=8", "strategy.sync.tau=2", "stop.steps=2");
    SIM(t, cluster, &r, "workers=8", "strategy.sync.tau=2", "stop.steps=2", weights);
    double took = run_number(r.dir, "exchange", 0, "t") - run_number(fresh.dir, "exchange", 0, "t");
    print_message("    %.2f s for a model of %.2f\n", took, model_s);
    assert_true(took > model_s && took < MANY / 2 * model_s);
}

/* The rest of the group begins with the same state. */
static void kill_at_some(struct ground *g, const char *cluster, uint32_t node, uint64_t stride,
                         int *runs, int *unformed)
{
    struct sim_train whole = {.ground = g, .cluster = cluster};
    sim_train_play(&whole);
    assert_int_equal(whole.rc, OK);
    assert_true(whole.end_s < 3);
    for (uint64_t send = 1 + node % stride; send <= whole.sent[node]; send += stride) {
        struct sim_train t = {
            .ground = g, .cluster = cluster, .kill_node = node, .kill_send = send};
        sim_train_play(&t);
        ++*runs;
        if (t.exchanges == 0 && t.rc == ERR_TIMEOUT) { /* the group never formed */
            ++*unformed;
            continue;
        }
        if (t.rc != OK)
            fail_msg("worker %u killed at message %llu: %s", node, (unsigned long long)send,
                     t.err.text);
        if (!(fabs(t.report.test_loss - whole.report.test_loss) < 1e-4))
            fail_msg("worker %u killed at message %llu: loss %.6f, of all %.6f", node,
                     (unsigned long long)send, t.report.test_loss, whole.report.test_loss);
        assert_true(t.end_s < whole.end_s + 3);
    }
}

static void sweep_deaths(struct tiny *t, const char *cluster, const char *strategy, uint64_t stride,
                         int least)
{
    struct sim_run from = train_run(t);
    char weights[256];
    weights_of(&from, weights);
    const char *const set[] = {weights, UNMOVED, strategy, "stop.steps=2", "validation=0", NULL};
    struct ground g;
    int runs = 0, unformed = 0;
    ground_open(&g, t, set);
    for (uint32_t node = 0; node < NODES; node++)
        kill_at_some(&g, cluster, node, stride, &runs, &unformed);
    print_message("    %s: %d runs, %d of them never formed\n", strategy, runs, unformed);
    assert_true(runs > least && unformed <= 3 * NODES);
    ground_close(&g);
}

static void test_a_worker_dies_at_its_messages(void **state)
{
    sweep_deaths(*state, SIM_CALM, "strategy.sync.tau=2", 7 * STRIDE, 200 / STRIDE);
    sweep_deaths(*state, SIM_CALM, "strategy.gossip={}", 17 * STRIDE, 100 / STRIDE);
}

/* Another one has died meanwhile: no worker waits for lost ones, and no two for each other. */
static void test_two_die(void **state)
{
    for (int i = 0; i < 4; i++) {
        char cluster[256];
        snprintf(cluster, sizeof cluster, SIM_CALM "fault { at: %g kill: %d }\n", 0.008 + 0.011 * i,
                 (i + 1) % NODES);
        sweep_deaths(*state, cluster, "strategy.sync.tau=2", 29 * STRIDE, 20 / STRIDE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_begin_with_what_the_file_has),
        cmocka_unit_test(test_eight_begin_while_one_link_would_take_four),
        cmocka_unit_test(test_a_worker_dies_at_its_messages),
        cmocka_unit_test(test_two_die),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
