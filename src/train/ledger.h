/* The driver's book of exchanges: what members report of each becomes one `exchange` event, and the
 * records that counted and those that were lost add up. */
#ifndef PL_TRAIN_LEDGER_H
#define PL_TRAIN_LEDGER_H

#include "strategy/strategy.h"
#include "train/events.h"

/* The lease part of each report of a worker (data/lease_cursor.h). */
struct lease_report {
    uint64_t taken, repeated; /* records since it came: of leases, and gone over again */
    uint64_t want;            /* question `ask` is open: so many more; 0: none is */
    uint32_t request;
    bool ends; /* it takes no step any more: what it holds is as it got it */
};

/* A member's report of an exchange that it has committed. */
struct committed {
    uint32_t lane;
    uint64_t n;               /* 0: no exchange, only how far a worker is */
    bool asynchronous;        /* its own: the strategy is asynchronous */
    struct progress progress; /* after it */
    struct exchange_cost cost;
    uint64_t samples; /* in the exchange, of all; free: of this worker since its last report */
    double loss;      /* Σ over them */
    double recent;    /* of a lone worker: the mean over its last solver.average_loss steps */
    struct members contributors, participants;
    struct lease_report lease; /* free */
};

void committed_encode(const struct committed *c, struct buf *out);
/* ERR_PROTOCOL */
int committed_decode(struct byte_reader *in, struct committed *out);

enum { LEDGER_OPEN_MAX = 8 };

struct ledger_entry {
    bool open;
    uint32_t slowest;     /* who came last: its exchange took the shortest, */
    double shortest_s;    /* so long */
    struct committed sum; /* of the first report; cost is the largest seconds and wait */
    size_t reports, expected;
};

/* The counts of an asynchronous worker's own work. */
struct ledger_own {
    uint64_t samples, exchanges, repeated_by; /* `again`: of the samples, by leases of before */
};

struct ledger {
    const struct events *events;
    const struct logger *log;
    const char *strategy;
    struct ledger_entry entry[LEDGER_OPEN_MAX]; /* by progress.exchanges % LEDGER_OPEN_MAX: several
                                                   lanes may take turns */
    struct committed last; /* the newest exchange that was closed; n 0: none yet; in asynchronous
                              strategies, its progress is that of them all */
    uint64_t step_samples; /* of a step of all together; free */
    uint64_t partial_step_samples; /* beyond last.progress.steps of those; free */
    struct ledger_own own[VIEW_MEMBERS_MAX];
    /* Records. Synchronous strategies: samples that counted in exchanges, and samples of a dead
     * worker's share of the round under way. Asynchronous strategies: samples that workers have
     * reported, each once; samples that they repeated, since no other lease had come; `missed` is
     * the driver's (data/lease.h, lost). */
    uint64_t used, repeated_leases, repeated, missed;
    uint32_t slowest; /* worker of the newest exchange */
    double loss;      /* mean loss of the newest exchange's records */
    double recent;    /* of a lone worker, as it says */
    double loss_sum;  /* Σ over the records that have been reported since the last `loss` event, */
    uint64_t loss_records; /* so many */
    double mean_loss;      /* of the last such event; NaN: none yet */
};

/* Takes a report of `node`. An exchange is closed when all who took part have reported, or when all
 * have of the next, or when the next but one is reported: who has not spoken by then is dead. */
void ledger_report(struct ledger *ledger, uint32_t node, const struct committed *report);

/* The run resumes from there, whatever has been reported yet: a driver has returned. */
void ledger_resume(struct ledger *ledger, const struct progress *progress);

/* In asynchronous strategies: what the book of leases says. */
void ledger_lease(struct ledger *ledger, const struct lease_table *table);

/* A `loss` event: the mean loss of the records reported since the one before, and the learning rate
 * at that epoch. false: none has been, and there is no event. */
bool ledger_report_loss(struct ledger *ledger, double epoch, double rate);

/* Close what is open, in order. */
void ledger_close(struct ledger *ledger);

#endif
