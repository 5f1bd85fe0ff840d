/* A watch over a long open or read: it receives the progress and may cancel. */
#ifndef PL_BASE_OPEN_WATCH_H
#define PL_BASE_OPEN_WATCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct open_watch {
    void *user;
    /* `done` of `total` of a stage, which is named after what is counted: "bytes", "pictures".
     * Within a stage `done` does not fall, and the last call has done == total; the next stage may
     * have the same name. total 0: nobody knows how many there are. Called about once a record that
     * takes a read, so that it must be cheap, and on the caller's thread alone. false: opening ends
     * with ERR_CANCELLED. */
    bool (*progress)(void *user, const char *stage, uint64_t done, uint64_t total);
};

/* Report progress to the watch, which may be NULL. ERR_CANCELLED: "opening was cancelled". */
static inline int open_watch_report(const struct open_watch *watch, const char *stage,
                                    uint64_t done, uint64_t total, struct err *err)
{
    if (!watch || watch->progress(watch->user, stage, done, total))
        return OK;
    return err_set(err, ERR_CANCELLED, "opening was cancelled");
}

#endif
