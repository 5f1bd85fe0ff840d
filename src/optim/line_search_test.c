#include "optim/line_search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct function {
    const char *name;
    double (*value)(double a), (*slope)(double a);
    double decrease, curvature; /* c1 and c2 */
};

/* Functions of Moré and Thuente 1994, §5: 5.1, 5.2, and 5.4 with the constants of Tables IV to VI,
 * which have their minimum behind a long flat stretch, or next to a sharp bend. */

static double value_1(double a)
{
    return -a / (a * a + 2);
}

static double slope_1(double a)
{
    return (a * a - 2) / ((a * a + 2) * (a * a + 2));
}

static double value_2(double a)
{
    double t = a + 0.004;
    return pow(t, 5) - 2 * pow(t, 4);
}

static double slope_2(double a)
{
    double t = a + 0.004;
    return 5 * pow(t, 4) - 8 * pow(t, 3);
}

static double gamma_of(double beta)
{
    return sqrt(1 + beta * beta) - beta;
}

static double yanai_value(double a, double b1, double b2)
{
    return gamma_of(b1) * sqrt((1 - a) * (1 - a) + b2 * b2) + gamma_of(b2) * sqrt(a * a + b1 * b1);
}

static double yanai_slope(double a, double b1, double b2)
{
    return gamma_of(b1) * (a - 1) / sqrt((1 - a) * (1 - a) + b2 * b2) +
           gamma_of(b2) * a / sqrt(a * a + b1 * b1);
}

static double value_4(double a)
{
    return yanai_value(a, 0.001, 0.001);
}

static double slope_4(double a)
{
    return yanai_slope(a, 0.001, 0.001);
}

static double value_5(double a)
{
    return yanai_value(a, 0.01, 0.001);
}

static double slope_5(double a)
{
    return yanai_slope(a, 0.01, 0.001);
}

static double value_6(double a)
{
    return yanai_value(a, 0.001, 0.01);
}

static double slope_6(double a)
{
    return yanai_slope(a, 0.001, 0.01);
}

/* Not finite beyond 2. */
static double wall_value(double a)
{
    return a < 2 ? -a - log(2 - a) / 4 : NAN;
}

static double wall_slope(double a)
{
    return a < 2 ? -1 + 0.25 / (2 - a) : NAN;
}

/* As a caller does: evaluate until the search ends. Returns the number of evaluations, or 0 where
 * the search fails. */
static int run_search(const struct function *f, double trial, double *step)
{
    struct line_search s;
    line_search_begin(&s, f->decrease, f->curvature, f->value(0), f->slope(0), trial);
    for (int n = 1;; n++) {
        enum line_verdict verdict = line_search_next(&s, f->value(s.trial), f->slope(s.trial));
        *step = s.trial;
        if (verdict == LINE_ACCEPT)
            return n;
        if (verdict == LINE_FAIL)
            return 0;
        assert_true(n < LINE_TRIES_MAX && s.trial > 0);
    }
}

/* From first steps of 10^-3 to 10^3, as in the paper, the accepted one meets both conditions. */
static void test_line_search_meets_the_strong_wolfe_conditions(void **state)
{
    (void)state;
    static const struct function functions[] = {
        {"5.1", value_1, slope_1, 0.001, 0.1}, {"5.2", value_2, slope_2, 0.1, 0.11},
        {"IV", value_4, slope_4, 0.001, 0.01}, {"V", value_5, slope_5, 0.001, 0.01},
        {"VI", value_6, slope_6, 0.001, 0.01}, {"wall", wall_value, wall_slope, 1e-4, 0.1},
    };
    static const double firsts[] = {1e-3, 1e-1, 10, 1e3};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
            const struct function *f = &functions[i];
            double a = 0, bound, noise = LINE_NOISE * fabs(f->value(0));
            int n = run_search(f, firsts[k], &a);
            if (n == 0)
                fail_msg("%s from %g: no step, the last was %g", f->name, firsts[k], a);
            bound = f->value(0) + f->decrease * a * f->slope(0) + noise;
            print_message("    %s from %g: %g after %d evaluations\n", f->name, firsts[k], a, n);
            assert_true(f->value(a) <= bound);
            assert_true(fabs(f->slope(a)) <= -f->curvature * f->slope(0));
        }
}

/* A parabola is its own cubic: after a step of 2, which is too long, the next one is the
 * minimum, at 0.75: φ = 2·(a − 0.75)² − 1.125. */
static void test_line_search_finds_the_minimum_of_a_parabola(void **state)
{
    (void)state;
    struct line_search s;
    line_search_begin(&s, 1e-4, 0.1, 0, -3, 2);
    assert_int_equal(line_search_next(&s, 2, 5), LINE_TRY);
    assert_true(fabs(s.trial - 0.75) < 1e-12);
    assert_int_equal(line_search_next(&s, -1.125, 0), LINE_ACCEPT);
}

/* Values that differ by rounding alone, 1 + 10^-9 for a smaller one, are equal: the slopes decide,
 * and they put the minimum at 2. */
static void test_line_search_believes_slopes_within_the_noise(void **state)
{
    (void)state;
    struct line_search s;
    line_search_begin(&s, 1e-4, 0.1, 1, -1e-9, 8);
    assert_int_equal(line_search_next(&s, 1 + 1e-9, 3e-9), LINE_TRY);
    assert_true(fabs(s.trial - 2) < 1e-12);
    assert_int_equal(line_search_next(&s, 1 + 1e-9, 1e-11), LINE_ACCEPT);
}

/* Nothing is found where the slope at 0 is wrong: φ only rises. The search ends. */
static void test_line_search_ends_without_a_step(void **state)
{
    (void)state;
    struct line_search s;
    int n = 0;
    line_search_begin(&s, 1e-4, 0.1, 1, -1, 1);
    while (line_search_next(&s, 1 + s.trial, 1) == LINE_TRY)
        n++;
    assert_int_equal(n + 1, LINE_TRIES_MAX);
    assert_false(s.low.value < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_search_meets_the_strong_wolfe_conditions),
        cmocka_unit_test(test_line_search_finds_the_minimum_of_a_parabola),
        cmocka_unit_test(test_line_search_believes_slopes_within_the_noise),
        cmocka_unit_test(test_line_search_ends_without_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
