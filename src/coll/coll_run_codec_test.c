/* Lossy codes on the wire: every rank ends with the same bits, near the sum, and the next runs
 * deliver what one run loses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll_call.h"
#include "sweep_stride.h"

#include <math.h>

enum { TIMES = 200 / SWEEP_STRIDE(2, 2) };

static const enum codec lossy[] = {CODEC_BF16, CODEC_INT8};

/* In a butterfly and a ring, ranks would end with different sums. */
static const enum coll_algorithm able[] = {COLL_TREE, COLL_CHUNKED_RING, COLL_HALVING_DOUBLING,
                                           COLL_SCATTER_GATHER};
enum { ABLE = sizeof able / sizeof *able };

enum { STRIDE = SWEEP_STRIDE(4, 4), CHUNK_STEP = SWEEP_STRIDE(3, 3) };

#define EACH_CODEC_AND_ALGORITHM(codec, a)                            \
    for (const enum codec *codec = lossy; codec < lossy + 2; codec++) \
        for (const enum coll_algorithm *a = able; a < able + ABLE; a++)

/* The same call `times` times, each rank with the same values and what it owes. */
struct progress {
    struct call call;
    struct coll_config config;
    struct range exact;
    size_t times;
    bool feedback, uneven;
    float *x[RANKS_MAX], *residual[RANKS_MAX];
    double *sum[RANKS_MAX]; /* of the results */
};

static int run_often(struct progress *series, struct coll *c, struct coll_plan *plan)
{
    size_t me = c->ranks->me, n = series->call.n;
    int rc = OK;
    for (size_t k = 0; rc == OK && k < series->times; k++) {
        for (size_t i = 0; i < n; i++)
            series->x[me][i] = call_value(me, 0, i);
        c->n = k + 1;
        float *owed = series->feedback ? series->residual[me] : NULL;
        rc = coll_run(c, plan, series->x[me], (struct coll_owed){owed, owed});
        for (size_t i = 0; i < n; i++)
            series->sum[me][i] += (double)series->x[me][i];
    }
    return rc;
}

static int plan_series(struct coll_plan *plan, const struct progress *series,
                       const struct ranks *ranks)
{
    struct schedule s;
    int rc = call_schedule(&s, &series->call, ranks->count, ranks->me, series->config.chunk);
    if (rc == OK)
        rc = schedule_set_exact(&s, series->exact.from, series->exact.len);
    if (rc == OK)
        rc = coll_plan_make(plan, &s, &series->config);
    schedule_release(&s);
    return rc;
}

static int play_series(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct progress *series = scene->arg;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks};
    struct coll_plan plan;
    size_t me = ranks->me;
    int rc = plan_series(&plan, series, ranks);
    if (rc != OK)
        return rc;
    series->x[me] = calloc(series->call.n + 1, sizeof(float));
    series->residual[me] = calloc(series->call.n + 1, sizeof(float));
    series->sum[me] = calloc(series->call.n + 1, sizeof(double));
    rc = series->x[me] && series->residual[me] && series->sum[me] ? OK : ERR_NOMEM;
    if (rc == OK)
        rc = run_often(series, &c, &plan);
    coll_plan_release(&plan);
    return rc;
}

static void run_series(struct progress *series, uint32_t ranks)
{
    struct scene scene = {.ranks = ranks, .play = play_series, .arg = series};
    if (series->uneven) {
        scene.cluster = "node { count: 2 jitter: 0.5 } node { speed: 0.1 jitter: 0.3 } "
                        "node { count: 6 speed: 3 } link { mbit: 10 loss: 0.01 }";
        series->config.serialise = 1e-6;
    }
    run_scene(&scene);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(scene.rc[r], OK);
}

static void drop_series(struct progress *series)
{
    for (size_t r = 0; r < RANKS_MAX; r++) {
        free(series->x[r]);
        free(series->residual[r]);
        free(series->sum[r]);
    }
}

