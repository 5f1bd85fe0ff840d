#include "optim/descent.h"

#include "base/fault.h"
#include "base/status.h"

#include <math.h>

#define DECREASE 1e-4 /* c1, as Nocedal and Wright advise below Eq. 3.4 */

/* The first step of a search that follows another is at most this multiple of that one's. */
#define GROWTH_MAX 10.0

int descent_init(struct descent *descent, const struct direction_ops *ops, size_t history,
                 double tolerance, size_t n, struct arena *arena)
{
    *descent = (struct descent){.tolerance = tolerance};
    int rc = direction_init(&descent->direction, ops, history, n, arena);
    if (rc == OK)
        rc = vec_init(&descent->iterate, arena, n);
    if (rc == OK)
        rc = vec_init(&descent->gradient, arena, n);
    return rc == OK ? vec_init(&descent->d, arena, n) : rc;
}

static void forget_direction(struct descent *descent)
{
    direction_forget(&descent->direction);
    descent->searches = false;
}

void descent_begin(struct descent *descent, const struct vec *x)
{
    vec_copy(&descent->iterate, x, vec_all(x));
    forget_direction(descent);
}

void descent_restart(struct descent *descent, struct vec *x)
{
    vec_copy(x, &descent->iterate, vec_all(x));
    forget_direction(descent);
}

static double norm_of(const struct vec *v)
{
    return sqrt(vec_dot(v, v, vec_all(v)));
}

static void point_downhill(struct descent *descent)
{
    vec_copy(&descent->d, &descent->gradient, vec_all(&descent->d));
    vec_scale(&descent->d, -1.0f, vec_all(&descent->d));
    descent->is_steepest = true;
    direction_forget(&descent->direction);
}

/* x ← iterate + trial · d. The step is a float, so it is that of the line search, too. */
static enum descent_verdict place_trial(struct descent *descent, struct vec *x)
{
    float step = (float)descent->search.trial;
    descent->search.trial = (double)step;
    vec_copy(x, &descent->iterate, vec_all(x));
    vec_axpy(x, step, &descent->d, vec_all(x));
    return DESCENT_EVALUATE;
}

/* Search from the iterate along d, `before` being the step and the slope of the last search; NULL:
 * there was none, and the first step has a length of 1, or of the gradient where that is less. */
static enum descent_verdict begin_search(struct descent *descent, const struct line_point *before,
                                         struct vec *x)
{
    const struct direction_ops *ops = descent->direction.ops;
    descent->slope = vec_dot(&descent->d, &descent->gradient, vec_all(&descent->d));
    if (!descent->is_steepest && !(descent->slope < 0)) { /* it does not descend */
        point_downhill(descent);
        descent->slope = vec_dot(&descent->d, &descent->gradient, vec_all(&descent->d));
    }
    double trial = 1;
    if (!descent->is_steepest && !ops->is_scaled && before)
        trial = before->step * fmin(GROWTH_MAX, before->slope / descent->slope);
    else if (descent->is_steepest || !ops->is_scaled)
        trial = fmin(1, 1 / sqrt(-descent->slope));
    line_search_begin(&descent->search, DECREASE, ops->curvature, descent->loss, descent->slope,
                      trial);
    descent->searches = true;
    return place_trial(descent, x);
}

static enum descent_verdict end_search(struct descent *descent, enum descent_verdict verdict,
                                       struct vec *x)
{
    vec_copy(x, &descent->iterate, vec_all(x));
    return verdict;
}

static bool is_converged(const struct descent *descent)
{
    return norm_of(&descent->gradient) <= descent->tolerance * fmax(1, norm_of(&descent->iterate));
}

static enum descent_verdict begin_downhill(struct descent *descent, struct vec *x)
{
    point_downhill(descent);
    return begin_search(descent, NULL, x);
}

/* The iterate itself has been evaluated. */
static enum descent_verdict take_iterate(struct descent *descent, double loss,
                                         const struct vec *gradient, struct vec *x)
{
    if (!isfinite(loss) || !vec_finite(gradient, vec_all(gradient)))
        return DESCENT_DIVERGED;
    descent->loss = loss;
    vec_copy(&descent->gradient, gradient, vec_all(gradient));
    return is_converged(descent) ? end_search(descent, DESCENT_CONVERGED, x)
                                 : begin_downhill(descent, x);
}

/* The line search has accepted x, which becomes the iterate. */
static enum descent_verdict take_step(struct descent *descent, double loss,
                                      const struct vec *gradient, struct vec *x)
{
    const struct line_point last = {descent->search.trial, descent->loss, descent->slope};
    const struct descent_step step = {
        .before = &descent->iterate,
        .after = x,
        .gradient_before = &descent->gradient,
        .gradient_after = gradient,
    };
    descent->direction.ops->next(&descent->direction, &step, &descent->d);
    descent->is_steepest = false;
    vec_copy(&descent->iterate, x, vec_all(x));
    vec_copy(&descent->gradient, gradient, vec_all(gradient));
    descent->loss = loss;
    descent->steps++;
    return is_converged(descent) ? end_search(descent, DESCENT_CONVERGED, x)
                                 : begin_search(descent, &last, x);
}

/* No step meets both conditions. Continue from the best one, if there is one, downhill. */
static enum descent_verdict leave_search(struct descent *descent, struct vec *x)
{
    const struct line_point *low = &descent->search.low;
    if (low->step > 0 && low->value < descent->loss) {
        descent->search.trial = low->step;
        place_trial(descent, x);
        descent_begin(descent, x);
        return DESCENT_EVALUATE;
    }
    return descent->is_steepest ? end_search(descent, DESCENT_STUCK, x)
                                : begin_downhill(descent, x);
}

enum descent_verdict descent_next(struct descent *descent, double loss, const struct vec *gradient,
                                  struct vec *x)
{
    if (!descent->searches)
        return take_iterate(descent, loss, gradient, x);
    double slope = vec_dot(&descent->d, gradient, vec_all(gradient));
    switch (line_search_next(&descent->search, loss, slope)) {
    case LINE_ACCEPT: return take_step(descent, loss, gradient, x);
    case LINE_FAIL: return leave_search(descent, x);
    default: return place_trial(descent, x);
    }
}

double descent_add_decay(float decay, const struct segments *table, const struct vec *x,
                         struct vec *dx)
{
    double sum = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        struct range r = {segment->offset, segment->len};
        float share = decay * segment->decay_mult;
        if (segment->lr_mult == 0) {
            vec_fill(dx, r, 0.0f);
            continue;
        }
        if (share == 0)
            continue;
        sum += 0.5 * (double)share * vec_dot(x, x, r);
        vec_axpy(dx, share, x, r);
    }
    return sum;
}
