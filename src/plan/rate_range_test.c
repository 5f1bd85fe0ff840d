#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/rate_range.h"

#include <math.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* Four decades in four ratios of ten; and 1 to 5 in differences of 1. */
static void test_rate_sweep_grows(void **state)
{
    (void)state;
    static const double ratios[] = {1e-4, 1e-3, 1e-2, 0.1, 1};
    const struct rate_sweep by_ratio = {1e-4, 1, 5, false}, by_difference = {1, 5, 5, true};
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(is_near(rate_sweep_at(&by_ratio, i), ratios[i]));
        assert_true(is_near(rate_sweep_at(&by_difference, i), 1 + i));
    }
}

/* 100 steps: a time constant of 2 steps, so each mean keeps a half. Of 4, 2, 1 by hand: 4;
 * (4/4 + 2/2)/(3/4) = 8/3; (4/8 + 2/4 + 1/2)/(7/8) = 12/7. */
static void test_rate_smoothing_by_hand(void **state)
{
    (void)state;
    struct rate_smoothing s;
    rate_smoothing_begin(&s, 100);
    assert_true(is_near(rate_smoothing_add(&s, 4), 4));
    assert_true(is_near(rate_smoothing_add(&s, 2), 8.0 / 3));
    assert_true(is_near(rate_smoothing_add(&s, 1), 12.0 / 7));
    assert_true(is_near(s.least, 12.0 / 7));
    rate_smoothing_begin(&s, 50); /* too few to smooth */
    assert_true(rate_smoothing_add(&s, 4) == 4 && rate_smoothing_add(&s, 1) == 1);
}

static void test_rate_smoothing_diverges_above_four_times_the_least(void **state)
{
    (void)state;
    struct rate_smoothing s;
    rate_smoothing_begin(&s, 10);
    rate_smoothing_add(&s, 2);
    rate_smoothing_add(&s, 0.5);
    assert_false(rate_smoothing_diverged(&s, rate_smoothing_add(&s, 2)));
    assert_true(rate_smoothing_diverged(&s, rate_smoothing_add(&s, 2.01)));
    assert_true(rate_smoothing_diverged(&s, rate_smoothing_add(&s, NAN)));
}

/* A fall of 2: a tenth of it is made at 2.1, and 95 % at 0.4; the values are just past them. */
static void test_rate_range_of_a_fall(void **state)
{
    (void)state;
    static const double loss[] = {2.3, 2.11, 2.09, 1.5, 0.41, 0.39, 0.3, 0.35, 0.9, 4};
    struct rate_range range = rate_range_find(loss, 10);
    assert_true(range.found && !range.still_falls);
    assert_int_equal(range.low, 2);
    assert_int_equal(range.high, 5);
    assert_int_equal(range.least, 6);
    range = rate_range_find(loss, 7);
    assert_true(range.found && range.still_falls);
}

/* A loss that only rises, and one that moves by noise alone, have no range. */
static void test_rate_range_needs_a_fall(void **state)
{
    (void)state;
    static const double rises[] = {2.3, 2.4, 3, 9}, noise[] = {2.3, 2.29, 2.31, 2.2, 2.3};
    assert_false(rate_range_find(rises, 4).found);
    assert_false(rate_range_find(noise, 5).found);
    assert_false(rate_range_find(rises, 1).found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_sweep_grows),
        cmocka_unit_test(test_rate_smoothing_by_hand),
        cmocka_unit_test(test_rate_smoothing_diverges_above_four_times_the_least),
        cmocka_unit_test(test_rate_range_of_a_fall),
        cmocka_unit_test(test_rate_range_needs_a_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
