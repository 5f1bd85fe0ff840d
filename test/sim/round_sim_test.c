/* The prediction of a round (src/plan/round.c) against simulated runs. */
#include "round_scene.h"

enum { ROUNDS = 8, VARIED_ROUNDS = 120, SKIPPED = 3 };

/* Rounds of a run: more, where steps vary. */
static int rounds_of(const struct scene *s)
{
    return s->jitter > 0 ? VARIED_ROUNDS : ROUNDS;
}

/* The exchanges of a round. */
static int exchanges_of(const struct scene *s)
{
    return s->config.strategy == ROUND_DILOCO ? (int)s->config.fragments : 1;
}

static void run_scene(struct tiny *t, const struct scene *s, int rounds, struct sim_run *r)
{
    char cluster[2048], workers[32], steps[32], file[128], wire[32];
    write_cluster(s, cluster, sizeof cluster);
    tiny_write(t, "wide.prototxt", round_net);
    snprintf(workers, sizeof workers, "workers=%zu", s->workers);
    snprintf(steps, sizeof steps, "stop={steps:%d}", rounds * (int)s->config.tau);
    snprintf(file, sizeof file, "net.file=%s/%s.prototxt", t->folder, s->tiny ? "net" : "wide");
    snprintf(wire, sizeof wire, "collective.wire=%s", codec_name(s->wire));
    SIM(t, cluster, r, s->strategy, workers, steps, file, "collective.chunk_kb=64", "batch=2",
        "kernels=dnnl", "evaluate.every_exchanges=1000000", wire);
}

/* Rounds of a run, without the first, in which a pipeline fills, and without the last, which may
 * wait for what is still under way: their time and their bytes. */
static double time_rounds(const struct sim_run *r, const struct scene *s, double *bytes)
{
    int each = exchanges_of(s), first = SKIPPED * each - 1, last = (rounds_of(s) - 1) * each - 1;
    assert_true(run_count(r->dir, "exchange", NULL, NULL) > last);
    *bytes = 0;
    for (int i = last; i > last - each; i--)
        *bytes += run_number(r->dir, "exchange", i, "bytes");
    double from = run_number(r->dir, "exchange", first, "t");
    double took = run_number(r->dir, "exchange", last, "t") - from;
    return took * each / (last - first);
}

/* The run's workers send and receive as many bytes as predicted, and a round takes as long. Returns
 * the error of the prediction of the time. */
static double check_scene(struct tiny *t, const struct scene *s, double within)
{
    struct sim_run r = {0};
    struct round_node node[ROUND_NODES];
    struct round_cost cost = predict_scene(s, node);
    double bytes = 0, moved;
    for (size_t i = 1; i <= s->workers; i++)
        bytes += (double)(node[i].sent + node[i].received);
    run_scene(t, s, rounds_of(s), &r);
    double took = time_rounds(&r, s, &moved);
    double off = fabs(cost.seconds / took - 1);
    if (off > within || bytes != moved)
        fail_msg("%s, %zu workers, %g Mbit/s, unequal %d, %s: %.5f s and %.0f bytes, not %.5f and "
                 "%.0f",
                 s->strategy, s->workers, s->mbit, s->unequal, coll_algorithm_name(cost.algorithm),
                 took, moved, cost.seconds, bytes);
    return off;
}

/* The rounds that are compared, by what the job sets. */
static const struct {
    const char *strategy;
    struct round_config config;
} rounds[] = {
    {"strategy.allreduce={bucket_kb: 0}", {.strategy = ROUND_ALLREDUCE, .tau = 1}},
    {"strategy.sync={tau: 4}", {.strategy = ROUND_SYNC, .tau = 4}},
    {"strategy.easgd={mode: sync tau: 4}", {.strategy = ROUND_EASGD, .tau = 4}},
    {"strategy.async_allreduce={sync_every_epochs: 0}",
     {.strategy = ROUND_ASYNC_ALLREDUCE, .tau = 1}},
    {"strategy.diloco={tau: 4}", {.strategy = ROUND_DILOCO, .tau = 4, .fragments = 1}},
    {"strategy.diloco={tau: 4 fragments: 2}", {.strategy = ROUND_DILOCO, .tau = 4, .fragments = 2}},
    {"strategy.diloco={tau: 4 fragments: 2 overlap: 1}",
     {.strategy = ROUND_DILOCO, .tau = 4, .fragments = 2, .overlap = 1}},
    {"strategy.diloco={tau: 4 overlap: 2}",
     {.strategy = ROUND_DILOCO, .tau = 4, .fragments = 1, .overlap = 2}},
};

enum { KINDS = sizeof rounds / sizeof *rounds };

