/* Optimizers: element-wise updates of x from dx, with their state as flat vectors beside x. */
#ifndef PL_OPTIM_OPTIM_H
#define PL_OPTIM_OPTIM_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/vec.h"

enum { OPTIM_STATE_MAX = 3 };

struct optim_ops {
    const char *type;                        /* Caffe's name: "SGD" */
    size_t states;                           /* vectors of state */
    const char *state_name[OPTIM_STATE_MAX]; /* as in checkpoints: "momentum" */
    /* x ← update over the range. `rate` is the schedule's value. */
    void (*update)(const Caffe__SolverParameter *solver, float rate, struct vec *x,
                   const struct vec *dx, struct vec *state, const struct segments *table,
                   struct range range);
};

struct optim {
    const struct optim_ops *ops;
    const Caffe__SolverParameter *solver; /* borrowed */
    struct vec state[OPTIM_STATE_MAX];    /* ops->states of them, as long as x */
};

/* Look up solver->type and take state for n floats from the arena.
 * ERR_UNSUPPORTED  an optimizer or solver field that is not supported, by name
 * ERR_INPUT        a value out of range, those of the schedule included (schedule_check)
 * ERR_NOMEM */
int optim_init(struct optim *optim, const Caffe__SolverParameter *solver, size_t n,
               struct arena *arena, struct err *err);

/* One step at clock value t (schedule.h). */
void optim_update(struct optim *optim, double t, struct vec *x, const struct vec *dx,
                  const struct segments *table);

#endif
