/* What a worker tells a driver that has returned (group.h, group_set_recovery_report): how far it
 * is and what it has in the book, so that the driver, which lost all that since its last
 * checkpoint, counts on. */
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
    /* What the strategy tells a joiner (ops->tell). */
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
