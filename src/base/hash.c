#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}

uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    return XXH3_64bits_withSeed(&value, sizeof value, hash);
}
