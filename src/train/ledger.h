/* The driver's ledger. The members' reports of an exchange become one `exchange` event, and the
 * samples that were used, repeated and missed are added up. */
#ifndef PL_TRAIN_LEDGER_H
#define PL_TRAIN_LEDGER_H

#include "plan/run_model.h"
#include "strategy/strategy.h"
#include "train/blame.h"
#include "train/events.h"
#include "train/handshake_message.h"
#include "train/worker_cache.h"

/* The lease part of a worker's report (data/lease_cursor.h). */
struct lease_report {
    uint64_t taken, repeated; /* samples since it joined: of its leases, and repeated */
    uint64_t want;            /* samples that request `request` asks for; 0: no request is open */
    uint32_t request;
    bool ends; /* it takes no more steps: the rest of its leases is unused */
};

/* A member's report of an exchange that it has committed. */
struct committed {
    uint32_t lane;
    uint64_t n;               /* 0: a report of progress alone */
    bool asynchronous;        /* an asynchronous worker's own exchange */
    struct progress progress; /* after the exchange */
    struct exchange_cost cost;
    uint64_t samples; /* of all members in the exchange; asynchronous: of this worker since its
                         last report */
    double loss;      /* Σ over them */
    double recent;    /* of a worker that trains alone: mean over its last solver.average_loss
                         steps */
    struct members contributors, participants;
    double steps_s;            /* seconds of this worker's steps, with what follows */
    double data_s;             /* seconds that this worker has waited for its records */
    struct cache_report cache; /* of this worker */
    struct lease_report lease; /* free */
    /* With local_data: of each of this worker's holdings, its hash, the records that have arrived
     * and the samples that it has taken. */
    uint32_t holdings;
    struct holding_use of_holding[HOLDINGS_MAX];
};

void committed_encode(const struct committed *c, struct buf *out);
/* ERR_PROTOCOL */
int committed_decode(struct byte_reader *in, struct committed *out);

enum { LEDGER_OPEN_MAX = 8 };

struct ledger_entry {
    bool open;
    uint32_t slowest;     /* the member that arrived last: its exchange took the shortest time */
    double shortest_s;    /* this time, s */
    struct committed sum; /* of the first report, with the largest seconds and wait of all */
    size_t reports, expected;
    struct blame_use use[VIEW_MEMBERS_MAX]; /* of its members, as far as they are known */
    size_t uses;
};

/* Observations of the driver itself by the time of a report. */
struct ledger_seen {
    double evaluated_s; /* seconds that it has evaluated in, of all the run */
    double silent_s;    /* the longest time between two heartbeats of the reporting member since its
                           last report, and the one that still lasts */
    double waited_for_silent_s; /* likewise, that still lasts of the node that it waited for */
    bool on_driver_host;        /* the member is on the driver's machine */
};

/* The counts of an asynchronous worker's own work. */
struct ledger_own {
    uint64_t samples, exchanges,
        repeated_by; /* repeated_by: samples repeated under earlier leases */
};

struct ledger {
    const struct events *events;
    const struct logger *log;
    const char *strategy;
    bool rejects;               /* outliers, too */
    struct run_model *measured; /* takes the time of each exchange that closes; NULL: none does */
    bool overlaps;              /* exchanges happen during steps */
    double closed_at;           /* time of the last one's end, s */
    struct ledger_entry entry[LEDGER_OPEN_MAX]; /* by progress.exchanges % LEDGER_OPEN_MAX: several
                                                   lanes may take turns */
    struct committed last; /* the newest closed exchange; n 0: none yet. In asynchronous strategies
                              its progress is the sum over all workers */
    uint64_t step_samples; /* asynchronous: samples of one step of all workers */
    const Paceline__Job *grows;    /* asynchronous: the job, if its batch grows; else NULL */
    size_t records;                /* of its epoch */
    uint64_t partial_step_samples; /* asynchronous: samples beyond last.progress.steps such steps */
    struct ledger_own own[VIEW_MEMBERS_MAX];
    uint32_t refused[VIEW_MEMBERS_MAX]; /* contributions in a row that did not count, */
    uint64_t rejected;                  /* and those of all */
    /* Samples. Synchronous strategies: `used` counted in exchanges; `missed` were in a dead
     * worker's share of the round under way. Asynchronous strategies: `used` were reported by
     * workers, each once; repeated ones were trained again because no lease had arrived; `missed`
     * are the lost ones of the lease table (data/lease.h). */
    uint64_t used, repeated_leases, repeated, missed;
    double data_s;                               /* the largest of all reports */
    struct cache_report cache[VIEW_MEMBERS_MAX]; /* by node, as it reported last */
    struct blame_history history[VIEW_MEMBERS_MAX];
    struct ledger_seen seen;     /* set before a report */
    struct blame_driver driver;  /* its takes_part and beat_s are set at the start */
    struct blame_window quiet_s; /* the longest waits of exchanges without an evaluation */
    double evaluated_s;          /* of ledger_seen, as of the last exchange */
    bool at_bound;               /* asynchronous workers wait for others, not for a server */
    uint32_t slowest;            /* worker of the newest exchange */
    double loss;                 /* mean loss of the newest exchange's records */
    double recent;               /* as reported by a worker that trains alone */
    double loss_sum;             /* Σ over the samples reported since the last `loss` event */
    uint64_t loss_records;       /* their number */
    double mean_loss;            /* of the last `loss` event; NaN: none yet */
};

/* Process a report of `node`. An exchange is closed when all participants have reported it, or all
 * of the next one, or when the next but one is reported: a member that has not reported by then is
 * dead. */
void ledger_report(struct ledger *ledger, uint32_t node, const struct committed *report);

/* A contribution of `node` did not count: a log line and an event `rejected`. */
struct rejection {
    uint32_t lane, node;
    uint64_t n;
    bool outlier;
};
void ledger_reject(struct ledger *ledger, const struct rejection *rejection);

/* Driver recovery: the run resumes from `progress`, whatever was reported before. */
void ledger_resume(struct ledger *ledger, const struct progress *progress);

/* Sums of what the caches of all workers keep. */
struct cache_report ledger_cached(const struct ledger *ledger);

/* In asynchronous strategies: take the counts of the lease table. */
void ledger_lease(struct ledger *ledger, const struct lease_table *table);

/* Emit a `loss` event: the mean loss of the samples reported since the previous one, the learning
 * rate at that epoch, and the samples of a step of all workers (0: no key). false: no samples were
 * reported, so there is no event. */
bool ledger_report_loss(struct ledger *ledger, double epoch, double rate, uint64_t batch);

/* Close all open exchanges, in order. */
void ledger_close(struct ledger *ledger);

#endif
