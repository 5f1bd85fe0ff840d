/* A loader: hands out batches of a dataset's endless stream of epochs. The contents of a batch are
 * a pure function of (dataset, seed, start, count); preparing it ahead changes time alone.
 *
 * A loader begins synchronous: a batch is filled when it is taken. Once started it has a task of
 * its world which fills the batch that is expected next while the caller works on the one before.
 * It expects the same stride again, and a new stride when that has come twice in a row, so that a
 * jump between two stretches is one wrong guess and not two; who knows what comes next tells it. A
 * wrong guess costs the wait for what is being prepared, and a fill. */
#ifndef PL_DATA_LOADER_H
#define PL_DATA_LOADER_H

#include "data/batch.h"
#include "world/world.h"

/* Of the world's signals, the loader's; a world has at most one loader that is started. */
enum loader_signal { SIGNAL_LOADER_WANT = 2, SIGNAL_LOADER_READY = 3 };

/* The sample offsets [start, start + count). */
struct stretch {
    uint64_t start;
    size_t count;
};

struct loader {
    const struct dataset *set;
    struct sampler sampler;
    struct batch batch[2]; /* the second only once started */
    int status[2];         /* of filling each; and why, where it is not OK */
    struct err why[2];
    size_t given;             /* which of them the caller has; the task fills the other */
    uint64_t start;           /* last taken */
    uint64_t stride, stepped; /* expected; and the last one seen */
    struct stretch expected;  /* the batch after the next one; count 0: unknown */
    uint64_t takes, hits;     /* while started; and how many were there already */
    /* Until it is started, world and task are NULL. */
    struct world *world;
    struct task *task;
    struct stretch ahead;     /* the batch that the task prepares; the task's own between the two
                                 signals */
    uint64_t asked;           /* how often */
    uint64_t wanted, readied; /* counts of the world's signals before */
};

/* A synchronous loader of batches of up to `cap` (> 0) records, in memory of `arena`. `set` is
 * borrowed and not empty. ERR_NOMEM; `loader` is then unchanged. */
int loader_init(struct loader *loader, struct arena *arena, const struct dataset *set,
                uint64_t seed, size_t cap);

/* Prepare batches ahead from now on, in a task of `world`; one task of `world` calls all functions
 * of the loader. The second batch comes from `arena`. ERR_NOMEM: the loader stays synchronous. */
int loader_start(struct loader *loader, struct arena *arena, struct world *world);

/* End the task, and wait for its end; synchronous from now on. Nothing if not started. The arena
 * may be released after it and not before. */
void loader_stop(struct loader *loader);

/* Free what is not the arena's; the loader must not be started. */
void loader_release(struct loader *loader);

/* Hint: after the next batch, the one at these offsets is probably taken (count > 0, ≤ cap). */
void loader_expect(struct loader *loader, uint64_t start, size_t count);

/* The batch at these offsets (count ≤ cap), valid until the next call. ERR_CANCELLED, or the status
 * of batch_fill: an unreadable record is an error of its own batch alone. */
int loader_take(struct loader *loader, uint64_t start, size_t count, const struct batch **batch,
                struct err *err);

/* The batch that was returned last, for other use; the prepared one stays. */
struct batch *loader_spare(struct loader *loader);

#endif
