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

/* The places [start, start + count) of the stream. */
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
    struct stretch expected;  /* what follows the batch that is taken next; count 0: nobody knows */
    uint64_t takes, hits;     /* while started; and how many were there already */
    /* Until it is started, world and task are NULL. */
    struct world *world;
    struct task *task;
    struct stretch ahead;     /* what the task was asked for; its own between want and ready */
    uint64_t asked;           /* how often */
    uint64_t wanted, readied; /* what the world's signals stood at before */
};

/* A synchronous loader of batches of up to `cap` (> 0) records, in memory of `arena`. `set` is
 * borrowed and not empty. ERR_NOMEM; `loader` is then unchanged. */
int loader_init(struct loader *loader, struct arena *arena, const struct dataset *set,
                uint64_t seed, size_t cap);

/* Prepare ahead from now on, on a task of `world`, whose task calls all functions of the loader. A
 * second batch comes from `arena`. ERR_NOMEM; the loader is then synchronous as before. */
int loader_start(struct loader *loader, struct arena *arena, struct world *world);

/* End the task, and wait for its end; synchronous from now on. Nothing if not started. The arena
 * may be released after it and not before. */
void loader_stop(struct loader *loader);

/* Give back what is not the arena's; the loader is not started. */
void loader_release(struct loader *loader);

/* Behind the batch that is taken next comes the one at those places (count > 0, ≤ cap), probably.
 */
void loader_expect(struct loader *loader, uint64_t start, size_t count);

/* The batch at those places (count ≤ cap), valid until the next call. ERR_CANCELLED, or what
 * batch_fill returns: a record that cannot be read is an error of the batch that it belongs to, and
 * of no other. */
int loader_take(struct loader *loader, uint64_t start, size_t count, const struct batch **batch,
                struct err *err);

/* The batch that was given last, to be used for something else; what was prepared stays. */
struct batch *loader_spare(struct loader *loader);

#endif
