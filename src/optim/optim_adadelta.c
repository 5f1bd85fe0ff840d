/* AdaDelta (Zeiler 2012, Algorithm 1) as Caffe does it: steps have the size of the steps before
 * them, so that no rate is needed; Caffe has one all the same, and calls the paper's ρ `momentum`
 * and its ε `delta`. Both running means begin at zero:
 *
 *     E[g²] ← ρ E[g²] + (1−ρ) g²
 *     Δ     = √(E[Δ²] + ε) / √(E[g²] + ε) · g
 *     E[Δ²] ← ρ E[Δ²] + (1−ρ) Δ²
 *     x     ← x − η Δ                                                                           */
#include "optim/optim_list.h"

static void adadelta_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                            struct vec *state, const struct segments *table, struct range range)
{
    const Caffe__SolverParameter *solver = step->solver;
    struct vec_adadelta rule = {
        .rate = step->rate,
        .momentum = solver->has_momentum ? solver->momentum : 0,
        .delta = solver->delta,
        .decay = step->decay,
    };
    vec_adadelta(x, dx, &state[0], &state[1], &rule, table, range);
}

const struct optim_ops optim_adadelta = {
    .type = "AdaDelta",
    .reads = OPTIM_MOMENTUM | OPTIM_DELTA,
    .no_momentum = true,
    .states = 2,
    .state_name = {"mean_gradient", "mean_step"},
    .update = adadelta_update,
};
