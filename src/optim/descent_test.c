/* Descent against minima that are computed in another way: by Cholesky's factors, by Newton's
 * method, or by hand. The functions are evaluated in double at the floats of x. */
#include "optim/descent.h"

#include "base/rng.h"
#include "base/status.h"
#include "softmax_regression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N_MAX = 64, SEED = 5 };

/* A function of x, its gradient into g; `own` is its data. */
typedef double function(const void *own, const double *x, double *g, size_t n);

struct trial {
    function *f;
    const void *own;
    size_t n;
    const struct direction_ops *ops;
    size_t history;
    double tolerance;
    int evaluations_max;
    /* How it went: */
    double x[N_MAX], first_norm, norm; /* of the gradient at the start, and at the end */
    int evaluations;
    enum descent_verdict verdict;
};

static double norm_of(const double *v, size_t n)
{
    return regression_norm(v, n);
}

/* f and its gradient at x; the gradient in floats into g. */
static double evaluate_at(const struct trial *t, const struct vec *x, struct vec *g, double *norm)
{
    double at[N_MAX], slope[N_MAX];
    for (size_t k = 0; k < t->n; k++)
        at[k] = (double)x->at[k];
    double value = t->f(t->own, at, slope, t->n);
    for (size_t k = 0; k < t->n; k++)
        g->at[k] = (float)slope[k];
    *norm = norm_of(slope, t->n);
    return value;
}

/* Minimise from t->x; restart at evaluation `restart` (0: never), as after a change of members. */
static void minimise_trial(struct trial *t, int restart)
{
    struct arena arena;
    struct descent d;
    struct vec x, g;
    arena_init(&arena);
    assert_int_equal(descent_init(&d, t->ops, t->history, t->tolerance, t->n, &arena), OK);
    assert_int_equal(vec_init(&x, &arena, t->n), OK);
    assert_int_equal(vec_init(&g, &arena, t->n), OK);
    for (size_t k = 0; k < t->n; k++)
        x.at[k] = (float)t->x[k];
    descent_begin(&d, &x);
    t->verdict = DESCENT_EVALUATE;
    for (t->evaluations = 0; t->evaluations < t->evaluations_max; t->evaluations++) {
        double norm, value = evaluate_at(t, &x, &g, &norm);
        if (t->evaluations == 0)
            t->first_norm = norm;
        if (restart > 0 && t->evaluations == restart) {
            descent_restart(&d, &x);
            assert_memory_equal(x.at, d.iterate.at, t->n * sizeof(float));
            continue;
        }
        t->verdict = descent_next(&d, value, &g, &x);
        if (t->verdict != DESCENT_EVALUATE)
            break;
    }
    evaluate_at(t, &d.iterate, &g, &t->norm);
    for (size_t k = 0; k < t->n; k++)
        t->x[k] = (double)d.iterate.at[k];
    arena_release(&arena);
}

static const struct direction_ops *const all_ops[] = {&direction_cg, &direction_lbfgs};

/* ---- Rosenbrock's valley, whose minimum is (1, 1) ---- */

static double rosenbrock_value(const void *own, const double *x, double *g, size_t n)
{
    (void)own, (void)n;
    double a = 1 - x[0], b = x[1] - x[0] * x[0];
    g[0] = -2 * a - 400 * x[0] * b;
    g[1] = 200 * b;
    return a * a + 100 * b * b;
}

static void test_descent_follows_rosenbrocks_valley(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct trial t = {.f = rosenbrock_value,
                          .n = 2,
                          .ops = all_ops[i],
                          .history = 5,
                          .tolerance = 1e-4,
                          .evaluations_max = 400,
                          .x = {-1.2, 1}};
        minimise_trial(&t, 0);
        print_message("    %s: %d evaluations\n", t.ops->name, t.evaluations);
        assert_int_equal(t.verdict, DESCENT_CONVERGED);
        assert_true(t.evaluations < 200);
        assert_true(fabs(t.x[0] - 1) < 1e-3 && fabs(t.x[1] - 1) < 1e-3);
    }
}

/* ---- least squares ---- */

enum { ROWS = 60, COLUMNS = 20 };

struct squares {
    double a[ROWS][COLUMNS], b[ROWS];
};

/* f = 1/(2 ROWS)·‖Ax − b‖² */
static double squares_value(const void *own, const double *x, double *g, size_t n)
{
    const struct squares *s = own;
    double sum = 0;
    memset(g, 0, n * sizeof *g);
    for (size_t i = 0; i < ROWS; i++) {
        double rest = -s->b[i];
        for (size_t k = 0; k < n; k++)
            rest += s->a[i][k] * x[k];
        sum += 0.5 * rest * rest / ROWS;
        for (size_t k = 0; k < n; k++)
            g[k] += rest * s->a[i][k] / ROWS;
    }
    return sum;
}

