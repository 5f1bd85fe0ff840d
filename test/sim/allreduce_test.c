/* `allreduce` while backward runs: buckets change when gradients travel, and nothing else. */
#include "strategy_sim.h"

#define NEAR 1e-6 /* s: the time for the bytes of the tiny net and of headers on these links */

static void same_time(double is, double hand)
{
    if (fabs(is - hand) > NEAR)
        fail_msg("at %.9f s, by hand %.9f", is, hand);
}

/* Three workers, the last half as fast; a step takes 0.1 s, a hop 0.01 s, bytes next to nothing.
 *
 *     worker 0, 1   |--0.1--|........................|              . waits for worker 2
 *     worker 2      |----------0.2----------|        |
 *                                           |1 2 3 4 |             hops: notes up, notes down,
 *                                                                  sums up, sums down
 * All start when the view reaches them: hello (from 0 on the way: connecting two hops, welcome one,
 * hello one) at 0.04, the view at 0.05. So exchange n is committed at 0.05 + n·0.24, and the driver
 * receives it a hop later. A fast worker entered it 0.14 s before, and waited for that time.
 * Buckets that left earlier arrived earlier, and change nothing: the slowest's last one decides. */
static void test_timeline(void **state)
{
    static const char *const buckets[] = {"strategy.allreduce.bucket_kb=1",
                                          "strategy.allreduce.bucket_kb=0"};
    for (size_t k = 0; k < 2; k++) {
        struct sim_run r = {0};
        SIM(*state,
            "node { count: 2 } node { speed: 0.5 } step_seconds: 0.1\n"
            "link { mbit: 1000000 latency_us: 10000 }\n",
            &r, "strategy.allreduce={}", buckets[k], "workers=3", "stop.steps=3");
        assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 3);
        for (int n = 0; n < 3; n++) {
            same_time(run_number(r.dir, "exchange", n, "t"), 0.05 + (n + 1) * 0.24 + 0.01);
            same_time(run_number(r.dir, "exchange", n, "seconds"), 0.14);
            same_time(run_number(r.dir, "exchange", n, "waited_s"), 0.14);
            assert_true(run_number(r.dir, "exchange", n, "n") == n + 1);
        }
    }
}

/* Most of the work is the convolution's, whose gradient is the last; most of the gradient is the
 * inner product's, which is ready after three quarters of a step. */
static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 32 kernel_size: 5 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
    "  inner_product_param { num_output: 64 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

/* A link that the gradient takes half a step to cross. In buckets it leaves while backward is at
 * work; and the sums are the same sums. */
static void test_buckets_leave_early(void **state)
{
    static const char slow[] = "node { count: 4 } step_seconds: 0.1\n"
                               "link { mbit: 36 latency_us: 100 }\n";
    struct sim_run whole = {0}, cut = {0};
    const struct tiny *t = *state;
    char file[128];
    snprintf(file, sizeof file, "net.file=%s/wide.prototxt", t->folder);
    tiny_write(*state, "wide.prototxt", net);
    SIM(*state, slow, &whole, file, "strategy.allreduce.bucket_kb=0", "stop.steps=10");
    SIM(*state, slow, &cut, file, "strategy.allreduce.bucket_kb=32", "stop.steps=10");
    assert_true(run_same_bits(whole.dir, cut.dir, "final.safetensors"));
    double last_whole = run_number(whole.dir, "exchange", 9, "t");
    double last_cut = run_number(cut.dir, "exchange", 9, "t");
    print_message("    ten steps: %.2f s in one piece, %.2f s in buckets\n", last_whole, last_cut);
    assert_true(last_cut < 0.95 * last_whole);
}

/* A worker dies in the middle of a step, with buckets under way: the others continue. */
static void test_a_death_between_buckets(void **state)
{
    sim_survives(*state,
                 (const char *const[]){"strategy.allreduce.bucket_kb=1", "stop.epochs=3", NULL}, 16,
                 true);
}

/* After the last exchange a worker dies before the final model is sent: lanes that have a task of
 * their own are synchronised by that task alone, and the run ends. The same holds for every
 * strategy whose exchanges overlap with training. */
static void test_a_death_at_the_end(void **state)
{
    static const char *const options[] = {"strategy.allreduce={bucket_kb:1}",
                                          "strategy.async_allreduce={}",
                                          "strategy.diloco={tau:4 fragments:2 overlap:1}"};
    enum { MOMENTS = 24 };
    for (size_t k = 0; k < 3; k++) {
        struct sim_run whole = {0};
        SIM(*state, SIM_CALM, &whole, options[k], "stop={steps:12}");
        double last = run_number(whole.dir, "exchange",
                                 run_count(whole.dir, "exchange", NULL, NULL) - 1, "t");
        for (int i = 0; i < MOMENTS; i++) {
            struct sim_run r = {.limit_s = 60};
            char cluster[256];
            snprintf(cluster, sizeof cluster, SIM_CALM "fault { at: %.9f kill: %d }",
                     last + 5e-5 * (i - MOMENTS / 2), 1 + i % 3);
            SIM(*state, cluster, &r, options[k], "stop={steps:12}");
            assert_string_equal(r.report.reason, "steps");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_buckets_leave_early),
        cmocka_unit_test(test_a_death_between_buckets),
        cmocka_unit_test(test_a_death_at_the_end),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
