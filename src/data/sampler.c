#include "data/sampler.h"

#include "base/fault.h"
#include "base/rng.h"

/* Four rounds make a Feistel network over large halves look random (Luby and Rackoff, 1988); the
 * halves of a small set are a bit or two wide and need more. */
enum { ROUNDS = 8 };

/* One pass over [0, 4^half): a permutation whatever the round function returns. */
static uint64_t permute_feistel(uint64_t key, unsigned half, uint64_t v)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = v >> half, right = v & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t mixed = rng_u64(key, RNG_ORDER, round << 32 | right);
        uint64_t next = left ^ (mixed & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

static size_t place_in_streams(const struct sampler *sampler, size_t place)
{
    size_t each = sampler->n / sampler->streams;
    if (place >= each * sampler->streams)
        return place;
    return place % sampler->streams * each + place / sampler->streams;
}

static size_t permute_place(const struct sampler *sampler, uint64_t epoch, size_t place)
{
    PL_ASSERT(place < sampler->n);
    if (sampler->streams > 0)
        return place_in_streams(sampler, place);
    unsigned half = 0;
    while (half < 32 && ((uint64_t)sampler->n - 1) >> 2 * half)
        half++;
    uint64_t key = rng_u64(sampler->seed, RNG_ORDER, epoch);
    /* The walk follows a cycle that contains `place` itself, so it ends, after fewer than four
     * steps on average, since n is more than a quarter of the network's range. */
    uint64_t v = place;
    do
        v = permute_feistel(key, half, v);
    while (v >= sampler->n);
    return (size_t)v;
}

/* The range that holds the nth record of all, and *n within it. */
static size_t find_range(const struct sampler *sampler, size_t *n)
{
    size_t k = 0;
    while (k + 1 < sampler->ranges && *n >= sampler->range[k].len)
        *n -= sampler->range[k++].len;
    PL_ASSERT(*n < sampler->range[k].len);
    return k;
}

size_t sampler_at(const struct sampler *sampler, uint64_t epoch, size_t place)
{
    size_t n = permute_place(sampler, epoch, place);
    if (sampler->ranges == 0)
        return n;
    size_t k = find_range(sampler, &n);
    return sampler->range[k].from + n;
}

void sampler_count(const struct sampler *sampler, uint64_t start, size_t count, uint64_t *of_range)
{
    if (sampler->ranges <= 1) {
        of_range[0] += count;
        return;
    }
    for (uint64_t at = start; at < start + count; at++) {
        size_t n = permute_place(sampler, at / sampler->n, (size_t)(at % sampler->n));
        of_range[find_range(sampler, &n)]++;
    }
}
