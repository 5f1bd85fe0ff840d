#include "optim/optim.h"

#include "base/fault.h"
#include "optim/optim_list.h"
#include "optim/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct optim_ops *const optims[] = {
    &optim_sgd, &optim_nesterov, &optim_adagrad, &optim_rmsprop, &optim_adam, &optim_adamw,
};

enum { OPTIMS = sizeof optims / sizeof *optims };

static int find(const char *type, const struct optim_ops **ops, struct err *err)
{
    char known[256] = "";
    for (size_t i = 0, used = 0; i < OPTIMS && used < sizeof known; i++) {
        if (strcmp(optims[i]->type, type) == 0) {
            *ops = optims[i];
            return OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "",
                                 optims[i]->type);
    }
    return err_set(err, ERR_UNSUPPORTED, "solver.type: no optimizer \"%s\"; there are: %s", type,
                   known);
}

/* Momenta and means: 0 or more, and less than 1 or nothing new would come in. */
static int check_share(const char *field, float value, struct err *err)
{
    if (value >= 0 && value < 1)
        return OK;
    return err_set(err, ERR_INPUT, "solver.%s: %g, expected 0 or more and less than 1", field,
                   (double)value);
}

/* A field that this optimizer does not read may only hold what it does when nobody sets it. */
static int check_unread(const Caffe__SolverParameter *solver, const struct optim_ops *ops,
                        struct err *err)
{
    Caffe__SolverParameter unset;
    caffe__solver_parameter__init(&unset);
    const struct {
        unsigned bit;
        const char *name;
        float value, unset;
    } fields[] = {
        {OPTIM_MOMENTUM, "momentum", solver->momentum, 0},
        {OPTIM_MOMENTUM2, "momentum2", solver->momentum2, unset.momentum2},
        {OPTIM_RMS_DECAY, "rms_decay", solver->rms_decay, unset.rms_decay},
        {OPTIM_DELTA, "delta", solver->delta, unset.delta},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!(ops->reads & fields[i].bit) && fields[i].value != fields[i].unset)
            return err_set(err, ERR_UNSUPPORTED, "solver.%s: %g, but optimizer \"%s\" uses none",
                           fields[i].name, (double)fields[i].value, ops->type);
    return OK;
}

static int check(const Caffe__SolverParameter *solver, const struct optim_ops *ops, struct err *err)
{
    int status = schedule_check(solver, err);
    float decay = solver->weight_decay, delta = solver->delta;
    if (!status)
        status = check_share("momentum", solver->momentum, err);
    if (!status)
        status = check_share("momentum2", solver->momentum2, err);
    if (!status)
        status = check_share("rms_decay", solver->rms_decay, err);
    if (status)
        return status;
    if (!(isfinite(decay) && decay >= 0))
        return err_set(err, ERR_INPUT,
                       "solver.weight_decay: %g, expected a finite number of 0 or more",
                       (double)decay);
    if (!(isfinite(delta) && delta > 0))
        return err_set(err, ERR_INPUT, "solver.delta: %g, expected a finite number above 0",
                       (double)delta);
    return check_unread(solver, ops, err);
}

int optim_init(struct optim *optim, const Caffe__SolverParameter *solver, size_t n,
               struct arena *arena, struct err *err)
{
    struct optim made = {.solver = solver};
    int status = find(solver->type, &made.ops, err);
    if (!status)
        status = check(solver, made.ops, err);
    if (status)
        return status;
    PL_ASSERT(made.ops->states <= OPTIM_STATE_MAX);
    for (size_t i = 0; i < made.ops->states; i++)
        if (vec_init(&made.state[i], arena, n))
            return err_set(err, ERR_NOMEM, "no memory for %zu floats of %s", n,
                           made.ops->state_name[i]);
    *optim = made;
    return OK;
}

void optim_update(struct optim *optim, double t, struct vec *x, const struct vec *dx,
                  const struct segments *table)
{
    struct optim_step step = {
        .solver = optim->solver,
        .rate = schedule_rate(optim->solver, t),
        .number = ++optim->updates,
    };
    optim->ops->update(&step, x, dx, optim->state, table, vec_all(x));
}

void optim_reset(struct optim *optim)
{
    for (size_t i = 0; i < optim->ops->states; i++)
        vec_fill(&optim->state[i], vec_all(&optim->state[i]), 0.0f);
    optim->updates = 0;
}
