/* What a worker tells a driver that has come back (group.h, group_set_recovery_report): how far it
 * is and what it
 * has in the book, so that the driver, which lost all that since its last checkpoint, counts on. */
#ifndef PL_TRAIN_COMEBACK_H
#define PL_TRAIN_COMEBACK_H

#include "strategy/strategy.h"

struct comeback {
    struct course course; /* as of its last commit point; where workers run free, its own */
    /* Where workers run free: what it has done itself, since it began. */
    uint64_t samples, exchanges;
    struct lease_holder lease; /* what it holds */
    uint64_t lease_high;       /* where the highest lease ends that it has had */
    uint32_t lease_ask;        /* the number of its newest question */
    /* What the strategy tells a newcomer (ops->tell). */
    uint64_t words, word[ADMISSION_WORDS];
    /* As the last driver said, by enum aside: what others have done that are not there any more,
     * where workers run free. */
    uint64_t aside[GROUP_TOTALS];
};

enum aside { ASIDE_SAMPLES, ASIDE_EXCHANGES, ASIDE_AGAIN, ASIDE_REPEATED, ASIDE_COUNT };
_Static_assert((int)ASIDE_COUNT == (int)GROUP_TOTALS, "what goes with a beat");

void comeback_note(const struct comeback *back, uint64_t note[GROUP_REPORT]);
void comeback_read(const uint64_t note[GROUP_REPORT], struct comeback *back);

#endif
