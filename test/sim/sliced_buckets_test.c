/* `allreduce` of slices of a model while backward runs: buckets change when gradients travel, and
 * nothing else. */
#include "sim_run.h"
#include "sliced_job.h"

enum { FAULTS = 30, BAD_RECORD = 37 };

static const char calm[] = "node { count: 9 } step_seconds: 0.004 link { mbit: 100 }\n";

static const char long_steps[] =
    "node { count: 9 } step_seconds: 0.04 link { mbit: 1000 latency_us: 10 }\n";

/* Two convolutions on a part of the records each, whose gradient is that of several buckets, and
 * layers that slices share out. */
static const char parallel_net[] = SLICED_DATA
    "layer { name: 'a' type: 'Convolution' bottom: 'data' top: 'a'\n"
    "  convolution_param { num_output: 12 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'norm' type: 'BatchNorm' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'Convolution' bottom: 'a' top: 'b'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'b' top: 'b' }\n" SLICED_INNER("one", "b", "one", 24)
        SLICED_INNER("two", "one", "two", 12) SLICED_INNER("ip", "two", "ip", 5) SLICED_ENDS;

/* Bright pixels overflow, and others are below 1. */
static const char steep_net[] =
    SLICED_DATA "layer { name: 'p' type: 'Power' bottom: 'data' top: 'p'\n"
                "  power_param { power: 110 scale: 2.4 } }\n" SLICED_INNER("one", "p", "one", 24)
                    SLICED_INNER("ip", "one", "ip", 5) SLICED_ENDS;

/* Most products are the convolution's, most parameters those of `one`. */
static const char late_net[] = SLICED_DATA
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } "
    "}\n" SLICED_INNER("one", "conv", "one", 24) SLICED_INNER("ip", "one", "ip", 5) SLICED_ENDS;

struct shape_of_run {
    int replicas, slices;
    const char *net;
    const char *set[6];
};

static void run_shape(struct tiny *t, const char *cluster, const struct shape_of_run *shape,
                      const char *buckets, struct sim_run *r)
{
    char slices[32], workers[32], net[192];
    const char *set[16] = {slices, workers, net, "strategy.allreduce={}", buckets};
    snprintf(slices, sizeof slices, "slices=%d", shape->slices);
    snprintf(workers, sizeof workers, "workers=%d", shape->replicas * shape->slices);
    snprintf(net, sizeof net, "net.file=%s/%s.prototxt", t->folder, shape->net);
    for (size_t i = 0; i < 6 && shape->set[i]; i++)
        set[5 + i] = shape->set[i];
    r->limit_s = 1000;
    sim_do(t, cluster, r, set);
}

static void expect_same_bits(struct tiny *t, const struct shape_of_run *shape)
{
    struct sim_run end = {0}, buckets = {0};
    run_shape(t, calm, shape, "strategy.allreduce.bucket_kb=0", &end);
    run_shape(t, calm, shape, "strategy.allreduce.bucket_kb=1", &buckets);
    if (!run_is_finite(buckets.dir, "final.safetensors") ||
        !run_same_bits(buckets.dir, end.dir, "final.safetensors"))
        fail_msg("%s, %d x %d", shape->net, shape->replicas, shape->slices);
    assert_true(run_number(buckets.dir, "end", 0, "used") == run_number(end.dir, "end", 0, "used"));
}