static void draw_squares(struct squares *s)
{
    uint64_t counter = 0;
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < COLUMNS; k++) /* columns of lengths from 1 to 3 */
            s->a[i][k] = (double)rng_normal(SEED, 1, counter++) * (1 + 2.0 * (double)k / COLUMNS);
        s->b[i] = (double)rng_normal(SEED, 1, counter++);
    }
}

/* Aᵀ·A·x = Aᵀ·b */
static void solve_squares(const struct squares *s, double *x)
{
    double h[COLUMNS * COLUMNS] = {0};
    memset(x, 0, COLUMNS * sizeof *x);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < COLUMNS; k++) {
            x[k] += s->a[i][k] * s->b[i];
            for (size_t j = 0; j < COLUMNS; j++)
                h[k * COLUMNS + j] += s->a[i][k] * s->a[i][j];
        }
    assert_true(cholesky_solve(h, x, COLUMNS));
}

static void expect_near(const struct trial *t, const double *golden, double most)
{
    double apart[N_MAX];
    for (size_t k = 0; k < t->n; k++)
        apart[k] = t->x[k] - golden[k];
    double off = norm_of(apart, t->n) / norm_of(golden, t->n);
    print_message("    %s: %d evaluations, gradient %.1e, x %.1e from the golden one\n",
                  t->ops->name, t->evaluations, t->norm / t->first_norm, off);
    assert_true(t->norm <= 1e-6 * t->first_norm);
    assert_true(off <= most);
}

static void test_descent_solves_least_squares_as_cholesky_does(void **state)
{
    (void)state;
    static struct squares s;
    double golden[COLUMNS];
    draw_squares(&s);
    solve_squares(&s, golden);
    for (size_t i = 0; i < 2; i++) {
        struct trial t = {.f = squares_value,
                          .own = &s,
                          .n = COLUMNS,
                          .ops = all_ops[i],
                          .history = 10,
                          .tolerance = 2e-7,
                          .evaluations_max = 400};
        minimise_trial(&t, 0);
        assert_int_equal(t.verdict, DESCENT_CONVERGED);
        expect_near(&t, golden, 1e-5);
    }
}

/* A restart, wherever it comes, changes the way and not the end. */
static void test_descent_restarts_at_the_iterate(void **state)
{
    (void)state;
    static struct squares s;
    double golden[COLUMNS];
    draw_squares(&s);
    solve_squares(&s, golden);
    for (int restart = 1; restart < 14; restart++) {
        struct trial t = {.f = squares_value,
                          .own = &s,
                          .n = COLUMNS,
                          .ops = all_ops[restart % 2],
                          .history = 10,
                          .tolerance = 2e-7,
                          .evaluations_max = 400};
        minimise_trial(&t, restart);
        assert_int_equal(t.verdict, DESCENT_CONVERGED);
        expect_near(&t, golden, 1e-5);
    }
}

/* ---- softmax regression with L2 decay, of weights and not of biases ---- */

enum { RECORDS = 90, FEATURES = 6, CLASSES = 4, WEIGHTS = CLASSES * (FEATURES + 1) };

#define DECAY 0.02f

/* In a flat vector: the weights, padding, the biases, padding. */
struct classification {
    struct regression r; /* without decay: descent_add_decay has it */
    const struct segments *table;
};

static size_t float_of(const struct segments *table, size_t weight)
{
    size_t first = table->at[0].len;
    return weight < first ? table->at[0].offset + weight : table->at[1].offset + weight - first;
}

static double classification_value(const void *own, const double *x, double *g, size_t n)
{
    const struct classification *c = own;
    double w[WEIGHTS], slope[WEIGHTS];
    float at[N_MAX] = {0}, dx[N_MAX] = {0};
    for (size_t k = 0; k < WEIGHTS; k++)
        w[k] = x[float_of(c->table, k)];
    double value = regression_evaluate(&c->r, w, slope, NULL);
    for (size_t k = 0; k < n; k++)
        at[k] = (float)x[k];
    for (size_t k = 0; k < WEIGHTS; k++)
        dx[float_of(c->table, k)] = (float)slope[k];
    struct vec flat = {at, n}, gradient = {dx, n};
    value += descent_add_decay(DECAY, c->table, &flat, &gradient);
    for (size_t k = 0; k < n; k++)
        g[k] = (double)dx[k];
    return value;
}

static void draw_records(float *x, uint32_t *label)
{
    for (size_t i = 0; i < RECORDS; i++) {
        label[i] = (uint32_t)(i % CLASSES);
        for (size_t f = 0; f < FEATURES; f++)
            x[i * FEATURES + f] =
                rng_normal(SEED, 2, i * FEATURES + f) + 0.7f * (f % CLASSES == label[i]);
    }
}

