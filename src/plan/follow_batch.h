/* Workers that follow a batch that grows (Elastic, §6.2, Algorithm 8, line 9): how many a run is to
 * have from now on. The thesis takes the fastest number for each batch, or, to save worker-seconds,
 * the number at which computing takes r times as long as an exchange (Eq. 6.11); here a change must
 * also pay for itself (ours). Its printed loop ends when m ≤ M, which is inverted; here the run's
 * own stop rule ends it. */
#ifndef PL_PLAN_FOLLOW_BATCH_H
#define PL_PLAN_FOLLOW_BATCH_H

#include "plan/scaling.h"

struct follow_batch {
    struct scaling model;
    double fixed_s;     /* (ours) seconds of a step whatever its batch, ≥ 0 */
    double ratio;       /* r of Eq. 6.10 that is wanted; 0: the fastest number is */
    bool printed;       /* N for r by the last form of Eq. 6.11, not by its root */
    double change_s;    /* seconds that all workers lose for each one that comes or goes, ≥ 0 */
    double gain;        /* the least share that a change must save, ≥ 0 */
    size_t least, most; /* of workers, 1 ≤ least ≤ most */
};

/* Seconds of a step of B samples with N workers; one alone exchanges nothing. */
double follow_batch_step(const struct follow_batch *f, double B, size_t N);

/* The number of workers for the batch B, when there are `now` and `left` samples are left to train.
 * Without a ratio it is the fastest number within the limits. With a ratio it is the largest whole
 * number up to Eq. 6.11's, and no more than the fastest. It is `now`, if the change saves less than
 * `gain` of a step's time or, over all samples left, less than it costs; of a change to fewer
 * workers for the ratio's sake, worker-seconds count in place of time. The batch only grows, so the
 * saving is estimated by B on the safe side. A `now` outside of the limits changes in any case. */
size_t follow_batch_workers(const struct follow_batch *f, double B, double left, size_t now);

#endif
