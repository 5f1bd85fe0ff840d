/* The judge of contributions: what it refuses, and what it lets pass. */
#include "coll/outlier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { K = 8, BAD = 3 };

static void sound_claims(struct outlier_claim *claim, size_t n)
{
    for (size_t i = 0; i < n; i++)
        claim[i] = (struct outlier_claim){.weight = 1,
                                          .norm = 1 + 0.1 * (double)i,
                                          .usual = 2 + 0.1 * (double)i,
                                          .cosine = 0.3 + 0.01 * (double)i};
}

/* Only claim BAD is refused, for that cause; with OUTLIER_SOUND none is. */
static void expect_cause(const struct outlier_claim *claim, size_t n, enum outlier_cause want)
{
    enum outlier_cause cause[K];
    size_t refused = outlier_judge(claim, n, cause);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(cause[i], i == BAD ? want : OUTLIER_SOUND);
    assert_int_equal(refused, want != OUTLIER_SOUND);
}

/* The usual norms are 2.0 … 2.7; the lower median of eight is the fourth, 2.3; the limit 18.4. */
static void test_outlier_of_the_norm(void **state)
{
    (void)state;
    struct outlier_claim claim[K];
    char why[OUTLIER_TEXT_MAX];
    sound_claims(claim, K);
    expect_cause(claim, K, OUTLIER_SOUND);
    claim[BAD].norm = 18.3;
    expect_cause(claim, K, OUTLIER_SOUND);
    claim[BAD].norm = 18.5;
    expect_cause(claim, K, OUTLIER_NORM_TOO_LARGE);
    claim[BAD].norm = claim[BAD].usual = 2e6; /* now the median is 2.4 */
    expect_cause(claim, K, OUTLIER_NORM_TOO_LARGE);
    outlier_explain(claim, K, BAD, OUTLIER_NORM_TOO_LARGE, why);
    assert_string_equal(why, "its norm is 2e+06, the median of the usual ones 2.4");
    claim[BAD].norm = 0; /* it changes nothing */
    expect_cause(claim, K, OUTLIER_SOUND);
}

/* The cosines are 0.30 … 0.37; with one below all, their lower median is 0.32; the limit −0.16. */
static void test_outlier_of_the_direction(void **state)
{
    (void)state;
    struct outlier_claim claim[K];
    sound_claims(claim, K);
    claim[BAD].cosine = -0.15;
    expect_cause(claim, K, OUTLIER_SOUND);
    claim[BAD].cosine = -0.17;
    expect_cause(claim, K, OUTLIER_AGAINST);
    for (size_t i = 0; i < K; i++) /* contributions that have no common direction */
        claim[i].cosine = i == BAD ? -0.3 : 0.29;
    expect_cause(claim, K, OUTLIER_SOUND);
    sound_claims(claim, K);
    for (size_t i = 0; i < K; i++) /* two cosines are no majority */
        claim[i].cosine = i == 0 ? 0.5 : i == BAD ? -0.5 : OUTLIER_NO_SIDE;
    expect_cause(claim, K, OUTLIER_SOUND);
}

/* Repeated contributions are refused while most others are new. */
static void test_outlier_of_repetition(void **state)
{
    (void)state;
    struct outlier_claim claim[K];
    sound_claims(claim, K);
    claim[BAD].repeats = 1;
    expect_cause(claim, K, OUTLIER_REPEATED);
    for (size_t i = 0; i < K / 2; i++)
        claim[i].repeats = 1;
    expect_cause(claim, K, OUTLIER_SOUND);
}

/* Two say nothing about each other; members without a contribution do not count, nor do claims that
 * are not finite. */
