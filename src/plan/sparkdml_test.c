#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/sparkdml.h"

#include <math.h>

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* The paper's net for MNIST (§3). */
static const double layers[] = {784, 480, 160, 10};

/* On four processes, log2 F = 2:
 *   K = 3 + 2·(4·2 + 2·3) = 31
 *   N_1 = 3·(784·4 + 10·4/4) = 9438
 *   N_2 = 4·2·(480·4/4 + 160·4/4) = 5120
 *   N_3 = 3·(160·4 + 480·4/4) + 3·(10·4 + 160·4/4) = 3960 */
static void test_sparkdml_of_four_processes_by_hand(void **state)
{
    (void)state;
    const struct sparkdml net = {layers, 4, 4, 1};
    struct sparkdml_volume v = sparkdml_volume(&net);
    assert_true(v.K == 31 && v.N_1 == 9438 && v.N_2 == 5120 && v.N_3 == 3960);
}

/* 100 examples: 3100 messages of 1 ms, and 100·18518 bytes at 1 µs. As printed, Eq. 4 would count
 * the bytes of one example for all of them. */
static void test_sparkdml_time_counts_every_example(void **state)
{
    (void)state;
    const struct sparkdml net = {layers, 4, 4, 100};
    const struct cost_line link = {.u = 1e-3, .v = 1e-6};
    assert_true(sparkdml_volume(&net).K == 3100);
    assert_true(is_near(sparkdml_time(&net, &link), 3.1 + 1.8518, 1e-12));
}

/* One process sends nothing; a net without hidden layers sends its inputs only. */
static void test_sparkdml_of_small_cases(void **state)
{
    (void)state;
    const struct sparkdml one = {layers, 4, 1, 100}, flat = {layers, 2, 4, 1};
    const struct cost_line link = {.u = 1, .v = 1};
    assert_true(sparkdml_time(&one, &link) == 0);
    struct sparkdml_volume v = sparkdml_volume(&flat);
    assert_true(v.K == 3 && v.N_1 == 3 * (784 * 4 + 480) && v.N_2 == 0 && v.N_3 == 0);
}

/* "With increase in the number of nodes there is a trade-off" (§2.3): messages and bytes grow. */
static void test_sparkdml_grows_with_processes(void **state)
{
    (void)state;
    double last = 0;
    for (double F = 2; F <= 88; F++) {
        const struct sparkdml net = {layers, 4, F, 1};
        const struct cost_line link = {.u = 1e-4, .v = 8e-9};
        double time = sparkdml_time(&net, &link);
        assert_true(time > last);
        last = time;
    }
}

/* 100 examples that take 31 ms each, in the case above: 3.1 s become 3.1/4 and 4.9518. */
static void test_sparkdml_speedup_by_hand(void **state)
{
    (void)state;
    const struct sparkdml net = {layers, 4, 4, 100}, one = {layers, 4, 1, 100};
    const struct cost_line link = {.u = 1e-3, .v = 1e-6};
    assert_true(is_near(sparkdml_speedup(&net, &link, 0.031), 3.1 / (0.775 + 4.9518), 1e-12));
    assert_true(sparkdml_speedup(&one, &link, 0.031) == 1);
    assert_int_equal(sparkdml_best(&net, &link, 0.031, 88), 1);
}

/* "The saturation point increases as we increase the model sizes", and with it the speed-up (§4).
 */
static void test_sparkdml_saturates_later_with_larger_nets(void **state)
{
    (void)state;
    const struct cost_line link = {.u = 1e-4, .v = 8e-9};
    size_t last = 1;
    double fastest = 0;
    for (double width = 100; width <= 102400; width *= 4) {
        const double b[] = {784, width, width, 10}, seconds = 1e-9 * width * (width + 794);
        const struct sparkdml net = {b, 4, 88, 1};
        size_t best = sparkdml_best(&net, &link, seconds, 88);
        double speedup = sparkdml_speedup(&net, &link, seconds);
        assert_true(best >= last && speedup > fastest);
        last = best;
        fastest = speedup;
    }
    assert_true(last > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparkdml_of_four_processes_by_hand),
        cmocka_unit_test(test_sparkdml_time_counts_every_example),
        cmocka_unit_test(test_sparkdml_of_small_cases),
        cmocka_unit_test(test_sparkdml_grows_with_processes),
        cmocka_unit_test(test_sparkdml_speedup_by_hand),
        cmocka_unit_test(test_sparkdml_saturates_later_with_larger_nets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
