/* Golden rates: Caffe's formulas worked in 50-digit decimal arithmetic on the float values of the
 * fields, rounded once to float. */
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static Caffe__SolverParameter solver_of(const char *policy, float base_lr)
{
    Caffe__SolverParameter solver;
    caffe__solver_parameter__init(&solver);
    solver.lr_policy = (char *)(uintptr_t)policy;
    solver.has_base_lr = 1;
    solver.base_lr = base_lr;
    return solver;
}

static void set_gamma(Caffe__SolverParameter *solver, float gamma)
{
    solver->has_gamma = 1;
    solver->gamma = gamma;
}

static void set_power(Caffe__SolverParameter *solver, float power)
{
    solver->has_power = 1;
    solver->power = power;
}

static void set_stepsize(Caffe__SolverParameter *solver, int32_t stepsize)
{
    solver->has_stepsize = 1;
    solver->stepsize = stepsize;
}

static void set_max_iter(Caffe__SolverParameter *solver, int32_t max_iter)
{
    solver->has_max_iter = 1;
    solver->max_iter = max_iter;
}

struct point {
    double t;
    float rate;
};

static void check_points(const Caffe__SolverParameter *solver, const struct point *point, size_t n)
{
    struct err err;
    assert_int_equal(schedule_check(solver, &err), OK);
    for (size_t i = 0; i < n; i++) {
        float rate = schedule_rate(solver, point[i].t);
        if (rate != point[i].rate)
            fail_msg("%s at %g: %.9g, not %.9g", solver->lr_policy, point[i].t, (double)rate,
                     (double)point[i].rate);
    }
}

#define CHECK_POINTS(solver, ...)                                        \
    do {                                                                 \
        const struct point points[] = {__VA_ARGS__};                     \
        check_points(&(solver), points, sizeof points / sizeof *points); \
    } while (0)

static void test_fixed_never_changes(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("fixed", 0.01f);
    CHECK_POINTS(solver, {0, 0.01f}, {1, 0.01f}, {1e9, 0.01f});
}

/* The schedule of Caffe's reference ImageNet nets. */
static void test_step_falls_tenfold_each_hundred_thousand(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("step", 0.01f);
    set_gamma(&solver, 0.1f);
    set_stepsize(&solver, 100000);
    CHECK_POINTS(solver, {0, 0.01f}, {99999, 0.01f}, {100000, 0.00100000005f},
                 {199999, 0.00100000005f}, {200000, 9.99999975e-05f}, {450000, 9.99999997e-07f});
}

static void test_exp_falls_at_each_step_and_within(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("exp", 0.1f);
    set_gamma(&solver, 0.99f);
    CHECK_POINTS(solver, {0, 0.1f}, {1, 0.0989999995f}, {2.5, 0.0975187197f}, {10, 0.0904382169f},
                 {1000, 4.31716626e-06f});
}

/* The schedule of Caffe's LeNet. */
static void test_inv_falls_as_in_lenet(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("inv", 0.01f);
    set_gamma(&solver, 0.0001f);
    set_power(&solver, 0.75f);
    CHECK_POINTS(solver, {0, 0.01f}, {100, 0.00992565043f}, {500, 0.00964068808f},
                 {9900, 0.00596843101f}, {10000, 0.0059460355f});
}

static void test_multistep_falls_at_the_steps_named(void **state)
{
    (void)state;
    int32_t stepvalue[] = {5000, 7000, 8000};
    Caffe__SolverParameter solver = solver_of("multistep", 0.01f);
    set_gamma(&solver, 0.9f);
    solver.n_stepvalue = 3;
    solver.stepvalue = stepvalue;
    CHECK_POINTS(solver, {0, 0.01f}, {4999, 0.01f}, {5000, 0.00899999961f}, {6999, 0.00899999961f},
                 {7000, 0.00809999928f}, {7999.5, 0.00809999928f}, {8000, 0.00728999916f},
                 {90000, 0.00728999916f});
}

static void test_poly_ends_at_zero_and_stays_there(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("poly", 0.2f);
    set_power(&solver, 0.5f);
    set_max_iter(&solver, 10000);
    CHECK_POINTS(solver, {0, 0.2f}, {1, 0.199990004f}, {2500, 0.173205078f}, {9999, 0.00200000009f},
                 {10000, 0}, {12000, 0});
}

