/* The numbers that golden tests work on: a hash that their scripts compute, too, so that no input
 * need be stored. */
#ifndef PL_LIB_GOLDEN_HASH_H
#define PL_LIB_GOLDEN_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t hash_mix(uint32_t stream, uint32_t i)
{
    uint32_t v = i + 0x9E3779B9u * (stream + 1);
    for (int round = 0; round < 2; round++) {
        v ^= v >> 16;
        v *= 0x45D9F3Bu;
    }
    return v ^ v >> 16;
}

/* In [-1/2, 1/2), exact in a float. */
static inline float hash_unit(uint32_t stream, size_t i)
{
    return (float)(hash_mix(stream, (uint32_t)i) >> 8) * 0x1p-24f - 0.5f;
}

#endif
