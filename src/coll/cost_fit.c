#include "coll/cost_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a link ---- */

static int by_size_then_time(const void *left, const void *right)
{
    const struct cost_probe *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* Of the sorted repeats of one size. */
static double median_of(const struct cost_probe *probe, size_t n)
{
    return n % 2 ? probe[n / 2].seconds : (probe[n / 2 - 1].seconds + probe[n / 2].seconds) / 2.0;
}

size_t cost_fit_medians(struct cost_probe *probe, size_t n)
{
    size_t sizes = 0;
    if (n > 0)
        qsort(probe, n, sizeof *probe, by_size_then_time);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && probe[to].bytes == probe[from].bytes; to++)
            ;
        probe[sizes++] = (struct cost_probe){probe[from].bytes, median_of(probe + from, to - from)};
    }
    return sizes;
}

/* min Σ (u/t + v·b/t - 1)² over u, v ≥ 0: the normal equations, and where they leave the quarter
 * plane, the better of its two edges. */
static void solve_line(const struct cost_probe *probe, size_t n, struct cost_line *line)
{
    double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
    for (size_t i = 0; i < n; i++) {
        double a = 1.0 / probe[i].seconds, b = probe[i].bytes / probe[i].seconds;
        uu += a * a;
        uv += a * b;
        vv += b * b;
        u1 += a;
        v1 += b;
    }
    double det = uu * vv - uv * uv;
    line->u = (u1 * vv - v1 * uv) / det;
    line->v = (v1 * uu - u1 * uv) / det;
    if (line->u >= 0 && line->v >= 0)
        return;
    /* On an edge the sum falls by (a·1)²/(a·a). */
    bool latency_only = u1 * u1 / uu > v1 * v1 / vv;
    line->u = latency_only ? u1 / uu : 0;
    line->v = latency_only ? 0 : v1 / vv;
}

int cost_fit_line(struct cost_probe *probe, size_t n, struct cost_line *line, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(probe[i].bytes) || probe[i].bytes < 0)
            return err_set(err, ERR_INPUT, "probe %zu: %g is no size", i, probe[i].bytes);
        if (!isfinite(probe[i].seconds) || !(probe[i].seconds > 0))
            return err_set(err, ERR_INPUT, "probe %zu: %g is no time", i, probe[i].seconds);
    }
    size_t probes = n;
    n = cost_fit_medians(probe, n);
    if (n < 2)
        return err_set(err, ERR_INPUT, "%zu probes of one size make no line", probes);
    solve_line(probe, n, line);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double off = (line->u + line->v * probe[i].bytes) / probe[i].seconds - 1.0;
        sum += off * off;
    }
    line->residual = sqrt(sum / (double)n);
    return OK;
}

/* ---- the paper's tables ---- */

enum {
    PRICES = 4,                    /* u, v, z, g */
    ROWS = COST_PAPER_FIGURES + 2, /* and a pull on z and on g */
    ROUNDS = 200,
};

static const double paper_cores = 20, paper_block = 4.0 * 1024 * 1024;

/* Units in which all prices are of one size. */
static const double unit[PRICES] = {1e-2, 1e-9, 1e-9, 1e-9};

/* The weight of the regulariser z² + g² relative to a squared logarithm: it decides among equal
 * fits and changes nothing else. */
static const double pull = 1e-4;

static struct cost_model model_of(const double price[PRICES])
{
    return (struct cost_model){.u = price[0] * unit[0],
                               .v = price[1] * unit[1],
                               .z = price[2] * unit[2],
                               .g = price[3] * unit[3],
                               .cores = paper_cores};
}

static void set_published(struct cost_figure figure[COST_PAPER_FIGURES])
{
    static const double stage[3] = {0.95, 0.93, 0.99};
    static const double length[3] = {5.2, 5.6, 7.8};
    static const double original[3] = {0.356, 0.447, 17.9}, new[3] = {0.154, 0.184, 2.4};
    for (size_t i = 0; i < 3; i++) {
        double stages = (double)(3 + i), floats = pow(10, length[i]);
        figure[i] = (struct cost_figure){COLL_BUTTERFLY, exp2(stages), 1.5e8, stages * stage[i], 0};
        figure[3 + i] = (struct cost_figure){COLL_TREE, 32, floats, original[i], 0};
        figure[6 + i] = (struct cost_figure){COLL_BUTTERFLY, 32, floats, new[i], 0};
    }
}

