/* Stochastic gradient descent with momentum, plain and Nesterov's, as Caffe does it: the rate is
 * inside the momentum, so steps already taken keep the rate they were taken with when the rate
 * falls. Both remember the same, and may resume from each other's state. */
#include "optim/optim_list.h"

static struct vec_sgd sgd_rule(const struct optim_step *step)
{
    const Caffe__SolverParameter *solver = step->solver;
    return (struct vec_sgd){
        .rate = step->rate,
        .momentum = solver->has_momentum ? solver->momentum : 0,
        .decay = step->decay,
    };
}

static void sgd_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                       struct vec *state, const struct segments *table, struct range range)
{
    struct vec_sgd rule = sgd_rule(step);
    vec_sgd(x, dx, &state[0], &rule, table, range);
}

static void nesterov_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                            struct vec *state, const struct segments *table, struct range range)
{
    struct vec_sgd rule = sgd_rule(step);
    vec_nesterov(x, dx, &state[0], &rule, table, range);
}

const struct optim_ops optim_sgd = {
    .type = "SGD",
    .reads = OPTIM_MOMENTUM,
    .states = 1,
    .state_name = {"momentum"},
    .keeps_step = true,
    .update = sgd_update,
};

const struct optim_ops optim_nesterov = {
    .type = "Nesterov",
    .reads = OPTIM_MOMENTUM,
    .states = 1,
    .state_name = {"momentum"},
    .update = nesterov_update,
};
