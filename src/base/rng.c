#include "base/rng.h"

#include <math.h>

static inline void compute_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u;
        uint64_t p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4])
{
    compute_block(seed, stream, counter, out);
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t w[4];
    compute_block(seed, stream, counter, w);
    return (uint64_t)w[1] << 32 | w[0];
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n)
{
    __uint128_t wide = (__uint128_t)rng_u64(seed, stream, counter) * n;
    return (uint64_t)(wide >> 64);
}

float rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (float)(rng_u64(seed, stream, counter) >> 40) * 0x1p-24f;
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t w[4];
    rng_block(seed, stream, counter, w);
    double u = ((double)w[0] + 1.0) * 0x1p-32; /* in (0, 1] */
    double v = (double)w[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
