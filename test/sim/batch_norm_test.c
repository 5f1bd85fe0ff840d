/* A BatchNorm net under each strategy: the global model, with the global s, is as good on unseen
 * records as the workers' own models, each with its own s. bench/bn_strategies.py measures the same
 * on Fashion-MNIST. */
#include "own_models.h"
#include "strategy_sim.h"

/* Two of these make the net: BatchNorm and Scale in place, sums of some ten batches. */
#define CONVOLUTION(n, bottom, maps)                                                        \
    "layer { name: 'conv" n "' type: 'Convolution' bottom: '" bottom "' top: 'conv" n "'\n" \
    "  convolution_param { num_output: " maps " kernel_size: 3 bias_term: false\n"          \
    "    weight_filler { type: 'msra' } } }\n"                                              \
    "layer { name: 'norm" n "' type: 'BatchNorm' bottom: 'conv" n "' top: 'conv" n "'\n"    \
    "  batch_norm_param { moving_average_fraction: 0.9 } }\n"                               \
    "layer { name: 'scale" n "' type: 'Scale' bottom: 'conv" n "' top: 'conv" n "'\n"       \
    "  scale_param { bias_term: true } }\n"                                                 \
    "layer { name: 'relu" n "' type: 'ReLU' bottom: 'conv" n "' top: 'conv" n "' }\n"

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n" CONVOLUTION(
        "1", "data",
        "6") "layer { name: 'pool' type: 'Pooling' bottom: 'conv1' top: 'pool'\n"
             "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n" CONVOLUTION(
                 "2", "pool",
                 "8") "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv2' top: 'ip'\n"
                      "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
                      "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label'\n"
                      "  top: 'accuracy' include { phase: TEST } }\n"
                      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label'\n"
                      "  top: 'loss' }\n";

/* One worker is slow, so that asynchronous workers differ in their progress. */
#define CLUSTER                                                         \
    "node { count: 3 jitter: 0.05 } node { speed: 0.7 jitter: 0.05 }\n" \
    "step_seconds: 0.004 link { mbit: 100 }\n"

/* 72 steps a worker. A strategy that applies gradients late does without momentum. */
#define IN_TIME "solver={base_lr:0.02 momentum:0.9 lr_policy:'poly' power:1 max_iter:72}"
#define LATE    "solver={base_lr:0.05 lr_policy:'poly' power:1 max_iter:72}"

static const struct {
    unsigned workers;
    const char *strategy, *solver, *wire; /* NULL: f32 */
} cases[] = {
    {1, "strategy.single={}", IN_TIME, NULL},
    {4, "strategy.sync.tau=4", IN_TIME, NULL},
    {4, "strategy.allreduce={}", IN_TIME, NULL},
    {4, "strategy.async_allreduce={method:1}", IN_TIME, NULL},
    {4, "strategy.async_allreduce={method:2}", IN_TIME, NULL},
    {4, "strategy.ps.consistency=bsp", IN_TIME, NULL},
    {4, "strategy.ps.consistency=asp", LATE, NULL},
    {4, "strategy.ps.consistency=ssp", LATE, NULL},
    {4, "strategy.ps.consistency=dssp", LATE, NULL},
    {4, "strategy.ps.colocated=true", LATE, NULL},
    {4, "strategy.downpour={}", LATE, NULL},
    {4, "strategy.easgd.tau=2", IN_TIME, NULL},
    {4, "strategy.easgd={mode:sync tau:2}", IN_TIME, NULL},
    {4, "strategy.mpca={}", IN_TIME, NULL},
    {4, "strategy.mpca.coordination=symmetric", IN_TIME, NULL},
    {4, "strategy.pace={}", IN_TIME, NULL},
    {4, "strategy.pace.coordination=symmetric", IN_TIME, NULL},
    {4, "strategy.gossip.p=0.3", IN_TIME, NULL},
    {4, "strategy.diloco={tau:8 outer_momentum:0.5}", IN_TIME, NULL},
    {4, "strategy.diloco={tau:8 fragments:3 overlap:1}", IN_TIME, NULL},
    {4, "strategy.sync.tau=4", IN_TIME, "int8"},
    {4, "strategy.allreduce.bucket_kb=1", IN_TIME, "bf16"},
    {4, "strategy.mpca={}", IN_TIME, "int8"},
    {4, "strategy.pace={}", IN_TIME, "topk16"},
};

static struct own_judged last; /* of a run: the final model */

static void own_judged(const struct own_judged *judged)
{
    last = *judged;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *own, size_t n)
{
    double sorted[OWN_WORKERS_MAX];
    memcpy(sorted, own, n * sizeof *own);
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* Most errors are 0 by then, so losses are compared, too. Of three classes, chance is 0.67. */
static void test_the_joint_model_is_as_good_as_its_workers(void **state)
{
    tiny_write(*state, "net.prototxt", net);
    tiny_write_set(*state, "test", 2, 480);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_run r = {0};
        char workers[16], wire[32];
        snprintf(workers, sizeof workers, "workers=%u", cases[i].workers);
        snprintf(wire, sizeof wire, "collective.wire=%s", cases[i].wire ? cases[i].wire : "f32");
        SIM(*state, CLUSTER, &r, workers, cases[i].strategy, cases[i].solver, "stop={steps:72}",
            "evaluate.every_steps=1000", wire);
        own_forget();
        double error = median_of(last.own_error, cases[i].workers);
        double loss = median_of(last.own_loss, cases[i].workers);
        print_message("    %s, %s: error %.4f, of workers %.4f; loss %.4f, %.4f\n",
                      cases[i].strategy, wire, last.error, error, last.loss, loss);
        bool agree = i == 0 || strstr(cases[i].strategy, ".allreduce");
        assert_true(agree || last.own_loss[0] != last.own_loss[3]); /* they are not the joint one */
        assert_true(fabs(last.error - run_number(r.dir, "end", 0, "test_error")) < 1e-6);
        assert_true(last.error < 0.05);
        assert_true(fabs(last.error - error) < 0.03);
        assert_true(fabs(last.loss - loss) < 0.1 * loss + 0.005);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_joint_model_is_as_good_as_its_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