static double exact_sum(uint32_t ranks, size_t i)
{
    double sum = 0;
    for (uint32_t r = 0; r < ranks; r++)
        sum += (double)call_value(r, 0, i);
    return sum;
}

/* The largest error of one rounding of a sum of `ranks` values, each at most 0.7. */
static double step_of(enum codec codec, uint32_t ranks)
{
    double largest = 0.7 * ranks;
    return codec == CODEC_BF16 ? largest / 256 : largest / 127;
}

/* Roundings on the way of a value: in a ring one a rank, else two a round and those of the ranks
 * beyond a power of two. */
static double count_roundings(enum coll_algorithm a, uint32_t ranks)
{
    return a == COLL_CHUNKED_RING || a == COLL_SCATTER_GATHER ? ranks : 2 * log2(ranks) + 3;
}

static void same_bits_near_the_sum(const struct progress *series, uint32_t ranks)
{
    enum coll_algorithm a = series->call.algorithm;
    double most = count_roundings(a, ranks) * step_of(series->config.codec, ranks);
    for (uint32_t r = 0; r < ranks; r++)
        if (memcmp(series->x[r], series->x[0], series->call.n * sizeof(float)) != 0)
            fail_msg("%s %s, %zu floats in pieces of %zu: rank %u of %u has other bits",
                     coll_algorithm_name(a), codec_name(series->config.codec), series->call.n,
                     series->config.chunk, r, ranks);
    for (size_t i = 0; i < series->call.n; i++)
        if (fabs((double)series->x[0][i] - exact_sum(ranks, i)) > most)
            fail_msg("%s %s of %u ranks: float %zu is %g, not %g", coll_algorithm_name(a),
                     codec_name(series->config.codec), ranks, i, (double)series->x[0][i],
                     exact_sum(ranks, i));
}

static void test_run_codec_ranks_agree_bit_for_bit(void **state)
{
    (void)state;
    static const size_t n[] = {1, 5, 31, 257, 700, 1000, 2900};
    static const size_t chunk[] = {5, 256, 300, 512};
    EACH_CODEC_AND_ALGORITHM(codec, a)
    for (uint32_t ranks = 1; ranks <= 9; ranks += STRIDE)
        for (size_t k = 0; k < sizeof n / sizeof *n; k++)
            for (size_t j = sweep_first(k, CHUNK_STEP, 4); j < 4; j += CHUNK_STEP) {
                if (n[k] > 1000 && j == 0)
                    continue;
                struct progress series = {.call = {ALL_REDUCE, *a, n[k], 0, NULL},
                                          .config = {.chunk = chunk[j], .codec = *codec},
                                          .times = 2,
                                          .feedback = true};
                run_series(&series, ranks);
                same_bits_near_the_sum(&series, ranks);
                drop_series(&series);
            }
}

/* Pieces are coded in another order, and from longer ranges. */
static void test_run_codec_any_order_and_length(void **state)
{
    (void)state;
    EACH_CODEC_AND_ALGORITHM(codec, a)
    for (uint32_t ranks = 2; ranks <= 9; ranks += STRIDE)
        for (int uneven = 0; uneven < 2; uneven++) {
            struct progress series = {.call = {ALL_REDUCE, *a, uneven ? 2777 : 40001, 0, NULL},
                                      .config = {.chunk = uneven ? 45 : 700, .codec = *codec},
                                      .times = 2,
                                      .feedback = true,
                                      .uneven = uneven};
            run_series(&series, ranks);
            same_bits_near_the_sum(&series, ranks);
            drop_series(&series);
        }
}

static void test_run_codec_parts_equal_copies(void **state)
{
    (void)state;
    static const enum call_kind kinds[] = {BROADCAST, ALL_GATHER};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 2; i++)
            for (uint32_t ranks = 2; ranks <= 9; ranks += STRIDE) {
                struct progress series = {
                    .call = {kinds[k], COLL_AUTO, 2900, ranks / 2, NULL},
                    .config = {.chunk = ranks % 2 ? 300 : 64, .codec = lossy[i]},
                    .times = 1};
                run_series(&series, ranks);
                for (uint32_t r = 1; r < ranks; r++)
                    assert_memory_equal(series.x[r], series.x[0], 2900 * sizeof(float));
                drop_series(&series);
            }
}

