#include "strategy/pace_rules.h"

#include "base/minmax.h"

#include <math.h>

struct pace_motion pace_motion(const struct pace_settings *set, size_t contributors, uint64_t tau)
{
    double k = contributors > 0 ? (double)contributors : 1, period = (double)tau / k;
    return (struct pace_motion){
        .period = period,
        .kappa = set->whole ? 1 : 1 / (1 + 3 * pow(set->momentum, period)),
        .delta = max_double(0, 1 - period * (1 - set->momentum) / 3),
        .gain = set->gain >= 0 ? set->gain : 1 - 1 / k,
    };
}

struct mpca_config pace_config(const struct pace_motion *motion)
{
    return (struct mpca_config){
        .delta = (float)motion->delta,
        .period = (float)motion->period,
        .beta = 1,
        .gamma = (float)(motion->gain / motion->kappa * motion->period),
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
