#include "strategy/mean_rules.h"

#include "base/fault.h"

void diloco_step(const Paceline__DiLoCo *config, struct vec *x, struct vec *v, struct vec *delta)
{
    float lr = config->outer_lr, momentum = config->outer_momentum;
    struct range all = vec_all(x);
    vec_axpy(delta, -1.0f, x, all);
    vec_scale(v, momentum, all);
    vec_axpy(v, 1.0f, delta, all);
    vec_axpy(x, 1.0f - lr, delta, all);
    vec_axpy(x, -lr * momentum, v, all);
}

float easgd_alpha(const Paceline__Easgd *config, size_t workers)
{
    PL_ASSERT(workers > 0);
    return config->has_alpha ? config->alpha : 0.9f / (float)workers;
}

/* β is α for each worker whose model is in the mean. */
void easgd_step(const Paceline__Easgd *config, const struct easgd_round *round, struct vec *x,
                struct vec *centre, const struct vec *mean)
{
    float alpha = easgd_alpha(config, round->workers);
    float beta = config->has_beta ? config->beta : alpha * (float)round->contributors;
    if (x)
        vec_penalise(x, alpha, centre, vec_all(x));
    vec_lerp(centre, beta, mean, vec_all(centre));
}
