/* A learner: network + records + optimizer over flat vectors; the thing that takes a step.
 *
 * x changes only inside learner_update or between two learner calls. A learner works from one task;
 * `threads` compute threads serve it. */
#ifndef PL_LEARNER_LEARNER_H
#define PL_LEARNER_LEARNER_H

#include "learner/workspace.h"
#include "optim/optim.h"
#include "world/world.h"

struct learner {
    struct world *world; /* NULL: outside any, its work costs nothing but itself */
    const Paceline__Job *job;
    const struct corpus *corpus;
    struct workspace *ws;
    const struct segments *table; /* of x */
    struct vec x, dx, s;
    struct optim optim;
    uint64_t steps;             /* taken by this learner */
    uint64_t samples;           /* gone into those steps */
    double loss;                /* mean loss of the last batch */
    _Atomic uint64_t *progress; /* counts steps begun, for heartbeats; may be NULL */
    double step_seconds;        /* what a step costs a node with speed 1; 0 in the real world */
};

/* Everything is borrowed and must outlive the learner. x, s and the optimizer state come from
 * `arena`, and so does dx unless `dx` brings one that learners share. x and s get the job's initial
 * values. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int learner_init(struct learner *l, struct world *world, const Paceline__Job *job,
                 const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                 struct vec *dx, struct err *err);

/* dx ← gradient of the mean loss over the records at places [start, start + count) of the training
 * set's endless stream of epochs; count ≤ job->batch.
 *
 * ERR_DIVERGED  the loss is not finite; dx is not to be used
 * or what the world's work returns, or its sleep, where the job sets a pace */
int learner_gradient(struct learner *l, uint64_t start, size_t count);

/* x ← optimizer's update by dx at the schedule's rate; `start` is what the gradient was given. */
void learner_update(struct learner *l, uint64_t start);

/* One step: learner_gradient, then learner_update. */
int learner_step(struct learner *l, uint64_t start, size_t count);

#endif
