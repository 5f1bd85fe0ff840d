/* Sums over the records of a batch, in an order that does not depend on the split of the batch.
 *
 * Records are summed one after another within slices of SLICE_RECORDS, and the slices pairwise, as
 * a binomial tree sums its ranks. So one worker with a batch of 64 and four workers with 16 each,
 * whose gradients a tree adds up, give the same bits: the distributed run equals the single one
 * exactly. */
#ifndef PL_TENSOR_SLICES_H
#define PL_TENSOR_SLICES_H

#include "base/arena.h"

enum { SLICE_RECORDS = 16, SLICE_LEVELS_MAX = 48 };

struct slices {
    size_t records, floats;
    float *level[SLICE_LEVELS_MAX]; /* partial sums: one a level of the tree */
};

/* Room for sums of `floats` over `records`, from the arena; *bytes: how much. ERR_NOMEM */
int slices_init(struct slices *s, struct arena *arena, size_t records, size_t floats,
                size_t *bytes);

/* The sum over all records; valid until the next call. `set` sets `sum` to that of the records in
 * [first, first + count), at most SLICE_RECORDS of them. */
const float *slices_sum(struct slices *s,
                        void (*set)(void *user, size_t first, size_t count, float *sum),
                        void *user);

#endif
