#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/jitter.h"

#include <math.h>

enum { NODES = 9 };

static double cycle_of(size_t workers, size_t lanes, double tick)
{
    double step[NODES], jitter[NODES];
    for (size_t i = 0; i < NODES; i++) {
        step[i] = 2;
        jitter[i] = 0.4;
    }
    const struct round_cluster cluster = {.workers = workers, .step = step, .jitter = jitter};
    assert_true(jitter_is_on(&cluster));
    return jitter_cycle(&cluster, lanes, tick, INFINITY);
}

static void expect_near(double a, double b)
{
    if (fabs(a / b - 1) > 0.03)
        fail_msg("%.4f s, not %.4f", a, b);
}

/* Means of 60,000 cycles with other random numbers, played in Python: less than the longest of N
 * steps, 2 (1 + 0.4 (N - 1)/(N + 1)), since at a turn most workers are in the middle of a step. */
static void test_jitter_cycle_of_workers(void **state)
{
    (void)state;
    expect_near(cycle_of(1, 1, 0), 2);
    expect_near(cycle_of(2, 1, 0), 2.080);
    expect_near(cycle_of(4, 1, 0), 2.170);
    expect_near(cycle_of(8, 1, 0), 2.266);
}

/* Turns that take about a step themselves hide some of the waits, and longer ones all. */
static void test_jitter_cycle_of_lanes(void **state)
{
    (void)state;
    expect_near(cycle_of(3, 4, 0.4), 2.227);
    expect_near(cycle_of(3, 4, 0.5), 2.294);
    expect_near(cycle_of(3, 4, 0.8), 3.2);
}

/* Without jitter it is the slowest worker's step, or the turns; of 5 s, none waits beyond 4, and of
 * 3 to 7 s the rest is waited for at the next turn. */
static void test_jitter_cycle_of_steady_steps(void **state)
{
    (void)state;
    const double step[] = {0, 2, 5}, none[] = {0, 0, 0}, varied[] = {0, 0, 0.4};
    const struct round_cluster both = {.workers = 2, .step = step, .jitter = none};
    const struct round_cluster slow = {.workers = 1, .step = step + 1, .jitter = varied + 1};
    assert_true(fabs(jitter_cycle(&both, 1, 0, INFINITY) / 5 - 1) < 1e-9);
    assert_true(fabs(jitter_cycle(&both, 3, 2, INFINITY) / 6 - 1) < 1e-9);
    expect_near(jitter_cycle(&slow, 1, 0, 4), 2.857);
}

static void test_jitter_of_many_steps(void **state)
{
    (void)state;
    const double step[] = {0, 2}, jitter[] = {0, 0.5}, none[] = {0, 0};
    const struct round_cluster varied = {.workers = 1, .step = step, .jitter = jitter};
    const struct round_cluster even = {.workers = 1, .step = step, .jitter = none};
    double whole = jitter_steps(&varied, 1, 0, 10000);
    assert_true(fabs(whole / 20000 - 1) < 0.01);
    double parts = jitter_steps(&varied, 1, 0, 400) + jitter_steps(&varied, 1, 400, 9600);
    assert_true(fabs(whole - parts) < 1e-8);
    for (uint64_t k = 0; k < 100; k++)
        assert_true(fabs(jitter_steps(&varied, 1, k, 1) - 2) <= 1);
    assert_false(jitter_is_on(&even));
    assert_true(jitter_steps(&even, 1, 7, 3) == 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jitter_cycle_of_workers),
        cmocka_unit_test(test_jitter_cycle_of_lanes),
        cmocka_unit_test(test_jitter_cycle_of_steady_steps),
        cmocka_unit_test(test_jitter_of_many_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
