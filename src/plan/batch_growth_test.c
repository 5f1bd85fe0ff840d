#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/batch_growth.h"

#include <math.h>

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* 32 to 704 with the power 2: a quarter of the growth at half of the epochs, and a third of that in
 * the mean. */
static void test_batch_growth_by_hand(void **state)
{
    (void)state;
    const struct batch_growth g = {32, 704, 2};
    assert_true(batch_growth_at(&g, 0) == 32 && batch_growth_at(&g, 1) == 704);
    assert_true(is_near(batch_growth_at(&g, 0.5), 32 + 672 / 4.0, 1e-12));
    assert_true(is_near(batch_growth_effective(&g, 0.5), 32 + 672 / 12.0, 1e-12));
    assert_true(is_near(batch_growth_effective(&g, 1), 256, 1e-12));
    struct batch_growth same = batch_growth_reaching(32, 256, 2);
    assert_true(same.first == 32 && same.last == 704 && same.P == 2);
}

/* With M = 1 and D = B_max - B_0, ∫dm/B is
 *   P = 1/2   2/D²·(D - B_0·ln(B_max/B_0)), since dm = 2(B - B_0)/D² dB
 *   P = 1     ln(B_max/B_0)/D
 *   P = 2     atan(√(D/B_0))/√(B_0·D) */
/* With the power 1, ∫du/B = log(B/B_0)/(B_max − B_0); the whole integral is 1/B_h. */
static void test_batch_growth_updates_in_closed_form(void **state)
{
    (void)state;
    const struct batch_growth line = {32, 704, 1}, square = {32, 704, 2}, root = {64, 352, 0.5};
    for (int i = 0; i <= 8; i++) {
        double m = i / 8.0, B = batch_growth_at(&line, m);
        assert_true(fabs(batch_growth_updates(&line, m) - log(B / 32) / 672) < 1e-8);
    }
    assert_true(
        is_near(1 / batch_growth_updates(&square, 1), batch_growth_equal_updates(&square), 1e-5));
    assert_true(
        is_near(1 / batch_growth_updates(&root, 1), batch_growth_equal_updates(&root), 1e-5));
}

static void test_batch_growth_equal_updates_in_closed_form(void **state)
{
    (void)state;
    for (double first = 8; first <= 64; first *= 2)
        for (double last = 128; last <= 16384; last *= 2) {
            double D = last - first;
            const struct batch_growth root = {first, last, 0.5}, line = {first, last, 1};
            const struct batch_growth square = {first, last, 2};
            assert_true(is_near(batch_growth_equal_updates(&root),
                                D * D / 2 / (D - first * log(last / first)), 1e-6));
            assert_true(is_near(batch_growth_equal_updates(&line), D / log(last / first), 1e-6));
            assert_true(is_near(batch_growth_equal_updates(&square),
                                sqrt(first * D) / atan(sqrt(D / first)), 1e-6));
        }
}

/* A batch that stays has one speed-up, and both means have it. */
static void test_batch_growth_speedup_of_a_static_batch(void **state)
{
    (void)state;
    const struct scaling s = {SCALING_SYNC, 10, 0.8, 0.028};
    const struct batch_growth g = {512, 512, 1};
    struct scaling_best best = scaling_best(&s, 512);
    struct batch_growth_speedup mean = batch_growth_speedup(&g, &s);
    assert_true(is_near(mean.mean, best.S, 1e-9) && is_near(mean.harmonic, best.S, 1e-9));
    assert_true(is_near(mean.ratio, best.r, 1e-9));
    assert_true(is_near(batch_growth_equal_updates(&g), 512, 1e-9));
}

/* The harmonic mean is the speed-up of the run: the time of one worker for all steps, one after
 * another, over that of the best number of workers at each step. */
static void test_batch_growth_speedup_is_that_of_a_run(void **state)
{
    (void)state;
    const struct scaling s = {SCALING_SYNC, 10, 0.8, 0.028};
    const struct batch_growth g = {32, 704, 2};
    const double samples = 1e8;
    double seen = 0, alone = 0, together = 0;
    while (seen < samples) {
        double B = batch_growth_at(&g, seen / samples);
        struct scaling_best best = scaling_best(&s, B);
        alone += scaling_compute_total(&s, B);
        together += scaling_step(&s, B, best.N);
        seen += B;
    }
    assert_true(is_near(batch_growth_speedup(&g, &s).harmonic, alone / together, 1e-4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_growth_by_hand),
        cmocka_unit_test(test_batch_growth_updates_in_closed_form),
        cmocka_unit_test(test_batch_growth_equal_updates_in_closed_form),
        cmocka_unit_test(test_batch_growth_speedup_of_a_static_batch),
        cmocka_unit_test(test_batch_growth_speedup_is_that_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
