/* Stochastic gradient descent with momentum, as Caffe does it: the rate is inside the momentum, so
 * steps already taken keep the rate they were taken with when the rate falls. */
#include "optim/optim_list.h"

static void sgd_update(const Caffe__SolverParameter *solver, float rate, struct vec *x,
                       const struct vec *dx, struct vec *state, const struct segments *table,
                       struct range range)
{
    struct vec_sgd how = {
        .rate = rate,
        .momentum = solver->has_momentum ? solver->momentum : 0,
        .decay = solver->has_weight_decay ? solver->weight_decay : 0,
    };
    vec_sgd(x, dx, &state[0], &how, table, range);
}

const struct optim_ops optim_sgd = {
    .type = "SGD",
    .states = 1,
    .state_name = {"momentum"},
    .update = sgd_update,
};
