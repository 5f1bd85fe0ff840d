#include "plan/comm_fit.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "coll/cost_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAW_PARAMETERS = 2, POWER_MAX = 4, GRID = 64, SECTIONS = 80 };

double comm_curve_at(enum comm_law law, const struct comm_curve *curve, double N)
{
    switch (law) {
    case COMM_LINEAR: return curve->a + curve->b * N;
    case COMM_LOGARITHMIC: return curve->a + curve->b * log2(N);
    case COMM_POWER: return curve->a * pow(N, curve->b);
    default: PL_ASSERT(!"the law exists");
    }
    return NAN;
}

/* ---- one law, through medians with N in the place of a probe's bytes ---- */

static double residual_of(const struct cost_probe *median, size_t n, enum comm_law law,
                          const struct comm_curve *curve)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double off = comm_curve_at(law, curve, median[i].bytes) / median[i].seconds - 1;
        sum += off * off;
    }
    return sqrt(sum / (double)n);
}

/* A line in N, or in log2 N: the fit of a link. `room` has n places. */
static struct comm_curve fit_line(const struct cost_probe *median, size_t n, enum comm_law law,
                                  struct cost_probe *room)
{
    struct cost_line line;
    for (size_t i = 0; i < n; i++) {
        double N = median[i].bytes;
        room[i] = (struct cost_probe){law == COMM_LINEAR ? N : log2(N), median[i].seconds};
    }
    int rc = cost_fit_line(room, n, &line, NULL);
    PL_ASSERT(rc == OK); /* the samples have been checked */
    return (struct comm_curve){line.u, line.v, line.residual};
}

/* The best a·N^b for a given b: Σ (a·f/t − 1)² is least where a = Σ(f/t) / Σ(f/t)². */
static struct comm_curve fit_factor(const struct cost_probe *median, size_t n, double b)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double f = pow(median[i].bytes, b) / median[i].seconds;
        sum += f;
        squares += f * f;
    }
    struct comm_curve curve = {.a = sum / squares, .b = b};
    curve.residual = residual_of(median, n, COMM_POWER, &curve);
    return curve;
}

/* Search b on a grid, and then between the neighbours of its best point by golden section. */
static struct comm_curve fit_power(const struct cost_probe *median, size_t n)
{
    const double step = (double)POWER_MAX / GRID, golden = (sqrt(5) - 1) / 2;
    struct comm_curve best = fit_factor(median, n, 0);
    for (int i = 1; i <= GRID; i++) {
        struct comm_curve here = fit_factor(median, n, i * step);
        if (here.residual < best.residual)
            best = here;
    }
    double low = max_double(best.b - step, 0), high = min_double(best.b + step, POWER_MAX);
    for (int i = 0; i < SECTIONS; i++) {
        double left = high - golden * (high - low), right = low + golden * (high - low);
        struct comm_curve l = fit_factor(median, n, left), r = fit_factor(median, n, right);
        if (l.residual < r.residual)
            high = right;
        else
            low = left;
    }
    struct comm_curve inner = fit_factor(median, n, (low + high) / 2);
    return inner.residual < best.residual ? inner : best;
}

/* ---- all laws ---- */

static int check_samples(const struct comm_sample *sample, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(sample[i].N) || !(sample[i].N > 1))
            return err_set(err, ERR_INPUT, "exchange %zu: %g workers exchange nothing", i,
                           sample[i].N);
        if (!isfinite(sample[i].seconds) || !(sample[i].seconds > 0))
            return err_set(err, ERR_INPUT, "exchange %zu: %g is no time", i, sample[i].seconds);
    }
    return OK;
}

int comm_fit_laws(const struct comm_sample *sample, size_t n, struct comm_fit *fit, struct err *err)
{
    int rc = check_samples(sample, n, err);
    if (rc != OK)
        return rc;
    struct cost_probe *median = calloc(2 * n + 1, sizeof *median);
    if (!median)
        return err_set(err, ERR_NOMEM, "no memory for %zu exchanges", n);
    for (size_t i = 0; i < n; i++)
        median[i] = (struct cost_probe){sample[i].N, sample[i].seconds};
    size_t sizes = cost_fit_medians(median, n);
    if (sizes <= LAW_PARAMETERS) {
        free(median);
        return err_set(err, ERR_INPUT,
                       "exchanges of %zu cluster sizes do not tell the laws apart; measure 3",
                       sizes);
    }
    struct cost_probe *room = median + n;
    *fit =
        (struct comm_fit){.curve = {
                              [COMM_LINEAR] = fit_line(median, sizes, COMM_LINEAR, room),
                              [COMM_LOGARITHMIC] = fit_line(median, sizes, COMM_LOGARITHMIC, room),
                              [COMM_POWER] = fit_power(median, sizes),
                          }};
    for (enum comm_law law = COMM_LINEAR; law < COMM_LAWS; law++)
        if (fit->curve[law].residual < fit->curve[fit->best].residual)
            fit->best = law;
    free(median);
    return OK;
}

bool comm_fit_warning(const struct comm_fit *fit, char text[COMM_WARNING_MAX])
{
    const struct comm_curve *best = &fit->curve[fit->best];
    text[0] = '\0';
    if (fit->best == COMM_LINEAR)
        return false;
    char law[64];
    if (fit->best == COMM_POWER)
        snprintf(law, sizeof law, "%.3g·N^%.3g", best->a, best->b);
    else
        snprintf(law, sizeof law, "%.3g + %.3g·log2 N", best->a, best->b);
    snprintf(
        text, COMM_WARNING_MAX,
        "an exchange among N workers takes %s s (error %.1f %%) rather than a line in N (error "
        "%.1f %%); the best number of workers is an estimate",
        law, 100 * best->residual, 100 * fit->curve[COMM_LINEAR].residual);
    return true;
}
