/* How a run stands, for those that watch: put together by the driver, ten times a second at most.
 */
#ifndef PL_TRAIN_PROGRESS_METER_H
#define PL_TRAIN_PROGRESS_METER_H

#include "train/ledger.h"

struct train_progress {
    double t;             /* seconds since the run began */
    double commit_t;      /* when its newest commit point was reported; 0: there was none */
    double epoch, epochs; /* where it is; where it ends, 0 when epochs do not end it */
    uint64_t steps;
    uint32_t workers;
    double loss, error; /* error < 0: none yet */
    double samples_per_s;
    double exchange_s; /* 0: there was none */
    uint32_t slowest;  /* worker of the newest exchange; WORLD_ANY: there was none */
    double eta_s;      /* < 0: unknown */
    /* Before the first exchange of a synchronous strategy: steps of the slowest worker towards it,
     * and the expected seconds until it; 0 and < 0: not before a first exchange. */
    uint64_t local_steps;
    double first_exchange_s;
};

struct progress_meter {
    double next;          /* when the next is due */
    double reported;      /* when the one before was */
    double t;             /* when the run was last seen to move, */
    uint64_t offset;      /* and to where */
    double rate;          /* samples a second, smoothed */
    double local_t;       /* when local steps were first reported */
    uint64_t local_steps; /* and their number */
};

/* Before the first commit: use the local steps. `round`: steps to the first exchange. */
void progress_meter_add_local(struct progress_meter *meter, uint64_t steps, uint64_t round,
                              double loss, struct train_progress *p);

/* Is it time for another: a tenth of a second after the one before, or, where nothing has moved,
 * a second? Then it is filled in. `records`: of the training set. */
bool progress_meter_poll(struct progress_meter *meter, const struct events *events,
                         const struct ledger *ledger, const Paceline__Job *job, size_t records,
                         struct train_progress *out);

#endif
