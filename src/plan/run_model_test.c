#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/run_model.h"

#include <math.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Enough rounds of N workers, whose steps of b records take 4 ms and 1 ms a record, and a
 * round `rest_s` beyond. */
static void add_rounds(struct run_model *m, size_t N, double b, double rest_s)
{
    for (int i = 0; i < RUN_MODEL_SKIPS + RUN_MODEL_ROUNDS; i++)
        run_model_add(m, &(struct run_round){N, b, 0.004 + 0.001 * b, rest_s});
}

static struct follow_batch fit_model(const struct run_model *m)
{
    struct follow_batch f = {.model.kind = SCALING_SYNC, .least = 1, .most = 8};
    run_model_fit(m, &f);
    return f;
}

/* One worker alone: a step of 32 takes 36 ms, and its round 1 ms more. One b has no line. */
static void test_run_model_knows_one_worker(void **state)
{
    (void)state;
    struct run_model m = {0};
    assert_int_equal(run_model_reach(&m), 0);
    add_rounds(&m, 1, 32, 0.001);
    struct follow_batch f = fit_model(&m);
    assert_int_equal(run_model_reach(&m), 1);
    assert_true(is_near(f.model.gamma, 32 / 0.036) && is_near(f.fixed_s, 0.001));
    assert_true(f.model.alpha == 0 && f.model.beta == 0); /* so that two are tried */
    assert_int_equal(follow_batch_workers(&f, 32, 1e9, 1), 8);
}

/* Two take 12 ms to exchange, and four 16: 8 ms and 2 ms a worker. */
static void test_run_model_fits_lines(void **state)
{
    (void)state;
    struct run_model m = {0};
    add_rounds(&m, 1, 64, 0.001);
    add_rounds(&m, 2, 32, 0.013);
    struct follow_batch f = fit_model(&m);
    assert_true(is_near(f.model.gamma, 1000) && is_near(f.fixed_s, 0.005));
    assert_true(is_near(f.model.alpha, 0.012) && f.model.beta == 0);
    add_rounds(&m, 4, 16, 0.017);
    f = fit_model(&m);
    assert_int_equal(run_model_reach(&m), 4);
    assert_true(is_near(f.model.gamma, 1000) && is_near(f.fixed_s, 0.005));
    assert_true(is_near(f.model.alpha, 0.008) && is_near(f.model.beta, 0.002));
    assert_true(is_near(follow_batch_step(&f, 64, 4), 0.004 + 0.016 + 0.017));
}

/* The newest rounds count, and fewer than half of them may be odd. */
static void test_run_model_takes_medians(void **state)
{
    (void)state;
    struct run_model m = {0};
    add_rounds(&m, 2, 34, 0.5);
    for (int i = 0; i < RUN_MODEL_ROUNDS; i++) {
        bool odd = i < RUN_MODEL_ROUNDS / 2;
        run_model_add(&m, &(struct run_round){2, 32, odd ? 9 : 0.032, odd ? 7 : 0.012});
    }
    struct follow_batch f = fit_model(&m);
    assert_true(is_near(f.model.alpha, 0.012));
    assert_true(is_near(f.model.gamma, 1000)); /* 34 is of the same class */
}

static void test_run_model_settles(void **state)
{
    (void)state;
    struct run_model m = {0};
    const struct run_round two = {2, 16, 0.02, 0.01}, three = {3, 16, 0.02, 0.01};
    for (int i = 1; i <= 20; i++) {
        run_model_add(&m, &two);
        assert_int_equal(run_model_is_settled(&m, 2), i >= 11);
        assert_false(run_model_is_settled(&m, 3));
    }
    run_model_add(&m, &three); /* the first rounds of three do not count */
    assert_false(run_model_is_settled(&m, 2));
    assert_int_equal(run_model_reach(&m), 2);
}

/* Times that do not depend on the batch, or on the number of workers. */
static void test_run_model_without_slopes(void **state)
{
    (void)state;
    struct run_model m = {0};
    for (size_t N = 1; N <= 4; N++)
        for (int i = 0; i < 12; i++)
            run_model_add(&m, &(struct run_round){N, 64 / (double)N, 0.03, 0});
    struct follow_batch f = fit_model(&m);
    assert_true(is_near(f.fixed_s, 0.03) && f.model.gamma > 1e9);
    assert_true(f.model.alpha < 1e-8 && f.model.beta < 1e-8);
    f.gain = 0.05;
    assert_int_equal(follow_batch_workers(&f, 64, 1e9, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_model_knows_one_worker),
        cmocka_unit_test(test_run_model_fits_lines),
        cmocka_unit_test(test_run_model_takes_medians),
        cmocka_unit_test(test_run_model_settles),
        cmocka_unit_test(test_run_model_without_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
