/* The triggers of a copy of the global model, as pure functions of the run's progress. */
#ifndef PL_TRAIN_TRIGGERS_H
#define PL_TRAIN_TRIGGERS_H

#include "strategy/strategy.h"

/* Uses (model.h) that fell due between two commit points: an evaluation every `exchanges`
 * exchanges, or every so many steps if the job sets that, or once an epoch of `records` where the
 * batch grows and the job sets neither; a snapshot every `solver.snapshot` steps. */
uint32_t trigger_uses(const Paceline__Job *job, uint64_t exchanges, size_t records,
                      const struct progress *before, const struct progress *after);

/* Of requested uses, the checkpoint, if it is to wait for the next exchange: it will be a flush
 * (coll/exchange.h), or, in a run that keeps the states of streams, have a vote for the checkpoint.
 * `e` has just completed. One that is urgent does not wait. */
uint32_t trigger_awaits_exchange(const struct exchange *e, bool keeps_streams, uint32_t uses);

/* The same where the strategy says that the model lacks what lossy wires owe. */
uint32_t trigger_awaits_owed(bool owes, uint32_t uses);

/* In asynchronous strategies: the number of evaluations and snapshots due from the run's beginning
 * to the summed progress. If the job sets none, evaluations are due once an epoch of `records`. */
struct trigger_counts {
    uint64_t evaluations, snapshots;
};
struct trigger_counts trigger_counts_of(const Paceline__Job *job, uint64_t exchanges,
                                        size_t records, const struct progress *all);

#endif
