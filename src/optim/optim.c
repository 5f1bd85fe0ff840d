#include "optim/optim.h"

#include "base/fault.h"
#include "optim/optim_list.h"
#include "optim/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct optim_ops *const optims[] = {&optim_sgd};

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

static int check(const Caffe__SolverParameter *solver, struct err *err)
{
    int status = schedule_check(solver, err);
    if (status)
        return status;
    float momentum = solver->momentum, decay = solver->weight_decay;
    if (solver->has_momentum && !(momentum >= 0 && momentum < 1))
        return err_set(err, ERR_INPUT, "solver.momentum: %g, expected 0 or more and less than 1",
                       (double)momentum);
    if (solver->has_weight_decay && !(isfinite(decay) && decay >= 0))
        return err_set(err, ERR_INPUT,
                       "solver.weight_decay: %g, expected a finite number of 0 or more",
                       (double)decay);
    return OK;
}

int optim_init(struct optim *optim, const Caffe__SolverParameter *solver, size_t n,
               struct arena *arena, struct err *err)
{
    struct optim made = {.solver = solver};
    int status = find(solver->type, &made.ops, err);
    if (!status)
        status = check(solver, err);
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
    float rate = schedule_rate(optim->solver, t);
    optim->ops->update(optim->solver, rate, x, dx, optim->state, table, vec_all(x));
}
