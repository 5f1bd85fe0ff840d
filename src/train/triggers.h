/* The triggers of a copy of the global model, as pure functions of the run's progress. */
#ifndef PL_TRAIN_TRIGGERS_H
#define PL_TRAIN_TRIGGERS_H

#include "strategy/strategy.h"

/* Uses (model.h) that fell due between two commit points: an evaluation, every `exchanges` of them
 * or every so many steps if the job says so; a snapshot, at every `solver.snapshot` steps. */
uint32_t trigger_uses(const Paceline__Job *job, uint64_t exchanges, const struct progress *before,
                      const struct progress *after);

/* In asynchronous strategies: how many evaluations and snapshots are due from the run's beginning
 * to where all are together. Without a word in the job they come once an epoch of so many
 * records. */
struct trigger_counts {
    uint64_t evaluations, snapshots;
};
struct trigger_counts trigger_counts_of(const Paceline__Job *job, uint64_t exchanges,
                                        size_t records, const struct progress *all);

#endif
