/* A worker's report to a recovered driver (group.h, group_set_recovery_report): its progress and
 * its counts, so that the driver, which lost them since its last checkpoint, counts on. */
#ifndef PL_TRAIN_RECOVERY_REPORT_H
#define PL_TRAIN_RECOVERY_REPORT_H

#include "strategy/strategy.h"

struct recovery_report {
    struct progress progress; /* as of its last commit point; in asynchronous strategies, its own */
    /* In asynchronous strategies: what it has done itself, since it began. */
    uint64_t samples, exchanges;
    struct lease_holder lease; /* what it holds */
    uint64_t lease_high;       /* where the highest lease ends that it has had */
    uint32_t lease_request;    /* the number of its newest question */
    /* The strategy's join state (ops->export_join_state). */
    uint64_t words, join_state[JOIN_STATE_WORDS];
    /* As the last driver said, by enum aside: what others have done that are not there any more, in
     * asynchronous strategies. */
    uint64_t departed_totals[GROUP_TOTALS];
};

enum departed_total {
    DEPARTED_SAMPLES,
    DEPARTED_EXCHANGES,
    DEPARTED_REPEATED_BY,
    DEPARTED_REPEATED,
    DEPARTED_COUNT
};
_Static_assert((int)DEPARTED_COUNT == (int)GROUP_TOTALS, "what goes with a beat");

void recovery_report_write(const struct recovery_report *report, uint64_t words[GROUP_REPORT]);
void recovery_report_read(const uint64_t words[GROUP_REPORT], struct recovery_report *report);

#endif
