#include "strategy/pace_rules.h"

#include "base/minmax.h"

#include <math.h>

struct pace_motion pace_motion(const struct pace_settings *set, size_t contributors, uint64_t tau)
{
    double k = contributors > 0 ? (double)contributors : 1;
    double period = (double)(tau > 0 ? tau : 1) / k;
    return (struct pace_motion){
        .period = period,
        .kappa = set->whole ? 1 : 1 / (1 + 3 * pow(set->momentum, period)),
        .delta = max_double(0, 1 - period * (1 - set->momentum) / 3),
        .gain = set->gain >= 0 ? set->gain : 1 - 1 / k,
    };
}

/* κγ, less at first. */
static double gain_of(const struct pace_motion *motion, const struct pace_leap *before)
{
    return motion->gain * min_double(1, (double)before->trained / PACE_RAMP);
}

struct pace_leap pace_leap(const struct pace_motion *motion, const struct pace_leap *before)
{
    double last = (double)before->period;
    double steps = last > 0 ? min_double(motion->period, last) : motion->period;
    return (struct pace_leap){
        .steps = (float)(gain_of(motion, before) * steps),
        .period = (float)motion->period,
        .trained = before->trained + (float)motion->period,
    };
}

/* v_n, sorted: by v_{n−1}, and by the change of R. */
struct mpca_config pace_config(const struct pace_motion *motion, const struct pace_leap *before)
{
    const struct pace_leap leap = pace_leap(motion, before);
    double fresh = 1 - motion->delta;
    double leapt = (double)before->steps / motion->period;
    return (struct mpca_config){
        .delta = (float)(motion->delta + fresh * (gain_of(motion, before) - leapt)),
        .fresh = (float)(fresh / motion->period),
        .beta = 1,
        .gamma = leap.steps / (float)motion->kappa,
    };
}

/* Progress first, which is small: so there is one rounding to speak of, of the sum. */
void pace_rebase(struct vec *x, const struct vec *b, const struct vec *from)
{
    vec_axpy(x, -1, from, vec_all(x));
    vec_axpy(x, 1, b, vec_all(x));
}

void pace_approach(struct vec *x, const struct vec *b, const struct vec *from, double kappa)
{
    if (kappa < 1) {
        vec_axpy(x, (float)-kappa, from, vec_all(x));
        vec_axpy(x, (float)kappa, b, vec_all(x));
    } else {
        pace_rebase(x, b, from);
    }
}