static struct scene scene_of(size_t kind, size_t workers, double mbit)
{
    return (struct scene){
        .strategy = rounds[kind].strategy,
        .config = rounds[kind].config,
        .workers = workers,
        .mbit = mbit,
        .step = 0.02,
    };
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Within 5 % for half of the scenes, and within 10 % for each. */
static void test_rounds_of_long_vectors(void **state)
{
    static const size_t workers[] = {2, 3, 8, 16, 32};
    enum { WORKERS = sizeof workers / sizeof *workers, RATES = 4 };
    double off[KINDS * WORKERS * RATES];
    size_t n = 0, scene = 0;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t w = 0; w < WORKERS; w++)
            for (double mbit = 10; mbit <= 10240; mbit *= workers[w] > 8 ? 100 : 10, scene++) {
                struct scene s = scene_of(kind, workers[w], mbit);
                s.unequal = (enum unequal)(scene % UNEQUALS);
                if (scene_is_tried(scene, workers[w]))
                    off[n++] = check_scene(*state, &s, ROUND_WORST);
            }
    qsort(off, n, sizeof *off, compare_numbers);
    print_message("    %.1f %% off in the median, %.1f %% at most\n", 100 * off[n / 2],
                  100 * off[n - 1]);
    assert_true(off[n / 2] <= ROUND_MEDIAN);
}

/* Steps take between half and one and a half of their mean, so that each round waits for the
 * longest of all workers. */
static void test_rounds_of_steps_that_vary(void **state)
{
    static const size_t workers[] = {2, 8};
    double off[KINDS * 2 * 2];
    size_t n = 0;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t w = 0; w < 2; w++)
            for (double mbit = 100; mbit <= 1000; mbit *= 10) {
                struct scene s = scene_of(kind, workers[w], mbit);
                s.unequal = (enum unequal)(n % UNEQUALS);
                s.jitter = 0.5;
                off[n++] = check_scene(*state, &s, ROUND_WORST);
            }
    qsort(off, n, sizeof *off, compare_numbers);
    print_message("    %.1f %% off in the median, %.1f %% at most\n", 100 * off[n / 2],
                  100 * off[n - 1]);
    assert_true(off[n / 2] <= ROUND_MEDIAN);
}

/* Few floats: latency and metadata are most of the exchange. */
static void test_rounds_of_short_vectors(void **state)
{
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t workers = 2; workers <= 8; workers += 3)
            for (double mbit = 10; mbit <= 10240; mbit *= 32) {
                struct scene s = scene_of(kind, workers, mbit);
                s.tiny = true;
                s.unequal = UNEQUAL_SPEEDS;
                check_scene(*state, &s, ROUND_WORST);
            }
}

/* Two equal buckets. With f for the flops of the lower layer's forward pass and g for the upper
 * one's, a step is f + g forward, 2g and f backward: the upper layer's gradient, and with it the
 * first bucket, is ready after f + 3g of 2f + 3g. */
static void test_rounds_of_buckets(void **state)
{
    const double f = (double)INPUTS * HIDDEN, g = (double)HIDDEN * OUTPUTS;
    const size_t half = schedule_cut(WIDE, 2, 1);
    const struct round_bucket bucket[] = {{WIDE - half, (f + 3 * g) / (2 * f + 3 * g)}, {half, 1}};
    for (size_t workers = 2; workers <= 4; workers++)
        for (int unequal = 0; unequal < UNEQUALS; unequal++) {
            struct scene s = scene_of(0, workers, 100);
            s.strategy = "strategy.allreduce.bucket_kb=150";
            s.config.buckets = 2;
            s.config.bucket = bucket;
            s.step = 0.05;
            s.unequal = (enum unequal)unequal;
            check_scene(*state, &s, 0.05);
        }
}

static void test_rounds_of_lossy_wires(void **state)
{
    static const size_t kinds[] = {0, 1, 2, 4};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int wire = CODEC_BF16; wire < CODECS; wire++) {
            struct scene s = scene_of(kinds[i], 3 + (size_t)wire % 2, 10);
            s.wire = (enum codec)wire;
            check_scene(*state, &s, 0.05);
        }
}

/* Without exchanges a round is a step: ten more of them take ten steps longer. */
static void test_rounds_of_one_worker(void **state)
{
    struct scene s = {.config.strategy = ROUND_SINGLE, .workers = 1, .mbit = 100, .step = 0.02};
    struct sim_run few = {0}, more = {0};
    struct round_node node[ROUND_NODES];
    s.strategy = "strategy.single={}";
    s.config.tau = 1;
    s.tiny = true;
    struct round_cost cost = predict_scene(&s, node);
    run_scene(*state, &s, 10, &few);
    run_scene(*state, &s, 20, &more);
    double took = (more.report.wall_s - few.report.wall_s) / 10;
    assert_true(fabs(cost.seconds - took) < 1e-6 && cost.algorithm == COLL_AUTO);
    assert_true(node[1].utilisation == 1 && node[1].sent == 0 && node[1].received == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_of_one_worker),
        cmocka_unit_test(test_rounds_of_buckets),
        cmocka_unit_test(test_rounds_of_lossy_wires),
        cmocka_unit_test(test_rounds_of_short_vectors),
        cmocka_unit_test(test_rounds_of_long_vectors),
        cmocka_unit_test(test_rounds_of_steps_that_vary),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