static void expect_refusal(const Caffe__SolverParameter *solver, const char *word,
                           const char *other)
{
    struct err err = {0};
    assert_int_equal(schedule_check(solver, &err), ERR_INPUT);
    assert_int_equal(err.status, ERR_INPUT);
    if (!strstr(err.text, word) || !strstr(err.text, other))
        fail_msg("\"%s\" does not speak of %s and %s", err.text, word, other);
    assert_int_equal(schedule_check(solver, NULL), ERR_INPUT);
}

/* Elastic §6.2, experiment 5: from 0.01 to the 0.04 of Table 6.5 for a batch of 4096, with twice
 * the batch's power 2, over 50 epochs: 0.01 + 0.03·(t/50)⁴. The poly-decay is poly with power 4. */
static void test_polygrow_and_its_decay_are_elastics(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("polygrow", 0.01f);
    set_power(&solver, 4);
    set_max_iter(&solver, 50);
    expect_refusal(&solver, "solver.end_lr", "polygrow");
    solver.has_end_lr = 1;
    solver.end_lr = 0.04f;
    CHECK_POINTS(solver, {0, 0.01f}, {10, 0.010048f}, {25, 0.011875f}, {40, 0.022288f}, {50, 0.04f},
                 {51, 0.04f});
    solver = solver_of("poly", 0.01f);
    set_power(&solver, 4);
    set_max_iter(&solver, 50);
    CHECK_POINTS(solver, {0, 0.01f}, {25, 0.000625f}, {40, 0.000016f}, {50, 0});
    solver.has_end_lr = 1;
    solver.end_lr = -1;
    assert_int_equal(schedule_check(&solver, NULL), OK); /* poly does not read it */
    solver.lr_policy = (char *)"polygrow";
    expect_refusal(&solver, "solver.end_lr", "-1");
}

/* 2.5 epochs, as in Table 6.5, in a line from a quarter; in front of any policy. */
static void test_warm_up_rises_to_the_policys_rate(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("fixed", 1);
    solver.warmup = 2.5f;
    solver.warmup_lr = 0.25f;
    CHECK_POINTS(solver, {0, 0.25f}, {0.5, 0.4f}, {1, 0.55f}, {2.4, 0.97f}, {2.5, 1}, {9, 1});
    solver = solver_of("step", 0.8f); /* 0.8, 0.4, 0.2, from 0 within four steps */
    set_gamma(&solver, 0.5f);
    set_stepsize(&solver, 2);
    solver.warmup = 4;
    CHECK_POINTS(solver, {0, 0}, {1, 0.2f}, {2, 0.2f}, {3, 0.3f}, {4, 0.2f}, {6, 0.1f});
    solver.warmup = -1;
    expect_refusal(&solver, "solver.warmup", "-1");
    solver.warmup = 0;
    solver.warmup_lr = 0.1f;
    expect_refusal(&solver, "solver.warmup", "is missing");
    solver.warmup_lr = NAN;
    expect_refusal(&solver, "solver.warmup_lr", "nan");
}

/* Minus gamma in the exponent: with a positive gamma the rate rises, as in Caffe. */
static void test_sigmoid_passes_half_at_stepsize(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("sigmoid", 0.05f);
    set_gamma(&solver, 0.002f);
    set_stepsize(&solver, 5000);
    CHECK_POINTS(solver, {0, 2.26989232e-06f}, {4000, 0.0059601455f}, {5000, 0.0250000004f},
                 {6000, 0.0440398566f}, {10000, 0.049997732f});
}

static void test_epochs_may_be_fractions(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("step", 1.0f);
    set_gamma(&solver, 0.5f);
    set_stepsize(&solver, 2);
    CHECK_POINTS(solver, {0, 1}, {1.999, 1}, {2, 0.5f}, {3.75, 0.5f}, {4.01, 0.25f});
}

