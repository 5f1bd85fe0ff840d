#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "paceline/averaging.h"

#include <math.h>
#include <stdbool.h>

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* SparkNet §3.2: AlexNet to 45 % takes 55.6 hours alone, with C = 2 s, S = 20 s and τ = 50. The
 * paper prints no rounds. If three or five workers need a Kth of the steps each, they take 22.9 and
 * 14.5 hours within 10 %; so do 10 workers that lose half of theirs (12.8 hours: 384 rounds). */
static void test_averaging_speedup_of_alexnet(void **state)
{
    (void)state;
    const double alone = 55.6 * 3600 / 2, exchange = 20 / 2.0, tau = 50;
    assert_true(
        is_near(55.6 / pl_averaging_speedup(alone, tau, alone / tau / 3, exchange), 22.9, 0.1));
    assert_true(
        is_near(55.6 / pl_averaging_speedup(alone, tau, alone / tau / 5, exchange), 14.5, 0.1));
    assert_true(is_near(55.6 / pl_averaging_speedup(alone, tau, 384, exchange), 12.8, 0.1));
}

/* Five workers, as in Fig. 4: 5 times without an exchange, and once where it takes 0.8 steps. */
static void test_dividing_speedup_of_five(void **state)
{
    (void)state;
    assert_true(is_near(pl_dividing_speedup(5, 0), 5, 1e-12));
    assert_true(is_near(pl_dividing_speedup(5, 0.8), 1, 1e-12));
}

static void test_averaging_of_bad_numbers_is_nan(void **state)
{
    (void)state;
    assert_true(isnan(pl_averaging_speedup(0, 1, 1, 0)));
    assert_true(isnan(pl_averaging_speedup(1, -1, 1, 0)));
    assert_true(isnan(pl_averaging_speedup(1, 1, NAN, 0)));
    assert_true(isnan(pl_averaging_speedup(1, 1, 1, -1)));
    assert_true(isnan(pl_dividing_speedup(0.5, 0)) && isnan(pl_dividing_speedup(2, INFINITY)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_averaging_speedup_of_alexnet),
        cmocka_unit_test(test_dividing_speedup_of_five),
        cmocka_unit_test(test_averaging_of_bad_numbers_is_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
