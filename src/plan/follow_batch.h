/* Workers that follow a batch that grows (Elastic, §6.2, Algorithm 8, line 9): how many a run is to
 * have from now on. The thesis takes the fastest number for each batch; here a change must also pay
 * for itself (ours). Its printed loop ends when m ≤ M, which is inverted; here the run's own stop
 * rule ends it. */
#ifndef PL_PLAN_FOLLOW_BATCH_H
#define PL_PLAN_FOLLOW_BATCH_H

#include "plan/scaling.h"

struct follow_batch {
    struct scaling model;
    double change_s;    /* seconds that all workers lose for each one that comes or goes, ≥ 0 */
    double gain;        /* the least share of a step's time that a change must save, ≥ 0 */
    size_t least, most; /* of workers, 1 ≤ least ≤ most */
};

/* Seconds of a step of B samples with N workers; one alone exchanges nothing. */
double follow_batch_step(const struct follow_batch *f, double B, size_t N);

/* The number of workers for the batch B, when there are `now` and `left` samples are left to train:
 * the fastest number within the limits, or `now`, if that saves less than `gain` of a step or, over
 * all samples left, less than the change costs. The batch only grows, so the saving is estimated by
 * B on the safe side. A `now` outside of the limits changes in any case. */
size_t follow_batch_workers(const struct follow_batch *f, double B, double left, size_t now);

#endif
