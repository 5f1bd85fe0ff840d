#include "strategy/pace_rules.h"

struct mpca_config pace_config(float gamma)
{
    return (struct mpca_config){.delta = 0.8f, .beta = 1, .gamma = gamma, .ramp = 20};
}

/* Progress first, which is small: so there is one rounding to speak of, of the sum. */
void pace_rebase(struct vec *x, const struct vec *b, const struct vec *from)
{
    vec_axpy(x, -1, from, vec_all(x));
    vec_axpy(x, 1, b, vec_all(x));
}