static void test_descent_fits_a_regression_as_newton_does(void **state)
{
    (void)state;
    static float x[RECORDS * FEATURES];
    static uint32_t label[RECORDS];
    double golden[WEIGHTS] = {0}, flat[N_MAX] = {0};
    struct arena arena;
    struct segments table = {0};
    struct shape w = {2, {CLASSES, FEATURES}}, b = {1, {CLASSES}};
    arena_init(&arena);
    draw_records(x, label);
    assert_non_null(segments_add(&table, &arena, "ip.0", &w, 1, 1));
    assert_non_null(segments_add(&table, &arena, "ip.1", &b, 2, 0));
    struct regression r = {RECORDS, FEATURES, CLASSES, x, label, (double)DECAY, 0};
    /* Biases that are all moved alike have the same loss. A decay that is next to nothing gives
     * Newton's a mean of 0, which ours keep from the start. */
    r.decay_bias = 1e-9;
    assert_true(regression_newton(&r, golden, 20) < 1e-12);
    for (size_t k = 0; k < WEIGHTS; k++)
        flat[float_of(&table, k)] = golden[k];
    for (size_t i = 0; i < 2; i++) {
        struct classification c = {{RECORDS, FEATURES, CLASSES, x, label, 0, 0}, &table};
        struct trial t = {.f = classification_value,
                          .own = &c,
                          .n = table.total,
                          .ops = all_ops[i],
                          .history = 10,
                          .tolerance = 1e-7,
                          .evaluations_max = 400};
        assert_true(t.n <= N_MAX);
        minimise_trial(&t, 0);
        assert_int_equal(t.verdict, DESCENT_CONVERGED);
        expect_near(&t, flat, 1e-5);
    }
    arena_release(&arena);
}

/* ---- by hand ---- */

/* With a decay of 0.5 and a decay_mult of 2 the gradient of the first segment grows by x, and f by
 * ½·x²; the second is frozen; the third does not decay. */
static void test_descent_adds_the_decay_of_each_segment(void **state)
{
    (void)state;
    struct arena arena;
    struct segments table = {0};
    struct shape one = {1, {1}};
    arena_init(&arena);
    assert_non_null(segments_add(&table, &arena, "a", &one, 1, 2));
    assert_non_null(segments_add(&table, &arena, "b", &one, 0, 1));
    assert_non_null(segments_add(&table, &arena, "c", &one, 1, 0));
    struct vec x, dx;
    assert_int_equal(vec_init(&x, &arena, table.total), OK);
    assert_int_equal(vec_init(&dx, &arena, table.total), OK);
    for (size_t i = 0; i < 3; i++) {
        x.at[i * SEGMENT_ALIGN] = 3;
        dx.at[i * SEGMENT_ALIGN] = 10;
    }
    assert_true(descent_add_decay(0.5f, &table, &x, &dx) == 4.5);
    assert_true(dx.at[0] == 13);
    assert_true(dx.at[SEGMENT_ALIGN] == 0);
    assert_true(dx.at[2 * SEGMENT_ALIGN] == 10);
    arena_release(&arena);
}

/* Two numbers: g = (3, 4) and g' = (4, −3) have β = (25 − 0)/25 = 1, and d = (−1, 2) becomes
 * −g' + d = (−5, 5). With g' = (3, 4)/2 it is (6.25 − 12.5)/25 < 0: d = −g'. */
static void test_cg_direction_by_hand(void **state)
{
    (void)state;
    struct arena arena;
    struct direction direction;
    arena_init(&arena);
    assert_int_equal(direction_init(&direction, &direction_cg, 1, 2, &arena), OK);
    float before[] = {3, 4}, after[] = {4, -3}, half[] = {1.5f, 2}, d[] = {-1, 2}, none[] = {0, 0};
    struct vec point = {none, 2}, g = {before, 2}, g1 = {after, 2}, g2 = {half, 2}, way = {d, 2};
    struct descent_step step = {&point, &point, &g, &g1};
    direction_cg.next(&direction, &step, &way);
    assert_true(d[0] == -5 && d[1] == 5);
    step.gradient_after = &g2;
    direction_cg.next(&direction, &step, &way);
    assert_true(d[0] == -1.5f && d[1] == -2);
    arena_release(&arena);
}

/* BFGS with the whole matrix (Nocedal and Wright, Eq. 6.17), from H = γ·I over the last m pairs.
 * The two-loop recursion computes the same product. */
