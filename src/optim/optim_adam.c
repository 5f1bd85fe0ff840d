/* Adam as Caffe does it, AdamW as PyTorch does it. Both divide a running mean of gradients by the
 * root of a running mean of squares and correct both means for their start at zero, t steps ago:
 *
 *     Adam    x ← x − η·c·m / (√v + δ),   c = √(1−β2^t) / (1−β1^t)
 *     AdamW   x ← (1−η·λ)·x − η·m̂ / (√v̂ + δ),   m̂ = m / (1−β1^t),  v̂ = v / (1−β2^t)
 *
 * They differ in the position of δ. Multiplied through by √(1−β2^t), AdamW's quotient is Adam's
 * with δ·√(1−β2^t) in δ's place, so one loop does for both. */
#include "optim/optim_list.h"

#include <math.h>

/* PyTorch's defaults; Caffe's Adam takes 0 for both. */
static const float adamw_decay = 0.01f;
#define ADAMW_BETA1 0.9f

static struct vec_adam adam_rule(const struct optim_step *step, float beta1)
{
    const Caffe__SolverParameter *solver = step->solver;
    double t = (double)step->number;
    double first = 1 - pow((double)beta1, t), second = 1 - pow((double)solver->momentum2, t);
    return (struct vec_adam){
        .rate = step->rate,
        .correction = (float)(sqrt(second) / first),
        .beta1 = beta1,
        .beta2 = solver->momentum2,
        .delta = solver->delta,
        .decay = step->decay,
    };
}

static void adam_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                        struct vec *state, const struct segments *table, struct range range)
{
    const Caffe__SolverParameter *solver = step->solver;
    struct vec_adam rule = adam_rule(step, solver->has_momentum ? solver->momentum : 0);
    vec_adam(x, dx, &state[0], &state[1], &rule, table, range);
}

static void adamw_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                         struct vec *state, const struct segments *table, struct range range)
{
    const Caffe__SolverParameter *solver = step->solver;
    struct vec_adam rule = adam_rule(step, solver->has_momentum ? solver->momentum : ADAMW_BETA1);
    double second = 1 - pow((double)solver->momentum2, (double)step->number);
    rule.delta = (float)((double)solver->delta * sqrt(second));
    rule.decay = solver->has_weight_decay ? step->decay : adamw_decay;
    rule.decoupled = true;
    vec_adam(x, dx, &state[0], &state[1], &rule, table, range);
}

const struct optim_ops optim_adam = {
    .type = "Adam",
    .reads = OPTIM_MOMENTUM | OPTIM_MOMENTUM2 | OPTIM_DELTA,
    .states = 2,
    .state_name = {"m", "v"},
    .update = adam_update,
};

const struct optim_ops optim_adamw = {
    .type = "AdamW",
    .reads = OPTIM_MOMENTUM | OPTIM_MOMENTUM2 | OPTIM_DELTA,
    .momentum = ADAMW_BETA1,
    .states = 2,
    .state_name = {"m", "v"},
    .update = adamw_update,
};
