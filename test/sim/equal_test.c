/* Strategies that are the same arithmetic give the same model: to the rounding where sums are cut
 * otherwise, bit for bit where they are not. */
#include "fashion.h"
#include "sim_run.h"
#include "sweep_stride.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

enum { LENET_STEPS = 20 / SWEEP_STRIDE(4, 4) };

static const char cluster[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";

#define SIMULATE(t, path, out, ...) \
    sim_dir(t, path, cluster, (const char *const[]){__VA_ARGS__, NULL}, out)

/* Four workers that average the gradients of 16 records each; one worker, with all 64. */
static double four_against_one(struct tiny *t)
{
    char four[128], one[128];
    SIMULATE(t, t->job, four, "stop.steps=20", "workers=4", "batch=16", "strategy.allreduce={}");
    SIMULATE(t, t->job, one, "stop.steps=20", "workers=1", "batch=64", "strategy.single={}");
    assert_true(run_number(four, "end", 0, "used") == 20 * 64);
    assert_true(run_number(one, "end", 0, "used") == 20 * 64);
    return run_difference(four, one);
}

static void test_allreduce_is_one_worker_with_the_whole_batch(void **state)
{
    double apart = four_against_one(*state);
    print_message("    tiny: %.2g\n", apart);
    assert_true(apart <= SAME_MAX);
}

static void lenet_against_one(struct tiny *t, const char *kernels)
{
    struct fashion f;
    char four[128], one[128], shorter[128], steps[32], one_less[32];
    if (!fashion_installed()) {
        print_message("    Fashion-MNIST is not installed\n");
        skip();
    }
    fashion_create(&f, t);
    snprintf(steps, sizeof steps, "stop.steps=%d", LENET_STEPS);
    snprintf(one_less, sizeof one_less, "stop.steps=%d", LENET_STEPS - 1);
    SIMULATE(t, FASHION_JOB, four, kernels, steps, f.images, f.labels, "workers=4", "batch=16",
             "validation=100", "strategy.allreduce={}");
    SIMULATE(t, FASHION_JOB, one, kernels, steps, f.images, f.labels, "workers=1", "batch=64",
             "validation=100", "strategy.single={}");
    SIMULATE(t, FASHION_JOB, shorter, kernels, one_less, f.images, f.labels, "workers=1",
             "batch=64", "validation=100", "strategy.single={}");
    double apart = run_difference(four, one);
    print_message("    LeNet, %s: %.2g\n", kernels, apart);
    assert_true(apart <= SAME_MAX);
    assert_true(run_difference(shorter, one) > 10 * SAME_MAX); /* one step is more than that */
}

/* Kernels sum a batch as a tree sums its ranks (tensor/slices.h). Rounding otherwise would turn a
 * max pooling now and then, and at the example's rate training makes 1e-2 of that in twenty steps.
 */
static void test_so_it_is_for_lenet(void **state)
{
    lenet_against_one(*state, "kernels=ref");
}

static void test_so_it_is_for_lenet_on_onednn(void **state)
{
    lenet_against_one(*state, "kernels=dnnl");
}

/* The test of the test: a run that differs a little differs by more than rounding. */
static void test_other_runs_differ(void **state)
{
    struct tiny *t = *state;
    char a[128], b[128], c[128];
    SIMULATE(t, t->job, a, "stop.steps=20", "workers=1", "strategy.single={}");
    SIMULATE(t, t->job, b, "stop.steps=20", "workers=1", "strategy.single={}",
             "solver.base_lr=0.0501");
    SIMULATE(t, t->job, c, "stop.steps=20", "workers=1", "strategy.single={}", "seed=2");
    assert_true(run_difference(a, b) > 10 * SAME_MAX);
    assert_true(run_difference(a, c) > 10 * SAME_MAX);
    assert_false(run_same_bits(a, b, "final.safetensors"));
    assert_true(run_difference(a, a) == 0);
}

static void test_alone_every_strategy_is_single(void **state)
{
    struct tiny *t = *state;
    static const char *const same[] = {"strategy.sync.tau=1", "strategy.sync.tau=7",
                                       "strategy.sync.tau=50", "strategy.allreduce={}"};
    char single[128], other[128];
    SIMULATE(t, t->job, single, "stop.steps=45", "workers=1", "strategy.single={}");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        SIMULATE(t, t->job, other, "stop.steps=45", "workers=1", same[i]);
        if (!run_same_bits(other, single, "final.safetensors"))
            fail_msg("%s", same[i]);
        assert_true(run_number(other, "end", 0, "test_loss") ==
                    run_number(single, "end", 0, "test_loss"));
    }
}

/* A pace makes steps last, and changes nothing else; learners that share memory included. */
static void test_a_pace_takes_time_and_nothing_else(void **state)
{
    static const char *const options[] = {"strategy.sync.tau=4", "strategy.allreduce={}"};
    char quick[128], slow[128];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        SIMULATE(*state, ((struct tiny *)*state)->job, quick, "stop.steps=20", options[i]);
        SIMULATE(*state, ((struct tiny *)*state)->job, slow, "stop.steps=20", "pace=0.1",
                 options[i]);
        assert_true(run_same_bits(quick, slow, "final.safetensors"));
        assert_true(run_number(quick, "end", 0, "wall_s") < 1);
        double wall_s = run_number(slow, "end", 0, "wall_s");
        assert_true(wall_s >= 2 && wall_s < 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_is_one_worker_with_the_whole_batch),
        cmocka_unit_test(test_so_it_is_for_lenet),
        cmocka_unit_test(test_so_it_is_for_lenet_on_onednn),
        cmocka_unit_test(test_other_runs_differ),
        cmocka_unit_test(test_alone_every_strategy_is_single),
        cmocka_unit_test(test_a_pace_takes_time_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