/* Three numbers are added in one order wherever a sum is cut: by trees. */
static void test_buckets_have_the_bits_of_one_sum(void **state)
{
    static const struct shape_of_run shapes[] = {
        {2, 2, "net", {"stop.steps=20"}},
        {2, 3, "net", {"stop.steps=20", "iter_size=2"}},
        {3, 2, "net", {"stop.steps=20", "collective.algorithm=tree"}},
        {2, 2, "channels", {"stop.steps=20"}},
        {2, 2, "sequence", {"stop.steps=20"}},
        {2, 2, "fork", {"stop.steps=20"}},
        {1, 2, "parallel", {"stop.steps=20", "slices_from=one"}},
        {2, 2, "parallel", {"stop.steps=20", "slices_from=one", "slices_to=two"}},
        {3, 3, "parallel", {"stop.steps=20", "slices_from=one", "collective.algorithm=tree"}},
        {2, 2, "parallel", {"stop.steps=20", "slices_from=one", "iter_size=2"}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_same_bits(*state, &shapes[i]);
}

/* The last records of an epoch are too few for the second slice's part of the convolutions. */
static void test_a_slice_without_records_has_buckets(void **state)
{
    static const struct shape_of_run shape = {
        2, 2, "parallel", {"stop.steps=40", "slices_from=one", "batch=50", "validation=92"}};
    expect_same_bits(*state, &shape);
}

/* A record whose loss is not finite: its replica does not count in that step, though its buckets
 * have left. */
static void test_buckets_of_a_replica_that_does_not_count(void **state)
{
    struct tiny *t = *state;
    FILE *f = tiny_open(t, "dim-images");
    tiny_put_be32(f, 0x803);
    tiny_put_be32(f, TINY_TRAIN);
    tiny_put_be32(f, TINY_SIDE);
    tiny_put_be32(f, TINY_SIDE);
    for (uint32_t i = 0; i < TINY_TRAIN; i++)
        for (uint32_t k = 0; k < TINY_SIDE * TINY_SIDE; k++)
            fputc(i == BAD_RECORD ? 255 : (int)rng_below(5, 1, (uint64_t)i << 16 | k, 106), f);
    fclose(f);
    char images[192];
    snprintf(images, sizeof images, "train_data.idx.images=%s/dim-images", t->folder);
    for (int replicas = 2; replicas <= 3; replicas++) {
        const struct shape_of_run shape = {
            replicas,
            2,
            "steep",
            {"stop.epochs=2", "validation=0", "collective.algorithm=tree", images}};
        expect_same_bits(t, &shape);
    }
}

static double time_step(struct tiny *t, const char *buckets)
{
    static const char *const stops[] = {"stop.steps=6", "stop.steps=14"};
    static const char slow[] = "node { count: 4 } step_seconds: 0.4\n"
                               "link { mbit: 40 latency_us: 1 }\n";
    double end[2];
    for (int i = 0; i < 2; i++) {
        const struct shape_of_run shape = {2,
                                           2,
                                           "late",
                                           {stops[i], "slices_from=one",
                                            "evaluate.every_exchanges=1000000",
                                            "collective.chunk_kb=64"}};
        struct sim_run r = {0};
        run_shape(t, slow, &shape, buckets, &r);
        end[i] = run_number(r.dir, "end", 0, "t");
    }
    return (end[1] - end[0]) / 8;
}

/* The peers add up the layers that slices share out while the convolution's backward runs, which
 * takes longer: a step is shorter by that sum, of the larger slice. */
static void test_peers_add_up_during_the_backward_pass(void **state)
{
    const double in = 6 * 10 * 10, floats = 12 * (in + 1) + 3 * (24 + 1),
                 expected = floats * 32 / 40e6;
    double saved = time_step(*state, "strategy.allreduce.bucket_kb=0") -
                   time_step(*state, "strategy.allreduce.bucket_kb=64");
    print_message("    %.2f ms of %.2f\n", 1e3 * saved, 1e3 * expected);
    if (!(fabs(saved - expected) <= 0.05 * expected))
        fail_msg("%g s a step, not %g", saved, expected);
}

/* A slice dies at any moment of a step: buckets and sums under way are given up with the view, and
 * a standby fills the seat. Replicas are compared every hundred exchanges. */
static void test_a_slice_is_lost_between_buckets(void **state)
{
    static const struct shape_of_run shapes[] = {
        {2,
         2,
         "parallel",
         {"stop.epochs", "stop.steps=130", "standby=1", "solver.base_lr=0.01", "slices_from=one"}},
        {2, 2, "sequence", {"stop.epochs", "stop.steps=130", "standby=1", "solver.base_lr=0.01"}},
        {2, 2, "fork", {"stop.epochs", "stop.steps=130", "standby=1", "solver.base_lr=0.01"}},
    };
    for (int i = 0; i < FAULTS; i++) {
        struct sim_run r = {0};
        char faults[256];
        snprintf(faults, sizeof faults, "%s fault { at: %.4f kill: %d }\n",
                 i % 3 < 2 ? calm : long_steps, 0.15 + 0.0017 * i, i % 4);
        run_shape(*state, faults, &shapes[i % 3], "strategy.allreduce.bucket_kb=1", &r);
        assert_string_equal(r.report.reason, "steps");
        assert_int_equal(r.report.workers, 4);
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), 1);
        assert_true(run_is_finite(r.dir, "final.safetensors"));
    }
}

static int setup(void **state)
{
    sliced_setup(state);
    tiny_write(*state, "parallel.prototxt", parallel_net);
    tiny_write(*state, "channels.prototxt", sliced_channels);
    tiny_write(*state, "steep.prototxt", steep_net);
    tiny_write(*state, "late.prototxt", late_net);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_have_the_bits_of_one_sum),
        cmocka_unit_test(test_a_slice_without_records_has_buckets),
        cmocka_unit_test(test_buckets_of_a_replica_that_does_not_count),
        cmocka_unit_test(test_peers_add_up_during_the_backward_pass),
        cmocka_unit_test(test_a_slice_is_lost_between_buckets),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
