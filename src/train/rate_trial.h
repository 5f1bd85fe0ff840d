/* A learning-rate range test of a job's learner (plan/rate_range.h): one learner trains while the
 * rate grows, on records that are loaded ahead, as on a worker. */
#ifndef PL_TRAIN_RATE_TRIAL_H
#define PL_TRAIN_RATE_TRIAL_H

#include "base/arena.h"
#include "base/logger.h"
#include "job/job.h"
#include "learner/corpus.h"
#include "plan/rate_range.h"
#include "tensor/tuner.h"
#include "world/world.h"

#include <stdatomic.h>

struct rate_step {
    double rate, loss, smoothed;
    double accuracy; /* -1: not measured at this step */
};

enum rate_trial_end { RATE_COMPLETE, RATE_STOPS_AT_RISE, RATE_NOT_FINITE, RATE_STOPPED };

struct rate_trial_options {
    struct rate_sweep sweep;
    struct tuner *tuner;    /* chooses kernels */
    const atomic_int *stop; /* above 0: end after the step under way; may be NULL */
    /* (optional) Called after each step; `step` counts from 0. */
    void (*step)(void *user, const struct rate_step *taken, uint32_t step);
    void *user;
};

struct rate_trial {
    struct rate_step *step; /* the arena's, as many as the sweep has at most */
    size_t steps;           /* taken, > 0 */
    enum rate_trial_end end;
    uint32_t batch;      /* records of a step */
    enum corpus_set set; /* that accuracies are of, */
    size_t records;      /* its first ones; 0: no accuracy is measured */
};

/* On a task of `world`. The job is a finished one of one worker, with a schedule that is always 1;
 * columns that its data finds are written into it. Its batch and its iter_size make a step.
 *
 * ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM; ERR_DIVERGED: the first loss is not finite; ERR_STOP:
 * stopped before a step ended */
int rate_trial_run(struct world *world, Paceline__Job *job, const struct source_config *config,
                   const struct logger *log, const struct rate_trial_options *options,
                   struct arena *arena, struct rate_trial *out, struct err *err);

#endif
