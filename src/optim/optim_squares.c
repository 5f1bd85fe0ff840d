/* AdaGrad and RMSProp: each weight's gradient over the root of its squares so far, all of them
 * summed or their running mean. Caffe and PyTorch agree: delta is added to the root. */
#include "optim/optim_list.h"

static void adagrad_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                           struct vec *state, const struct segments *table, struct range range)
{
    const Caffe__SolverParameter *solver = step->solver;
    struct vec_adagrad rule = {
        .rate = step->rate,
        .delta = solver->delta,
        .decay = step->decay,
    };
    vec_adagrad(x, dx, &state[0], &rule, table, range);
}

static void rmsprop_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                           struct vec *state, const struct segments *table, struct range range)
{
    const Caffe__SolverParameter *solver = step->solver;
    struct vec_rmsprop rule = {
        .rate = step->rate,
        .rms_decay = solver->rms_decay,
        .delta = solver->delta,
        .decay = step->decay,
    };
    vec_rmsprop(x, dx, &state[0], &rule, table, range);
}

const struct optim_ops optim_adagrad = {
    .type = "AdaGrad",
    .reads = OPTIM_DELTA,
    .states = 1,
    .state_name = {"history"},
    .update = adagrad_update,
};

const struct optim_ops optim_rmsprop = {
    .type = "RMSProp",
    .reads = OPTIM_DELTA | OPTIM_RMS_DECAY,
    .states = 1,
    .state_name = {"mean_square"},
    .update = rmsprop_update,
};
