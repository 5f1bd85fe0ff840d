/* How a run counts its progress, on its workers and on its driver.
 *
 * Synchronous: all members commit together, and the report of one speaks for all. Asynchronous:
 * each worker reports its own work, and the driver adds it up. progress_sync.c and progress_async.c
 * fill one table each; no other file of train asks which of the two a run has. */
#ifndef PL_TRAIN_PROGRESS_H
#define PL_TRAIN_PROGRESS_H

#include "strategy/strategy.h"
#include "train/ledger.h"

struct driver;
struct train_progress;
struct worker;

struct progress_ops {
    bool asynchronous; /* of reports; and two models with one progress may differ */

    /* ---- on a worker ---- */

    /* Before the strategy's loop: set the hooks of w->member and the counters. */
    void (*begin)(struct worker *w);
    /* The uses of the model that became due between w->counts.seen and this progress. */
    uint32_t (*uses_due)(const struct worker *w, const struct progress *progress);
    /* The progress that a joiner begins with, if this worker is its donor. */
    struct progress (*for_joiner)(struct worker *w);
    /* May a joiner be admitted at this step boundary within a round? */
    bool (*admits_in_round)(const struct worker *w);
    /* May this worker pause there (worker_pause.h)? */
    bool (*pauses_in_round)(const struct worker *w);
    /* The loop has ended well: the last report. */
    int (*end)(struct worker *w);

    /* ---- on the driver ---- */

    /* Workers whose steps make the rounds between two exchanges. */
    uint32_t (*together)(const struct driver *d);
    /* The progress of a recovered run, from the workers' recovery reports. */
    struct progress (*recover)(struct driver *d, const struct view *view);
    /* A report of a returned member, while the driver still waits for others. */
    void (*on_early_report)(struct driver *d, uint32_t node, const struct committed *report);
    /* The ledger has taken a report. */
    void (*on_report)(struct driver *d);
    /* Commit points so far: exchanges, or steps where those are no commit points. */
    uint64_t (*commits)(const struct progress *progress);
    /* Before the first exchange: the progress of the round. */
    void (*add_local)(struct driver *d, const struct view *view, struct train_progress *p);
    /* Once in each turn of the main task: end the driver part when it has nothing left to do. */
    void (*check_end)(struct driver *d, const struct view *view);
    /* The driver part's hook (driver_part.on_commit). */
    int (*on_part_commit)(struct driver_part *l, const struct exchange *e);
    /* The progress of the driver part's model as of now, which must not change meanwhile. */
    struct progress (*of_part)(struct driver *d);
    /* The progress behind a model that a worker sends for all; NULL: the model has it itself. */
    void (*behind_model)(void *driver, struct progress *progress);
};

extern const struct progress_ops progress_sync, progress_async;

static inline const struct progress_ops *progress_of(const struct strategy_traits *traits)
{
    return traits->is_async ? &progress_async : &progress_sync;
}

#endif
