#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/comm_fit.h"

#include <math.h>
#include <string.h>

enum { SIZES = 5, REPEATS = 5 };

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* Exchanges among 2, 4 … 32 workers by that law, each repeated, with the given noise and one repeat
 * of each size held up for a second. */
static size_t make_samples(struct comm_sample *sample, enum comm_law law,
                           const struct comm_curve *curve, double noise)
{
    size_t n = 0;
    for (size_t k = 0; k < SIZES; k++)
        for (size_t i = 0; i < REPEATS; i++) {
            double N = (double)((size_t)2 << k);
            double wobble = 1 + noise * ((double)rng_uniform(7, k, i) - 0.5);
            sample[n++] = (struct comm_sample){N, comm_curve_at(law, curve, N) * wobble + (i == k)};
        }
    return n;
}

static void test_comm_fit_finds_the_law(void **state)
{
    (void)state;
    static const struct comm_curve truth[COMM_LAWS] = {
        {0.8, 0.028, 0}, {0.5, 0.3, 0}, {0.7, 0.45, 0}};
    for (enum comm_law law = COMM_LINEAR; law < COMM_LAWS; law++)
        for (int noisy = 0; noisy < 2; noisy++) {
            struct comm_sample sample[SIZES * REPEATS];
            struct comm_fit fit;
            char text[COMM_WARNING_MAX];
            size_t n = make_samples(sample, law, &truth[law], noisy ? 0.02 : 0);
            assert_int_equal(comm_fit_laws(sample, n, &fit, NULL), OK);
            assert_int_equal(fit.best, law);
            assert_true(is_near(fit.curve[law].a, truth[law].a, noisy ? 0.03 : 1e-6));
            assert_true(is_near(fit.curve[law].b, truth[law].b, noisy ? 0.03 : 1e-6));
            assert_true(fit.curve[law].residual < (noisy ? 0.01 : 1e-6));
            assert_int_equal(comm_fit_warning(&fit, text), law != COMM_LINEAR);
            assert_int_equal(text[0] != '\0', law != COMM_LINEAR);
        }
}

/* Table 4.3: 0.95, 0.93 and 0.99 s a stage at 8, 16 and 32 nodes, so log2 N of them an exchange.
 * Over so few sizes all laws are near; a line, which the thesis takes, is the second. */
static void test_comm_fit_of_the_thesis_butterfly(void **state)
{
    (void)state;
    static const struct comm_sample sample[] = {{8, 3 * 0.95}, {16, 4 * 0.93}, {32, 5 * 0.99}};
    struct comm_fit fit;
    char text[COMM_WARNING_MAX];
    assert_int_equal(comm_fit_laws(sample, 3, &fit, NULL), OK);
    assert_int_equal(fit.best, COMM_POWER);
    assert_true(comm_fit_warning(&fit, text));
    assert_non_null(
        strstr(text, "takes 1.24·N^0.398 s (error 0.5 %) rather than a line in N (error 2.2 %)"));
}

/* Three exact points, by hand: 1 + N/2 at 2, 4 and 6. Times that fall make a constant: no law has a
 * coefficient below 0. min (a - 1)² + (2a - 1)² + (4a - 1)²: a = 7/21. */
static void test_comm_fit_by_hand(void **state)
{
    (void)state;
    static const struct comm_sample line[] = {{4, 3}, {2, 2}, {6, 4}};
    static const struct comm_sample falling[] = {{2, 1}, {4, 0.5}, {8, 0.25}};
    struct comm_fit fit;
    assert_int_equal(comm_fit_laws(line, 3, &fit, NULL), OK);
    assert_int_equal(fit.best, COMM_LINEAR);
    assert_true(is_near(fit.curve[COMM_LINEAR].a, 1, 1e-9));
    assert_true(is_near(fit.curve[COMM_LINEAR].b, 0.5, 1e-9));
    assert_int_equal(comm_fit_laws(falling, 3, &fit, NULL), OK);
    for (enum comm_law law = COMM_LINEAR; law < COMM_LAWS; law++)
        assert_true(is_near(fit.curve[law].a, 1 / 3.0, 1e-6) && fabs(fit.curve[law].b) < 1e-6);
}

static void test_comm_fit_names_bad_samples(void **state)
{
    (void)state;
    static const struct comm_sample two[] = {{2, 1}, {4, 2}, {2, 1.1}};
    static const struct comm_sample alone[] = {{2, 1}, {1, 2}}, timeless[] = {{2, 1}, {4, 0}};
    struct comm_fit fit = {.best = COMM_POWER};
    struct err err;
    assert_int_equal(comm_fit_laws(two, 3, &fit, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "of 2 cluster sizes"));
    assert_int_equal(comm_fit_laws(alone, 2, &fit, &err), ERR_INPUT);
    assert_string_equal(err.text, "exchange 1: 1 workers exchange nothing");
    assert_int_equal(comm_fit_laws(timeless, 2, &fit, &err), ERR_INPUT);
    assert_string_equal(err.text, "exchange 1: 0 is no time");
    assert_int_equal(comm_fit_laws(NULL, 0, &fit, &err), ERR_INPUT);
    assert_int_equal(fit.best, COMM_POWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_fit_finds_the_law),
        cmocka_unit_test(test_comm_fit_of_the_thesis_butterfly),
        cmocka_unit_test(test_comm_fit_by_hand),
        cmocka_unit_test(test_comm_fit_names_bad_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
