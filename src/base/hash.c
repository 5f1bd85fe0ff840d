#include "base/hash.h"

#include <xxhash.h>
#ifdef HASH_DISPATCHED
#include <xxh_x86dispatch.h> /* by what the processor has: three times as fast */
#endif

uint64_t hash_bytes(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}

/* It is one, and is never looked into. */
static XXH3_state_t *state_of(const struct hash_stream *stream)
{
    return (XXH3_state_t *)(uintptr_t)stream;
}

struct hash_stream *hash_stream_create(void)
{
    return (struct hash_stream *)XXH3_createState();
}

void hash_stream_free(struct hash_stream *stream)
{
    XXH3_freeState(state_of(stream));
}

void hash_stream_begin(struct hash_stream *stream)
{
    XXH3_64bits_reset(state_of(stream));
}

void hash_stream_add(struct hash_stream *stream, const void *data, size_t len)
{
    XXH3_64bits_update(state_of(stream), data, len);
}

uint64_t hash_stream_take(const struct hash_stream *stream)
{
    return XXH3_64bits_digest(state_of(stream));
}

uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    return XXH3_64bits_withSeed(&value, sizeof value, hash);
}
