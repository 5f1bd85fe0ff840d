#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "coll/cost_fit.h"

#include <math.h>

enum { MIB = 1024 * 1024 };

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* 100 µs and 1 GbE; each size five times, one of them held up. */
static void test_cost_fit_line_through_noise(void **state)
{
    (void)state;
    struct cost_probe probe[40];
    size_t n = 0;
    for (size_t k = 0; k < 8; k++)
        for (size_t i = 0; i < 5; i++) {
            double bytes = (double)((size_t)64 << (2 * k));
            double wobble = 1 + 0.02 * ((double)rng_uniform(3, k, i) - 0.5);
            probe[n++] = (struct cost_probe){bytes, (1e-4 + 8e-9 * bytes) * wobble};
        }
    for (size_t k = 0; k < 8; k++)
        probe[5 * k + k % 5].seconds += 0.2;
    struct cost_line line;
    struct err err;
    assert_int_equal(cost_fit_line(probe, n, &line, &err), OK);
    assert_true(is_near(line.u, 1e-4, 0.01) && is_near(line.v, 8e-9, 0.01) && line.residual < 0.01);
}

/* Two sizes make an exact line: (0, 2), (10, 5) → 2 + 0.3·b. An even number of repeats: the middle
 * of the middle two. */
static void test_cost_fit_lines_by_hand(void **state)
{
    (void)state;
    struct cost_probe exact[] = {{10, 4}, {0, 2}, {10, 6}}, falling[] = {{1, 1}, {2, 0.5}};
    struct cost_probe below[] = {{1, 1}, {2, 4}};
    struct cost_line line;
    assert_int_equal(cost_fit_line(exact, 3, &line, NULL), OK);
    assert_true(is_near(line.u, 2, 1e-12) && is_near(line.v, 0.3, 1e-12) && line.residual < 1e-12);
    /* Longer messages that take less: min (u - 1)² + (2u - 1)², u = 3/5. */
    assert_int_equal(cost_fit_line(falling, 2, &line, NULL), OK);
    assert_true(is_near(line.u, 0.6, 1e-12) && line.v == 0 &&
                is_near(line.residual, sqrt(0.1), 1e-9));
    /* Latency below 0: min (v - 1)² + (v/2 - 1)², v = 1.5/1.25. */
    assert_int_equal(cost_fit_line(below, 2, &line, NULL), OK);
    assert_true(line.u == 0 && is_near(line.v, 1.2, 1e-12));
}

static void test_cost_fit_reports_what_is_no_line(void **state)
{
    (void)state;
    struct cost_probe one_size[] = {{8, 1}, {8, 2}}, no_time[] = {{8, 1}, {9, 0}};
    struct cost_probe no_size[] = {{8, 1}, {(double)NAN, 1}};
    struct cost_line line = {1, 2, 3};
    struct err err;
    assert_int_equal(cost_fit_line(one_size, 2, &line, &err), ERR_INPUT);
    assert_string_equal(err.text, "2 probes of one size make no line");
    assert_int_equal(cost_fit_line(no_time, 2, &line, &err), ERR_INPUT);
    assert_string_equal(err.text, "probe 1: 0 is no time");
    assert_int_equal(cost_fit_line(no_size, 2, &line, &err), ERR_INPUT);
    assert_int_equal(cost_fit_line(NULL, 0, &line, &err), ERR_INPUT);
    assert_true(line.u == 1 && line.v == 2 && line.residual == 3);
}

/* Σ log² over the paper's nine figures, written out again. */
static double misfit_of(const double x[4])
{
    static const double time[9] = {0.95, 0.93, 0.99, 0.154, 0.184, 2.4, 0.356, 0.447, 17.9};
    static const double length[3] = {5.2, 5.6, 7.8};
    double u = x[0], v = x[1], z = x[2], g = x[3], sum = 0;
    for (int i = 0; i < 9; i++) {
        double b = i < 3 ? 6e8 : 4 * pow(10, length[i % 3]);
        double stage = u + b * v + b * z / 10 + b * g / 20;
        double t = i < 3 ? stage : 5 * stage;
        if (i >= 6)
            t = 5 * (u + b * (v + 2 * z + g)) + b / (4 * MIB) * u + b * (v + 2 * z);
        sum += log(t / time[i]) * log(t / time[i]);
    }
    return sum;
}

/* The tables are met within 20 % (root mean square). The model does not explain two effects: short
 * vectors cost a third more than predicted with reduce-broadcast (the model has no start-up cost of
 * a job) and a third less with the butterfly; one latency has to serve both. */
static void test_cost_fit_papers_tables(void **state)
{
    (void)state;
    const struct cost_paper paper = cost_fit_paper(), again = cost_fit_paper();
    const struct cost_model *m = &paper.model;
    double x[4] = {m->u, m->v, m->z, m->g}, best = misfit_of(x);
    assert_memory_equal(m, &again.model, sizeof *m);
    assert_true(is_near(9 * paper.residual * paper.residual, best, 1e-9) && paper.residual < 0.197);
    assert_true(is_near(m->u, 0.0405, 0.01) && is_near(m->v, 0.975e-9, 0.01));
    assert_true(is_near(m->z, 4.90e-9, 0.01) && is_near(m->g, 2.02e-9, 0.01));
    for (size_t i = 0; i < COST_PAPER_FIGURES; i++) {
        const struct cost_figure *f = &paper.figure[i];
        bool is_short = f->floats < 1e6;
        double off = fabs(log(f->fitted / f->published));
        assert_true(off < (is_short ? 0.34 : 0.19));
    }
    for (uint64_t i = 0; i < 2000; i++) { /* nothing near is better */
        double y[4];
        for (uint64_t k = 0; k < 4; k++)
            y[k] = x[k] * exp(0.5 * (double)rng_normal(5, i, k));
        assert_true(misfit_of(y) > best - 1e-6);
    }
}

/* §4.3.2: 7 times at 1e7 floats is met, and 9 times at 1.5e8 within a sixth; that it stays at 7 up
 * to 1e8 is not: nothing here bends. Nor is the split of the gain, 65 % by the algorithm alone: in
 * the equations a serial butterfly saves the broadcast and nothing else, a quarter. */
static void test_cost_fit_speed_up(void **state)
{
    (void)state;
    const struct cost_model m = cost_fit_paper().model;
    double tree = cost_allreduce(COLL_TREE, &m, 32, 4e7, 4 * MIB);
    assert_true(is_near(tree / cost_allreduce(COLL_BUTTERFLY, &m, 32, 4e7, 4 * MIB), 7, 0.02));
    tree = cost_allreduce(COLL_TREE, &m, 32, 6e8, 4 * MIB);
    double butterfly = cost_allreduce(COLL_BUTTERFLY, &m, 32, 6e8, 4 * MIB);
    assert_true(is_near(tree / butterfly, 9, 1 / 6.0));
    struct cost_model serial = m;
    serial.cores = 1;
    double algorithm = tree - cost_allreduce(COLL_BUTTERFLY, &serial, 32, 6e8, 4 * MIB);
    assert_true(is_near(algorithm / (tree - butterfly), 0.267, 0.01));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_fit_line_through_noise),
        cmocka_unit_test(test_cost_fit_lines_by_hand),
        cmocka_unit_test(test_cost_fit_reports_what_is_no_line),
        cmocka_unit_test(test_cost_fit_papers_tables),
        cmocka_unit_test(test_cost_fit_speed_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
