#include "plan/run_model.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "coll/cost_fit.h"

#include <math.h>
#include <stdlib.h>

/* A line needs values of b that are so far apart: two workers have half of one's batch, which has
 * grown meanwhile. */
#define LINE_RANGE 1.5
/* Samples a second of a worker whose steps take no longer for more records. */
#define FREE_SAMPLES 1e12
#define LEAST_S      1e-9 /* a fit needs times above 0 */

/* ---- measurements ---- */

static struct run_class *find_class(struct run_classes *all, long number)
{
    size_t here = all->count < RUN_MODEL_CLASSES ? all->count : RUN_MODEL_CLASSES;
    for (size_t i = 0; i < here; i++)
        if (all->at[i].number == number)
            return &all->at[i];
    struct run_class *c = &all->at[all->count++ % RUN_MODEL_CLASSES];
    *c = (struct run_class){.number = number};
    return c;
}

static void add_to(struct run_classes *all, long number, double x, double y)
{
    struct run_class *c = find_class(all, number);
    size_t i = c->count++ % RUN_MODEL_ROUNDS;
    c->x[i] = x;
    c->y[i] = y;
}

void run_model_add(struct run_model *m, const struct run_round *round)
{
    PL_ASSERT(round->N > 0 && round->b > 0);
    m->same = round->N == m->N ? m->same + 1 : 1;
    m->N = round->N;
    if (m->same <= RUN_MODEL_SKIPS || !(round->step_s > 0))
        return;
    add_to(&m->steps, lround(2 * log2(round->b)), round->b, round->step_s);
    add_to(&m->rests, (long)round->N, (double)round->N, max_double(round->rest_s, 0));
}

bool run_model_is_settled(const struct run_model *m, size_t N)
{
    return m->N == N && m->same >= RUN_MODEL_SKIPS + RUN_MODEL_ROUNDS && m->steps.count > 0;
}

/* ---- medians ---- */

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double find_median(const double value[RUN_MODEL_ROUNDS], size_t n)
{
    double sorted[RUN_MODEL_ROUNDS];
    for (size_t i = 0; i < n; i++)
        sorted[i] = value[i];
    qsort(sorted, n, sizeof *sorted, compare_numbers);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The medians of each class, with x in the place of a probe's bytes. Returns their number. */
static size_t find_medians(const struct run_classes *all, struct cost_probe out[RUN_MODEL_CLASSES])
{
    size_t here = all->count < RUN_MODEL_CLASSES ? all->count : RUN_MODEL_CLASSES;
    for (size_t i = 0; i < here; i++) {
        const struct run_class *c = &all->at[i];
        size_t n = c->count < RUN_MODEL_ROUNDS ? c->count : RUN_MODEL_ROUNDS;
        out[i] = (struct cost_probe){find_median(c->x, n), find_median(c->y, n)};
    }
    return here;
}

size_t run_model_reach(const struct run_model *m)
{
    long most = 0;
    for (size_t i = 0; i < m->rests.count && i < RUN_MODEL_CLASSES; i++)
        most = m->rests.at[i].number > most ? m->rests.at[i].number : most;
    return (size_t)most;
}

/* ---- lines ---- */

/* The line through the origin whose relative errors are least: Σ (v·x/t − 1)² is least where
 * v = Σ(x/t) / Σ(x/t)². */
static struct cost_line fit_slope(const struct cost_probe *at, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double ratio = at[i].bytes / at[i].seconds;
        sum += ratio;
        squares += ratio * ratio;
    }
    return (struct cost_line){.u = 0, .v = sum / squares};
}

static struct cost_line fit_steps(struct cost_probe *at, size_t n)
{
    struct cost_line line;
    double least = at[0].bytes, most = at[0].bytes;
    for (size_t i = 1; i < n; i++) {
        least = min_double(least, at[i].bytes);
        most = max_double(most, at[i].bytes);
    }
    if (most < LINE_RANGE * least || cost_fit_line(at, n, &line, NULL) != OK)
        return fit_slope(at, n);
    return line;
}

static struct cost_line fit_exchanges(struct cost_probe *at, size_t n)
{
    struct cost_line line = {0, 0, 0};
    if (n == 1)
        line.u = at[0].seconds;
    else if (n > 1 && cost_fit_line(at, n, &line, NULL) != OK)
        line = (struct cost_line){at[n - 1].seconds, 0, 0};
    return line;
}

void run_model_fit(const struct run_model *m, struct follow_batch *f)
{
    struct cost_probe step[RUN_MODEL_CLASSES], rest[RUN_MODEL_CLASSES];
    size_t steps = find_medians(&m->steps, step), sizes = find_medians(&m->rests, rest), n = 0;
    PL_ASSERT(steps > 0);
    double alone = 0; /* what a worker's round takes beyond its step, without an exchange */
    for (size_t i = 0; i < sizes; i++)
        alone = rest[i].bytes == 1 ? rest[i].seconds : alone;
    for (size_t i = 0; i < sizes; i++)
        if (rest[i].bytes > 1)
            rest[n++] =
                (struct cost_probe){rest[i].bytes, max_double(rest[i].seconds - alone, LEAST_S)};
    const struct cost_line of_step = fit_steps(step, steps), of_rest = fit_exchanges(rest, n);
    f->fixed_s = of_step.u + alone;
    f->model.gamma = of_step.v > 1 / FREE_SAMPLES ? 1 / of_step.v : FREE_SAMPLES;
    f->model.alpha = of_rest.u;
    f->model.beta = of_rest.v;
}