/* How far the mean of all results is from the sum, at worst. */
static double bias_of(const struct progress *series, uint32_t ranks)
{
    double worst = 0;
    for (size_t i = 0; i < series->call.n; i++)
        worst = fmax(worst, fabs(series->sum[0][i] / (double)series->times - exact_sum(ranks, i)));
    return worst;
}

/* Without error feedback the error stays, however long the series. With it the mean of the errors
 * of all runs is no larger than the residual at the end. */
static void test_run_codec_error_feedback(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {2, 4, 5, 8};
    EACH_CODEC_AND_ALGORITHM(codec, a)
    for (size_t k = STRIDE > 1 ? 2 : 0; k < (STRIDE > 1 ? 3 : 4); k++) {
        struct progress with = {.call = {ALL_REDUCE, *a, 2048, 0, NULL},
                                .config = {.chunk = 256, .codec = *codec},
                                .times = TIMES,
                                .feedback = true};
        struct progress without = with;
        without.feedback = false;
        run_series(&with, ranks[k]), run_series(&without, ranks[k]);
        double most = count_roundings(*a, ranks[k]) * step_of(*codec, ranks[k]) / TIMES;
        double left = bias_of(&with, ranks[k]), lost = bias_of(&without, ranks[k]);
        if (left > 2 * most || lost < 4 * left)
            fail_msg("%s %s of %u ranks: off by %g, without feedback by %g; at most %g",
                     coll_algorithm_name(*a), codec_name(*codec), ranks[k], left, lost, most);
        drop_series(&with), drop_series(&without);
    }
}

/* The results and the residuals add up to all inputs. Exact floats have no error. */
static void keeps_all(enum codec codec, enum coll_algorithm a, uint32_t ranks)
{
    struct progress series = {.call = {ALL_REDUCE, a, 9000, 0, NULL},
                              .config = {.chunk = 4096, .codec = codec},
                              .exact = {700, 1800},
                              .times = 12,
                              .feedback = true};
    run_series(&series, ranks);
    double times = (double)series.times, worst = 0, apart = 0;
    for (size_t i = 0; i < series.call.n; i++) {
        bool exact = i >= 700 && i < 2500;
        double left = series.sum[0][i] - times * exact_sum(ranks, i);
        for (uint32_t r = 0; r < ranks; r++) {
            assert_true(series.x[r][i] == series.x[0][i]);
            assert_true(!exact || series.residual[r][i] == 0);
            left += (double)series.residual[r][i];
        }
        if (exact)
            apart = fmax(apart, fabs(left));
        worst = fmax(worst, fabs(left));
    }
    if (worst > 2e-4 || apart > 2e-5)
        fail_msg("%s %s of %u ranks: %g is lost, of exact floats %g", coll_algorithm_name(a),
                 codec_name(codec), ranks, worst, apart);
    drop_series(&series);
}

static void test_run_codec_keeps_all(void **state)
{
    (void)state;
    static const enum codec drops[] = {CODEC_TOPK16, CODEC_TOPK64};
    for (uint32_t ranks = 2; ranks <= 5; ranks++) {
        EACH_CODEC_AND_ALGORITHM(codec, a)
        keeps_all(*codec, *a, ranks);
        for (size_t i = 0; i < 2; i++)
            keeps_all(drops[i], COLL_SCATTER_GATHER, ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_codec_ranks_agree_bit_for_bit),
        cmocka_unit_test(test_run_codec_any_order_and_length),
        cmocka_unit_test(test_run_codec_parts_equal_copies),
        cmocka_unit_test(test_run_codec_error_feedback),
        cmocka_unit_test(test_run_codec_keeps_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
