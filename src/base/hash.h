/* Checksums: XXH3 (xxhash). Not for security. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t len);

/* The same for bytes in pieces: begin, add each piece, take the hash. */
struct hash_stream;

struct hash_stream *hash_stream_create(void); /* NULL: out of memory */
void hash_stream_free(struct hash_stream *stream);
void hash_stream_begin(struct hash_stream *stream);
void hash_stream_add(struct hash_stream *stream, const void *data, size_t len);
uint64_t hash_stream_take(const struct hash_stream *stream);

/* Fold `value` into `hash`; order matters. Start from 0. */
uint64_t hash_mix(uint64_t hash, uint64_t value);

#endif
