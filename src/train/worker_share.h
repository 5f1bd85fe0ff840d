/* A worker's side of local_data: the holdings that it names in its hello, and the ranges of them
 * that the driver assigns it in each view (train/holdings.h). */
#ifndef PL_TRAIN_WORKER_SHARE_H
#define PL_TRAIN_WORKER_SHARE_H

#include "train/holdings.h"
#include "train/ledger.h"

struct worker;

struct worker_share {
    struct hello_records described; /* as its first hello has them */
    _Atomic uint32_t holdings;
    struct range holding[HOLDINGS_MAX]; /* in the training set */
    uint64_t taken[HOLDINGS_MAX];       /* samples, before the present share */
    uint32_t of_range[HOLDINGS_MAX];    /* the holding of each of the learner's ranges */
    uint32_t view;                      /* of the present share; 0: it has none */
    bool grows;                         /* records still arrive, */
    bool adds;                          /* or whole parts, which are further holdings, */
    bool awaits;                        /* of which the present share has none yet */
    _Atomic uint64_t epoch_records;     /* of the run; 0: not known yet */
};

/* Describe the records of this worker's data, for its hello. */
void worker_describe_records(struct worker *w);

/* The description, with the samples of an epoch as far as they are known. Any task */
void worker_copy_records(const struct worker *w, struct hello_records *out);

/* Before the data is opened: wait for as many records of a stream that grows as the job asks
 * for. Reports the progress of opening, whose errors are returned, too. ERR_INPUT: the job is
 * for records that are complete */
int worker_await_records(struct worker *w);

/* Before training: wait for the share in this worker's first view. ERR_DRIVER: the run is over, or
 * without a driver; ERR_PROTOCOL, ERR_CANCELLED */
int worker_await_share(struct worker *w);

/* At a step boundary: take a new share, if there is one, and records that have arrived. Parts that
 * have arrived are in the next report, and the driver then sends a share with them.
 * ERR_PROTOCOL, ERR_CANCELLED */
int worker_poll_share(struct worker *w);

/* Add the counts to a report. */
void worker_report_share(const struct worker *w, struct committed *report);

#endif
