#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/jitter.h"

#include <math.h>

enum { NODES = 9 };

/* The maximum of N numbers that are uniform in 1 ± j is 1 + j (N - 1)/(N + 1) in the mean. */
static void test_jitter_longest_step(void **state)
{
    (void)state;
    double step[NODES], jitter[NODES];
    for (size_t i = 0; i < NODES; i++) {
        step[i] = 2;
        jitter[i] = 0.4;
    }
    for (size_t n = 1; n < NODES; n++) {
        const struct round_cluster cluster = {.workers = n, .step = step, .jitter = jitter};
        double want = 2 * (1 + 0.4 * ((double)n - 1) / ((double)n + 1));
        assert_true(jitter_is_on(&cluster));
        assert_true(fabs(jitter_longest(&cluster, INFINITY) / want - 1) < 0.04);
    }
    step[3] = 5; /* this one is always the longest */
    const struct round_cluster slow = {.workers = NODES - 1, .step = step, .jitter = jitter};
    assert_true(fabs(jitter_longest(&slow, INFINITY) / 5 - 1) < 0.04);
    /* Of 3 to 7 s uniformly, 4 s at most: 3.5 s for a quarter, and 4 s for the rest. */
    const double one_step[] = {0, 5};
    const struct round_cluster one = {.workers = 1, .step = one_step, .jitter = jitter};
    assert_true(fabs(jitter_longest(&one, 4) / 3.875 - 1) < 0.03);
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
        cmocka_unit_test(test_jitter_longest_step),
        cmocka_unit_test(test_jitter_of_many_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
