#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/cost_timeline.h"

#include <math.h>

/* A piece of N floats and its header take a second on a link of this rate. */
enum { N = 30, PIECE_BYTES = N * sizeof(float) + 40 };

#define LATENCY 0.25

static const double even[] = {PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES};
static const double one_slow[] = {PIECE_BYTES, PIECE_BYTES / 2.0, PIECE_BYTES, PIECE_BYTES};

static struct cost_links links_of(size_t ranks, const double *rate)
{
    return (struct cost_links){ranks, rate, rate, LATENCY, INFINITY, 0};
}

static void expect_seconds(enum coll_algorithm algorithm, size_t ranks, const double *rate,
                           double seconds)
{
    const struct cost_links links = links_of(ranks, rate);
    double took = cost_timeline(algorithm, &links, N, N, NULL);
    if (fabs(took - seconds) > 1e-6)
        fail_msg("%s, %zu ranks: %.6f s, by hand %.6f", coll_algorithm_name(algorithm), ranks, took,
                 seconds);
}

/* Rounds of a butterfly: each rank's vector crosses its link, and the next round follows. */
static void test_timeline_of_a_butterfly(void **state)
{
    (void)state;
    expect_seconds(COLL_BUTTERFLY, 2, even, 1 + LATENCY);
    expect_seconds(COLL_BUTTERFLY, 4, even, 2 * (1 + LATENCY));
    expect_seconds(COLL_BUTTERFLY, 2, one_slow, 2 + LATENCY);
}

/* Both children of the root send at once and share its link, as the root's two sends do. */
static void test_timeline_of_a_tree_shares_links(void **state)
{
    (void)state;
    expect_seconds(COLL_TREE, 3, even, 2 * (2 + LATENCY));
    expect_seconds(COLL_TREE, 3, one_slow, 2 * (2 + LATENCY)); /* half a link is what it has */
}

/* A ring of whole vectors: three rounds on four ranks. */
static void test_timeline_of_a_ring(void **state)
{
    (void)state;
    expect_seconds(COLL_RING, 4, even, 3 * (1 + LATENCY));
}

/* Where links wait for nothing but bytes, the prediction is the same. */
static void test_timeline_agrees_with_the_prediction(void **state)
{
    (void)state;
    static const double fast[] = {1e7, 1e7, 1e7, 1e7};
    const struct cost_links links = {4, fast, fast, 1e-4, INFINITY, 0};
    const enum coll_algorithm algorithms[] = {COLL_BUTTERFLY, COLL_CHUNKED_RING, COLL_TREE,
                                              COLL_HALVING_DOUBLING, COLL_SCATTER_GATHER};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        double drawn = cost_timeline(algorithms[i], &links, 1000000, 16384, NULL);
        double predicted = cost_predict(algorithms[i], &links, 1000000, 16384, NULL);
        if (fabs(drawn / predicted - 1) > 0.06)
            fail_msg("%s: %.4f s, predicted %.4f", coll_algorithm_name(algorithms[i]), drawn,
                     predicted);
    }
}

/* A root and another rank, metadata as long as a shard: each stage moves a piece for a second.
 * With three phases both directions are always busy; with one each shard waits for the last
 * one's result, and with two for its metadata. */
static void test_timeline_of_a_pipeline(void **state)
{
    (void)state;
    static const size_t n[] = {N, N, N};
    const double tick[] = {4 + 2 * LATENCY, 3 + 2 * LATENCY, 2};
    const struct cost_links links = links_of(2, even);
    for (size_t phases = 1; phases <= 3; phases++) {
        const struct cost_pipeline p = {n, 3, N, N, true, phases};
        double took = cost_pipeline_cycle(&p, &links);
        if (fabs(took - 3 * tick[phases - 1]) > 1e-6)
            fail_msg("%zu phases: %.6f s, by hand %.6f", phases, took, 3 * tick[phases - 1]);
    }
}

static void test_timeline_of_one_rank(void **state)
{
    (void)state;
    expect_seconds(COLL_BUTTERFLY, 1, even, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline_of_a_butterfly),
        cmocka_unit_test(test_timeline_of_a_tree_shares_links),
        cmocka_unit_test(test_timeline_of_a_ring),
        cmocka_unit_test(test_timeline_agrees_with_the_prediction),
        cmocka_unit_test(test_timeline_of_a_pipeline),
        cmocka_unit_test(test_timeline_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