static void dense_direction(double s[][3], double y[][3], size_t pairs, const double *g, double *d)
{
    double h[3][3] = {{0}}, last = 0, square = 0;
    for (size_t k = 0; k < 3; k++) {
        last += s[pairs - 1][k] * y[pairs - 1][k];
        square += y[pairs - 1][k] * y[pairs - 1][k];
    }
    for (size_t k = 0; k < 3; k++)
        h[k][k] = last / square;
    for (size_t p = 0; p < pairs; p++) {
        double rho = 0, v[3][3], hv[3][3], next[3][3];
        for (size_t k = 0; k < 3; k++)
            rho += s[p][k] * y[p][k];
        rho = 1 / rho;
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++)
                v[i][j] = (i == j) - rho * y[p][i] * s[p][j]; /* I − ρ·y·sᵀ */
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++) {
                hv[i][j] = 0;
                for (size_t k = 0; k < 3; k++)
                    hv[i][j] += h[i][k] * v[k][j];
            }
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++) {
                next[i][j] = rho * s[p][i] * s[p][j];
                for (size_t k = 0; k < 3; k++)
                    next[i][j] += v[k][i] * hv[k][j];
            }
        memcpy(h, next, sizeof h);
    }
    for (size_t i = 0; i < 3; i++) {
        d[i] = 0;
        for (size_t k = 0; k < 3; k++)
            d[i] -= h[i][k] * g[k];
    }
}

enum { PAIRS = 5, HISTORY = 3 };

/* Five pairs, of which three are kept. Points and gradients are small integers, so pairs are exact:
 * y = (2, 3, 5)·s. */
static void test_lbfgs_direction_is_that_of_the_dense_matrix(void **state)
{
    (void)state;
    static const float points[PAIRS + 1][3] = {{0, 0, 0}, {1, 0, 2},  {3, -1, 2},
                                               {2, 2, 1}, {4, 1, -3}, {5, 4, 0}};
    double s[PAIRS][3], y[PAIRS][3];
    struct arena arena;
    struct direction direction;
    arena_init(&arena);
    assert_int_equal(direction_init(&direction, &direction_lbfgs, HISTORY, 3, &arena), OK);
    for (size_t p = 0; p < PAIRS; p++) {
        float before[3], after[3], g[3], h[3], d[3] = {0};
        double slope[3], golden[3];
        for (size_t k = 0; k < 3; k++) {
            float factor = k == 0 ? 2 : k == 1 ? 3 : 5;
            before[k] = points[p][k];
            after[k] = points[p + 1][k];
            g[k] = factor * before[k] + 1;
            h[k] = factor * after[k] + 1;
            s[p][k] = (double)(after[k] - before[k]);
            y[p][k] = (double)(h[k] - g[k]);
            slope[k] = (double)h[k];
        }
        struct vec point = {before, 3}, next = {after, 3}, g1 = {g, 3}, g2 = {h, 3}, way = {d, 3};
        direction_lbfgs.next(&direction, &(struct descent_step){&point, &next, &g1, &g2}, &way);
        size_t first = p + 1 > HISTORY ? p + 1 - HISTORY : 0;
        dense_direction(s + first, y + first, p + 1 - first, slope, golden);
        for (size_t k = 0; k < 3; k++)
            assert_true(fabs((double)d[k] - golden[k]) < 1e-5 * norm_of(golden, 3));
    }
    arena_release(&arena);
}

/* The loss at the start is not a number. */
static double nan_value(const void *own, const double *x, double *g, size_t n)
{
    (void)own, (void)x;
    memset(g, 0, n * sizeof *g);
    return NAN;
}

/* The gradient has the wrong sign: nothing lowers the loss, which the descent notices. */
static double uphill_value(const void *own, const double *x, double *g, size_t n)
{
    (void)own, (void)n;
    g[0] = 1;
    return 1 - x[0];
}

static void test_descent_ends_where_it_cannot_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct trial t = {.f = nan_value,
                          .n = 1,
                          .ops = all_ops[i],
                          .history = 1,
                          .evaluations_max = 100,
                          .x = {2}};
        minimise_trial(&t, 0);
        assert_int_equal(t.verdict, DESCENT_DIVERGED);
        t.f = uphill_value;
        t.x[0] = 2;
        minimise_trial(&t, 0);
        assert_int_equal(t.verdict, DESCENT_STUCK);
        assert_true(t.x[0] == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descent_follows_rosenbrocks_valley),
        cmocka_unit_test(test_descent_solves_least_squares_as_cholesky_does),
        cmocka_unit_test(test_descent_restarts_at_the_iterate),
        cmocka_unit_test(test_descent_fits_a_regression_as_newton_does),
        cmocka_unit_test(test_descent_adds_the_decay_of_each_segment),
        cmocka_unit_test(test_cg_direction_by_hand),
        cmocka_unit_test(test_lbfgs_direction_is_that_of_the_dense_matrix),
        cmocka_unit_test(test_descent_ends_where_it_cannot_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
