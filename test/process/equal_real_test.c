/* The equalities of strategies (test/sim/equal_test.c) hold between real processes, too; and
 * results that do not depend on time are the same in both worlds, bit for bit. */
#include "fashion.h"
#include "real_run.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

static void test_allreduce_is_one_worker_with_the_whole_batch(void **state)
{
    struct tiny *t = *state;
    char four[128], one[128];
    EXECUTE(t, "train", t->job, four, "stop.steps=20", "workers=4", "batch=16",
            "strategy.allreduce={}");
    EXECUTE(t, "train", t->job, one, "stop.steps=20", "workers=1", "batch=64",
            "strategy.single={}");
    assert_true(run_number(four, "end", 0, "used") == 20 * 64);
    double apart = run_difference(four, one);
    print_message("    tiny: %.2g\n", apart);
    assert_true(apart <= SAME_MAX);
}

/* With as many threads on both sides: oneDNN cuts its sums among threads. */
static void test_so_it_is_for_lenet(void **state)
{
    struct tiny *t = *state;
    struct fashion f;
    char four[128], one[128];
    if (!fashion_installed()) {
        print_message("    Fashion-MNIST is not installed\n");
        skip();
    }
    fashion_create(&f, t);
    EXECUTE(t, "train", FASHION_JOB, four, "stop.steps=20", "threads=1", f.images, f.labels,
            "validation=100", "workers=4", "batch=16", "strategy.allreduce={}");
    EXECUTE(t, "train", FASHION_JOB, one, "stop.steps=20", "threads=1", f.images, f.labels,
            "validation=100", "workers=1", "batch=64", "strategy.single={}");
    double apart = run_difference(four, one);
    print_message("    LeNet: %.2g\n", apart);
    assert_true(apart <= SAME_MAX);
}

static void test_alone_every_strategy_is_single(void **state)
{
    struct tiny *t = *state;
    static const char *const same[] = {"strategy.sync.tau=1", "strategy.sync.tau=7",
                                       "strategy.allreduce={}"};
    char single[128], other[128];
    EXECUTE(t, "train", t->job, single, "stop.steps=45", "workers=1", "strategy.single={}");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        EXECUTE(t, "train", t->job, other, "stop.steps=45", "workers=1", same[i]);
        if (!run_same_bits(other, single, "final.safetensors"))
            fail_msg("%s", same[i]);
    }
}

static void test_both_worlds_agree(void **state)
{
    struct tiny *t = *state;
    static const char *const options[][2] = {{"workers=1", "strategy.single={}"},
                                             {"workers=4", "strategy.sync.tau=4"},
                                             {"workers=4", "strategy.allreduce={}"},
                                             {"workers=3", "strategy.sync.tau=5"}};
    tiny_cluster(t, "node { count: 2 } node { count: 2 speed: 0.4 jitter: 0.2 }\n"
                    "step_seconds: 0.004 link { mbit: 100 loss: 0.01 }\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char real[128], sim[128];
        EXECUTE(t, "train", t->job, real, options[i][0], options[i][1]);
        EXECUTE(t, "sim", t->job, sim, options[i][0], options[i][1]);
        if (!run_same_bits(real, sim, "final.safetensors"))
            fail_msg("%s, %s", options[i][0], options[i][1]);
        assert_true(run_number(real, "end", 0, "used") == run_number(sim, "end", 0, "used"));
        assert_true(run_number(real, "end", 0, "test_loss") ==
                    run_number(sim, "end", 0, "test_loss"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_is_one_worker_with_the_whole_batch),
        cmocka_unit_test(test_so_it_is_for_lenet),
        cmocka_unit_test(test_alone_every_strategy_is_single),
        cmocka_unit_test(test_both_worlds_agree),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
