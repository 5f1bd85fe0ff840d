/* Optimizers: element-wise updates of x from dx, with their state as flat vectors besides x.
 *
 * The rules are Caffe's, AdamW's are PyTorch's, and LARS' those of its paper. README.md has the
 * formulas. */
#ifndef PL_OPTIM_OPTIM_H
#define PL_OPTIM_OPTIM_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/vec.h"

enum { OPTIM_STATE_MAX = 3 };

/* Fields of the solver that some optimizers know and others do not. */
enum {
    OPTIM_MOMENTUM = 1,
    OPTIM_MOMENTUM2 = 2,
    OPTIM_RMS_DECAY = 4,
    OPTIM_DELTA = 8,
    OPTIM_TRUST = 16,
};

struct optim_step {
    const Caffe__SolverParameter *solver;
    float rate;      /* the schedule's value */
    float decay;     /* times x, to be added to the gradient: weight_decay under L2 */
    uint64_t number; /* from 1, counted since the state was zero */
};

struct optim_ops {
    const char *type;                        /* Caffe's name: "SGD" */
    unsigned reads;                          /* OPTIM_..., or-ed; others must not be set */
    bool no_momentum;                        /* its field `momentum` is another share */
    float momentum;                          /* of a solver that does not set the field */
    size_t states;                           /* vectors of state */
    const char *state_name[OPTIM_STATE_MAX]; /* as in checkpoints: "momentum" */
    bool keeps_step; /* state[0] is what the last step has subtracted from x */
    bool whole;      /* a step needs whole segments, so the range is all of x */
    /* x ← update over the range. NULL: the type is of the strategy `full_batch`, which has the
     * steps (descent.h) and no rate; optim_update is not called. */
    void (*update)(const struct optim_step *step, struct vec *x, const struct vec *dx,
                   struct vec *state, const struct segments *table, struct range range);
};

struct optim {
    const struct optim_ops *ops;
    const Caffe__SolverParameter *solver; /* borrowed */
    struct vec state[OPTIM_STATE_MAX];    /* ops->states of them, as long as x */
    uint64_t updates;                     /* updates behind the state; sent and saved with it */
    double scale;                         /* factor of the schedule's rates; 1 at first */
    /* Of the whole gradient, for the next update by a part of it. */
    double norm;
    bool has_norm; /* false: dx is the whole */
};

/* Look up solver->type and take state for n floats from the arena.
 * ERR_UNSUPPORTED  an optimizer or solver field that is not supported, by name
 * ERR_INPUT        a value out of range, those of the schedule included (schedule_check)
 * ERR_NOMEM */
int optim_init(struct optim *optim, const Caffe__SolverParameter *solver, size_t n,
               struct arena *arena, struct err *err);

/* One step at clock value t (schedule.h). The solver's changes of the gradient before any rule are
 * done in place: clip_gradients, then the decay of regularization_type "L1". */
void optim_update(struct optim *optim, double t, struct vec *x, struct vec *dx,
                  const struct segments *table);

/* The same by plain SGD at the solver's rate and decay, whatever its type: no state changes. `step`
 * is as long as x, finite, and receives what is subtracted. */
void optim_step_plainly(const struct optim *optim, double t, struct vec *x, const struct vec *dx,
                        struct vec *step, const struct segments *table);

/* Does a step begin with the norm of the whole gradient? */
bool optim_clips(const struct optim *optim);

/* The square of a segment's norm, 0 where it is frozen: that of the whole is the sum. */
double optim_square(const struct segment *segment, const struct vec *dx);

/* Does optim_update write dx? */
bool optim_writes_gradient(const struct optim *optim);

/* Does a step need all of x and dx at once, so that no shard can take its own? */
bool optim_needs_whole(const struct optim *optim);

/* Momentum: the share of a step's direction that earlier steps have, β1 of Adam; 0: none. */
float optim_momentum(const Caffe__SolverParameter *solver);

/* Forget: as optim_init left it. */
void optim_reset(struct optim *optim);

#endif
