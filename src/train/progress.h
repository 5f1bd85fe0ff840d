/* How a run stands, for whoever watches: put together by the driver, ten times a second at most. */
#ifndef PL_TRAIN_PROGRESS_H
#define PL_TRAIN_PROGRESS_H

#include "train/ledger.h"

struct train_progress {
    double t;             /* seconds since the run began */
    double epoch, epochs; /* where it is; where it ends, 0 when epochs do not end it */
    uint64_t steps;
    uint32_t workers;
    double loss, error; /* error < 0: none yet */
    double samples_per_s;
    double exchange_s; /* 0: there was none */
    uint32_t slowest;  /* worker of the newest exchange; WORLD_ANY: there was none */
    double eta_s;      /* < 0: unknown */
};

struct progress_meter {
    double next;    /* when the next is due */
    double t;       /* of the one before, */
    uint64_t place; /* and where it was */
    double rate;    /* samples a second, smoothed */
};

/* Is it time for another? Then it is filled in. `records`: of the training set. */
bool progress_due(struct progress_meter *meter, const struct events *events,
                  const struct ledger *ledger, const Paceline__Job *job, size_t records,
                  struct train_progress *out);

#endif