/* base_lr / (1 + exp(-gamma (t - stepsize))): with gamma < 0 it falls. exp(2) = 7.3890561. */
static void test_sigmoid_falls_with_a_negative_gamma(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("sigmoid", 1);
    set_gamma(&solver, -0.5f);
    set_stepsize(&solver, 4);
    assert_int_equal(schedule_check(&solver, NULL), OK);
    assert_true(fabsf(schedule_rate(&solver, 0) - 0.88079708f) < 1e-6f);
    assert_true(schedule_rate(&solver, 4) == 0.5f);
    assert_true(fabsf(schedule_rate(&solver, 8) - 0.11920292f) < 1e-6f);
    set_gamma(&solver, -INFINITY);
    expect_refusal(&solver, "solver.gamma", "-inf");
    solver = solver_of("exp", 1);
    set_gamma(&solver, -0.5f);
    expect_refusal(&solver, "solver.gamma", "-0.5");
}

static void test_schedule_unknown_policy_lists_known_ones(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("cosine", 0.1f);
    expect_refusal(&solver, "\"cosine\"",
                   "fixed, step, exp, inv, multistep, poly, polygrow, sigmoid");
    solver.lr_policy = NULL;
    expect_refusal(&solver, "lr_policy is not set", "sigmoid");
}

static void test_a_field_that_is_missing_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *first, *second; /* needed fields, in the order they are asked for */
    } need[] = {
        {"step", "gamma", "stepsize"}, {"exp", "gamma", NULL},
        {"inv", "gamma", "power"},     {"multistep", "gamma", "stepvalue"},
        {"poly", "power", "max_iter"}, {"sigmoid", "gamma", "stepsize"},
    };
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        Caffe__SolverParameter solver = solver_of(need[i].policy, 0.1f);
        solver.has_base_lr = 0;
        expect_refusal(&solver, "solver.base_lr", need[i].policy);
        solver.has_base_lr = 1;
        expect_refusal(&solver, need[i].first, need[i].policy);
        if (strcmp(need[i].first, "gamma") == 0)
            set_gamma(&solver, 0.5f);
        else
            set_power(&solver, 0.5f);
        if (need[i].second)
            expect_refusal(&solver, need[i].second, need[i].policy);
        else
            assert_int_equal(schedule_check(&solver, NULL), OK);
    }
}

static void test_a_value_out_of_range_is_named(void **state)
{
    (void)state;
    Caffe__SolverParameter solver = solver_of("fixed", -1.0f);
    expect_refusal(&solver, "solver.base_lr", "-1");
    solver = solver_of("fixed", NAN);
    expect_refusal(&solver, "solver.base_lr", "nan");

    solver = solver_of("step", 0.1f);
    set_gamma(&solver, INFINITY);
    set_stepsize(&solver, 0);
    expect_refusal(&solver, "solver.gamma", "inf");
    set_gamma(&solver, 0.1f);
    expect_refusal(&solver, "solver.stepsize", "0");

    solver = solver_of("poly", 0.1f);
    set_power(&solver, 1);
    set_max_iter(&solver, -5);
    expect_refusal(&solver, "solver.max_iter", "-5");

    int32_t falling[] = {100, 100}, negative[] = {-3, 1};
    solver = solver_of("multistep", 0.1f);
    set_gamma(&solver, 0.1f);
    solver.n_stepvalue = 2;
    solver.stepvalue = falling;
    expect_refusal(&solver, "solver.stepvalue", "100 after 100");
    solver.stepvalue = negative;
    expect_refusal(&solver, "solver.stepvalue", "-3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_never_changes),
        cmocka_unit_test(test_step_falls_tenfold_each_hundred_thousand),
        cmocka_unit_test(test_exp_falls_at_each_step_and_within),
        cmocka_unit_test(test_inv_falls_as_in_lenet),
        cmocka_unit_test(test_multistep_falls_at_the_steps_named),
        cmocka_unit_test(test_poly_ends_at_zero_and_stays_there),
        cmocka_unit_test(test_polygrow_and_its_decay_are_elastics),
        cmocka_unit_test(test_warm_up_rises_to_the_policys_rate),
        cmocka_unit_test(test_sigmoid_passes_half_at_stepsize),
        cmocka_unit_test(test_sigmoid_falls_with_a_negative_gamma),
        cmocka_unit_test(test_epochs_may_be_fractions),
        cmocka_unit_test(test_schedule_unknown_policy_lists_known_ones),
        cmocka_unit_test(test_a_field_that_is_missing_is_named),
        cmocka_unit_test(test_a_value_out_of_range_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
