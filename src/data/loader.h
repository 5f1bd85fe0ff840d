/* A loader: hands out batches of a dataset's endless stream of epochs. The contents of a batch are
 * a pure function of (dataset, seed, start, count); preparing it ahead, and by how many tasks,
 * changes time alone.
 *
 * A loader begins synchronous: a batch is filled when it is taken. Once started, tasks of its world
 * fill the batches that are expected next while the caller works on the one before. A batch is
 * filled in pieces, those of the earliest unfinished batch first, so that all tasks work on the
 * batch that the caller needs first; a caller who finds it unfinished fills pieces, too. Before a
 * task fills, it has the files of all batches that are queued read ahead, so that no task waits for
 * a disk.
 *
 * The loader expects the same stride again and again, and a new stride when that has come twice in
 * a row, so that a jump between two stretches is one wrong guess and not two. A caller that knows
 * which batches follow tells it. A wrong guess drops the batches that do not match, and costs the
 * wait for their pieces under way, and a fill. */
#ifndef PL_DATA_LOADER_H
#define PL_DATA_LOADER_H

#include "data/batch.h"
#include "world/world.h"

#include <stdatomic.h>

/* Of the world's signals, the loader's; a world has at most one loader that is started. */
enum loader_signal { SIGNAL_LOADER_WANT = 2, SIGNAL_LOADER_READY = 3 };

/* Up to LOADER_AHEAD_MAX batches are prepared ahead, as many as fit into LOADER_AHEAD_BYTES
 * together, but at least one: large batches take no more memory than one that is used and one that
 * is prepared. */
enum { LOADER_AHEAD_MAX = 16, LOADER_PIECES = 16, LOADER_TASKS_MAX = 64 };
#define LOADER_AHEAD_BYTES ((size_t)256 << 20)

/* Tasks are added when the caller has waited for more than a tenth of the time of so many takes, or
 * of so many seconds: as many as would have kept up, at most as many again. */
enum { LOADER_WINDOW = 16, LOADER_WINDOW_S = 1 };

/* The sample offsets [start, start + count). */
struct stretch {
    uint64_t start;
    size_t count;
};

/* A batch, and what becomes of it. It has LOADER_PIECES pieces to fill and its read-ahead. Between
 * the claim of a piece and its end, the claimant has the piece's records; the caller has everything
 * while all are done. */
struct loader_slot {
    struct batch batch;
    struct stretch stretch;
    _Atomic unsigned done; /* pieces, and the read-ahead, that have ended or were dropped */
    atomic_flag failing;   /* held for the length of a copy of: */
    unsigned failed;       /* the first piece that failed, */
    int status;            /* of filling it; OK: none failed */
    struct err why;
};

struct loader_task {
    struct loader *loader;
    struct task *task;
    struct scratch scratch;
};

struct loader {
    const struct dataset *set;
    struct sampler sampler;
    struct loader_slot slot[1 + LOADER_AHEAD_MAX];
    size_t slots;                          /* that have memory: one until it is started */
    size_t ahead_bytes;                    /* at most, of those ahead; 0: LOADER_AHEAD_BYTES */
    size_t given;                          /* the slot that the caller has */
    uint64_t start;                        /* last taken */
    uint64_t stride, stepped;              /* expected; and the last one seen */
    struct stretch hint[LOADER_AHEAD_MAX]; /* the batches after the next one, */
    size_t hints;                          /* as far as they are known */
    uint64_t takes, hits;                  /* while started; and how many were expected */
    double waited_s;                       /* seconds of the caller in those takes */
    struct world *world;                   /* NULL: not started */
    struct loader_task task[LOADER_TASKS_MAX];
    size_t tasks, tasks_max;
    int64_t window_begun;
    uint64_t window_takes;  /* takes, and */
    double window_waited_s; /* waited_s at that moment */
    /* Batches [first, last) are prepared or to be prepared; batch n is in slot n % slots, and its
     * pieces are [n, n + 1) * LOADER_PIECES. */
    uint64_t first, last;
    /* Pieces to fill, and batches to read ahead, that nobody has claimed: the first one's number,
     * and below it QUEUE_BITS bits for how many there are. Tasks only claim, the caller changes
     * them as it likes. */
    _Atomic uint64_t queue, prefetch_queue;
};

/* A synchronous loader of batches of up to `cap` (> 0) records, in memory of `arena`. `set` is
 * borrowed and not empty. ERR_NOMEM; `loader` is then unchanged. */
int loader_init(struct loader *loader, struct arena *arena, const struct dataset *set,
                uint64_t seed, size_t cap);

/* Take batches in the order of that sampler from now on; what its ranges point to is borrowed until
 * the next call, or until the loader is stopped. Prepared batches are dropped, and the call waits
 * for the pieces under way. ERR_CANCELLED */
int loader_draw(struct loader *loader, const struct sampler *sampler);

/* Prepare batches ahead from now on, in tasks of `world`; one task of `world` calls all functions
 * of the loader. It begins with a task for every four of the caller's `threads` (> 0), at least
 * one, and may add tasks until there are as many as threads. The further batches come from `arena`.
 * ERR_NOMEM: the loader stays synchronous. */
int loader_start(struct loader *loader, struct arena *arena, struct world *world, int threads);

/* End the tasks, and wait for their end: each finishes its piece. Synchronous from now on. Nothing
 * if not started. The arena may be released after it and not before. */
void loader_stop(struct loader *loader);

/* Free what is not the arena's; the loader must not be started. */
void loader_release(struct loader *loader);

/* Hint: after the next batch, and those of such hints since the last take, the one at these offsets
 * is probably taken (count > 0, ≤ cap). More than LOADER_AHEAD_MAX are ignored. */
void loader_expect(struct loader *loader, uint64_t start, size_t count);

/* The batch at these offsets (count ≤ cap), valid until the next call. ERR_CANCELLED, where it had
 * to wait, or the status of batch_fill: an unreadable record is an error of its own batch alone. */
int loader_take(struct loader *loader, uint64_t start, size_t count, const struct batch **batch,
                struct err *err);

/* The batch that was returned last, for other use; the prepared ones stay. */
struct batch *loader_spare(struct loader *loader);

/* Bytes of all batches. */
size_t loader_bytes(const struct loader *loader);

#endif