static void test_outlier_needs_three(void **state)
{
    (void)state;
    struct outlier_claim claim[K];
    sound_claims(claim, K);
    claim[BAD].norm = 1e9;
    for (size_t i = 0; i < K; i++)
        claim[i].weight = i == BAD || i == 0;
    expect_cause(claim, K, OUTLIER_SOUND);
    claim[1].weight = 1;
    expect_cause(claim, K, OUTLIER_NORM_TOO_LARGE);
    claim[1].norm = (double)NAN;
    expect_cause(claim, K, OUTLIER_SOUND);
    claim[1].norm = 1;
    claim[1].weight = (double)INFINITY;
    expect_cause(claim, K, OUTLIER_SOUND);
    assert_int_equal(outlier_judge(claim, 0, NULL), 0);
}

/* Whatever four of nine members claim, the other five count. */
static void test_outlier_never_refuses_a_sound_majority(void **state)
{
    (void)state;
    enum { N = 9, LIARS = 4 };
    for (uint64_t round = 0; round < 20000; round++) {
        struct outlier_claim claim[N];
        enum outlier_cause cause[N];
        sound_claims(claim, N);
        for (size_t i = 0; i < LIARS; i++) {
            claim[i].norm = pow(10, 20 * rng_uniform(1, round, i) - 10);
            claim[i].usual = pow(10, 20 * rng_uniform(2, round, i) - 10);
            claim[i].cosine = 2 * rng_uniform(3, round, i) - 1;
            claim[i].repeats = rng_below(4, round, i, 2);
        }
        for (size_t i = LIARS; i < N; i++) /* the sound ones are near each other */
            claim[i].norm = claim[i].usual;
        outlier_judge(claim, N, cause);
        for (size_t i = LIARS; i < N; i++)
            assert_int_equal(cause[i], OUTLIER_SOUND);
    }
}

static struct outlier_claim measure_angle(struct outlier_history *h, double uu, double vv,
                                          double uv)
{
    struct outlier_claim claim = {.weight = 1};
    outlier_measure(h, &(struct vec_angle){uu, vv, uv}, uu, &claim);
    return claim;
}

static void test_outlier_measures_a_member(void **state)
{
    (void)state;
    struct outlier_history h = {0};
    struct outlier_claim c = measure_angle(&h, 9, 0, 0);
    assert_true(c.norm == 3 && c.usual == 3 && c.cosine == OUTLIER_NO_SIDE && c.repeats == 0);
    c = measure_angle(&h, 4, 16, 4); /* cos 4 / (2·4) */
    assert_true(c.norm == 2 && c.usual == 3 && c.cosine == OUTLIER_NO_SIDE && c.repeats == 0);
    c = measure_angle(&h, 9, 16, -6); /* cos −0.5 */
    assert_true(c.repeats == 1 && h.cosine == 0);
    for (int i = 2; i < OUTLIER_SIDES; i++) { /* their mean is (20 − 2) · 0.25 / 20 */
        assert_true(c.cosine == OUTLIER_NO_SIDE);
        c = measure_angle(&h, 4, 16, 2);
    }
    assert_true(fabs(c.cosine - 0.225) < 1e-15);
    c = measure_angle(&h, 4, 16, -6.2); /* cos −0.775: the mean moves a twentieth of the way */
    assert_true(fabs(c.cosine - 0.175) < 1e-15);
    c = measure_angle(&h, 0, 16, 0); /* nothing is no repetition, and has no direction */
    c = measure_angle(&h, 0, 16, 0);
    assert_true(c.norm == 0 && c.repeats == 0 && fabs(c.cosine - 0.175) < 1e-15);
    for (int i = 0; i < OUTLIER_KEPT; i++)
        c = measure_angle(&h, 0.25 + i, 1, 0);
    c = measure_angle(&h, 9, 1, 0); /* the earlier 3 is forgotten */
    assert_true(c.repeats == 0 && c.usual == 3);
    c = measure_angle(&h, (double)INFINITY, 1, 0);
    assert_true(isinf(c.norm) && fabs(c.cosine) <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outlier_of_the_norm),
        cmocka_unit_test(test_outlier_of_the_direction),
        cmocka_unit_test(test_outlier_of_repetition),
        cmocka_unit_test(test_outlier_needs_three),
        cmocka_unit_test(test_outlier_never_refuses_a_sound_majority),
        cmocka_unit_test(test_outlier_measures_a_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
