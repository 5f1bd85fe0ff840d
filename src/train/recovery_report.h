/* A worker's recovery report (group_set_recovery_report in group.h): its progress and counts. The
 * recovered driver has lost those since its last checkpoint, and rebuilds its ledger from the
 * reports. */
#ifndef PL_TRAIN_RECOVERY_REPORT_H
#define PL_TRAIN_RECOVERY_REPORT_H

#include "strategy/strategy.h"

struct recovery_report {
    struct progress progress; /* as of its last commit point; in asynchronous strategies, its own */
    /* In asynchronous strategies: this worker's own counts since it began. */
    uint64_t samples, exchanges;
    struct lease_holder lease; /* its leases */
    uint64_t lease_high;       /* end of the highest lease that it has had */
    uint32_t lease_request;    /* number of its newest request */
    /* The strategy's join state (ops->export_join_state). */
    uint64_t words, join_state[JOIN_STATE_WORDS];
    /* In asynchronous strategies: the totals of departed members, from the last driver's beats. */
    uint64_t departed_totals[GROUP_TOTALS];
};

enum departed_total {
    DEPARTED_SAMPLES,
    DEPARTED_EXCHANGES,
    DEPARTED_REPEATED_BY,
    DEPARTED_REPEATED,
    DEPARTED_COUNT
};
_Static_assert((int)DEPARTED_COUNT == (int)GROUP_TOTALS, "the totals of a heartbeat");

void recovery_report_write(const struct recovery_report *report, uint64_t words[GROUP_REPORT]);
void recovery_report_read(const uint64_t words[GROUP_REPORT], struct recovery_report *report);

/* The counts of all workers of an asynchronous run, those that have left included: from the reports
 * (by node) of the members in `nodes`, but no less than the progress `least`, that of a checkpoint.
 * A worker that died with the driver is in no report, but the checkpoint contains what it had
 * reported. */
struct recovery_sum {
    uint64_t samples, exchanges;
    uint64_t untaken;         /* samples that are in none of these reports */
    uint64_t repeated_leases; /* samples that were trained on again because no lease had arrived */
    uint64_t repeated;        /* these, and samples of doubtful leases (data/lease.h) */
};

struct recovery_sum recovery_sum(const struct recovery_report *reports, const struct members *nodes,
                                 const struct progress *least);

#endif