static double model_seconds(const struct cost_figure *f, const double price[PRICES])
{
    struct cost_model m = model_of(price);
    return cost_allreduce(f->algorithm, &m, (size_t)f->ranks, f->floats * sizeof(float),
                          paper_block);
}

/* Residuals at `price`; returns their sum of squares. */
static double take_residuals(const struct cost_figure *figure, const double price[PRICES],
                             double r[ROWS])
{
    double sum = 0;
    for (size_t i = 0; i < ROWS; i++) {
        r[i] = i < COST_PAPER_FIGURES ? log(model_seconds(&figure[i], price) / figure[i].published)
                                      : pull * price[i - COST_PAPER_FIGURES + 2];
        sum += r[i] * r[i];
    }
    return sum;
}

/* ∂r/∂price. Every cost is linear in the prices, so a price's coefficient is the cost at 1 of it
 * and 0 of the others. */
static void take_jacobian(const struct cost_figure *figure, const double price[PRICES],
                          double J[ROWS][PRICES])
{
    memset(J, 0, ROWS * sizeof J[0]);
    for (size_t k = 0; k < PRICES; k++) {
        double one[PRICES] = {0};
        one[k] = 1;
        for (size_t i = 0; i < COST_PAPER_FIGURES; i++)
            J[i][k] = model_seconds(&figure[i], one) / model_seconds(&figure[i], price);
    }
    J[COST_PAPER_FIGURES][2] = J[COST_PAPER_FIGURES + 1][3] = pull;
}

/* A·x = y by elimination; A is positive definite (it is damped). x returns in y. */
static void solve_linear(double A[PRICES][PRICES], double y[PRICES])
{
    for (size_t k = 0; k < PRICES; k++)
        for (size_t i = k + 1; i < PRICES; i++) {
            double f = A[i][k] / A[k][k];
            for (size_t j = k; j < PRICES; j++)
                A[i][j] -= f * A[k][j];
            y[i] -= f * y[k];
        }
    for (size_t k = PRICES; k-- > 0;) {
        for (size_t j = k + 1; j < PRICES; j++)
            y[k] -= A[k][j] * y[j];
        y[k] /= A[k][k];
    }
}

/* The damped Gauss-Newton step from `price`, cut at 0. A price at 0 that would fall stays out of
 * the equations. */
static void step_prices(double J[ROWS][PRICES], const double r[ROWS], double damping,
                        const double price[PRICES], double next[PRICES])
{
    double A[PRICES][PRICES] = {{0}}, y[PRICES] = {0};
    bool held[PRICES];
    for (size_t k = 0; k < PRICES; k++) {
        for (size_t i = 0; i < ROWS; i++)
            y[k] -= J[i][k] * r[i];
        held[k] = price[k] <= 0 && y[k] < 0;
    }
    for (size_t k = 0; k < PRICES; k++) {
        for (size_t j = 0; j < PRICES; j++)
            for (size_t i = 0; i < ROWS && !held[k] && !held[j]; i++)
                A[k][j] += J[i][k] * J[i][j];
        A[k][k] = held[k] ? 1 : A[k][k] * (1 + damping);
        y[k] = held[k] ? 0 : y[k];
    }
    solve_linear(A, y);
    for (size_t k = 0; k < PRICES; k++)
        next[k] = fmax(0, price[k] + y[k]);
}

struct cost_paper cost_fit_paper(void)
{
    struct cost_paper paper;
    double price[PRICES] = {1, 1, 1, 1}, damping = 1e-3, r[ROWS], J[ROWS][PRICES];
    set_published(paper.figure);
    double sum = take_residuals(paper.figure, price, r);
    take_jacobian(paper.figure, price, J);
    for (size_t round = 0; round < ROUNDS && damping < 1e12; round++) {
        double next[PRICES], there[ROWS];
        step_prices(J, r, damping, price, next);
        double reached = take_residuals(paper.figure, next, there);
        if (!(reached < sum)) {
            damping *= 4;
            continue;
        }
        damping /= 4;
        sum = reached;
        memcpy(price, next, sizeof price);
        memcpy(r, there, sizeof r);
        take_jacobian(paper.figure, price, J);
    }
    paper.model = model_of(price);
    double squares = 0;
    for (size_t i = 0; i < COST_PAPER_FIGURES; i++) {
        paper.figure[i].fitted = model_seconds(&paper.figure[i], price);
        squares += r[i] * r[i];
    }
    paper.residual = sqrt(squares / COST_PAPER_FIGURES);
    return paper;
}
