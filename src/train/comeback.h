/* What a worker tells a driver that has come back (group.h, group_note): how far it is and what it
 * has in the book, so that the driver, which lost all that since its last checkpoint, counts on. */
#ifndef PL_TRAIN_COMEBACK_H
#define PL_TRAIN_COMEBACK_H

#include "strategy/strategy.h"

struct comeback {
    struct course course; /* as of its last commit point; where workers run free, its own */
    /* Where workers run free: what it has done itself, since it began. */
    uint64_t samples, exchanges;
    /* What the strategy tells a newcomer (ops->tell). */
    uint64_t words, word[ADMISSION_WORDS];
    uint64_t aside[GROUP_ASIDE]; /* as the last driver said: what others have done that are not
                                    there any more; records and exchanges, free-running */
};

void comeback_note(const struct comeback *back, uint64_t note[GROUP_NOTE]);
void comeback_read(const uint64_t note[GROUP_NOTE], struct comeback *back);

#endif
