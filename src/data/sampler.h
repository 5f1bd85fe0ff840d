/* The order of an epoch: a permutation of [0, n), a pure function of (seed, epoch), computed at any
 * position in O(1) without memory. It is a balanced Feistel network over the next power of four,
 * walked until the value is below n. */
#ifndef PL_DATA_SAMPLER_H
#define PL_DATA_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

struct sampler {
    uint64_t seed;
    size_t n; /* > 0 */
};

/* Which record stands at `place` (< n) of epoch `epoch`. */
size_t sampler_at(const struct sampler *sampler, uint64_t epoch, size_t offset);

#endif
