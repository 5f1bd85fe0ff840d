/* The order of an epoch: a permutation of [0, n), a pure function of (seed, epoch), computed at any
 * position in O(1) without memory. Unless the records are streams, it is a balanced Feistel network
 * over the next power of four, walked until the value is below n. */
#ifndef PL_DATA_SAMPLER_H
#define PL_DATA_SAMPLER_H

#include "tensor/vec.h"

#include <stddef.h>
#include <stdint.h>

struct sampler {
    uint64_t seed;
    size_t n; /* > 0 */
    /* The records are those of these ranges (borrowed), n in all, one range behind the other;
     * ranges 0: they are [0, n). */
    const struct range *range;
    size_t ranges;
    /* Not 0, and at most n: the order is that of the records as so many streams of equal length,
     * side by side: the first record of each, then the second of each, and so on, and at last those
     * that are left. It is the same in each epoch. */
    size_t streams;
};

/* Which record stands at `place` (< n) of epoch `epoch`. */
size_t sampler_at(const struct sampler *sampler, uint64_t epoch, size_t place);

/* Add to count[k] how many of the places [start, start + count) of the endless stream of epochs
 * are records of range k; a sampler without ranges has one. O(count) with several ranges. */
void sampler_count(const struct sampler *sampler, uint64_t start, size_t count, uint64_t *of_range);

#endif
