/* Checksums: XXH3 (xxhash). Not for security. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t len);

/* Fold `value` into `hash`; order matters. Start from 0. */
uint64_t hash_mix(uint64_t hash, uint64_t value);

#endif
