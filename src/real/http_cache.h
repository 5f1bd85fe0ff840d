/* Blocks of files in bounded memory; the least recently used one goes. The caller has a lock. */
#ifndef PL_REAL_HTTP_CACHE_H
#define PL_REAL_HTTP_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_fetch;

struct http_slot {
    const void *file;         /* NULL: empty */
    uint64_t number;          /* of the block in the file */
    struct http_fetch *fetch; /* fills it, and alone may write its bytes; NULL: it is full */
    uint64_t used;            /* the cache's clock at the last use */
    struct http_slot *next;   /* in its bucket */
    uint8_t *bytes;           /* HTTP_BLOCK; NULL: it was never used */
};

struct http_cache {
    struct http_slot *slot;
    struct http_slot **bucket; /* as many as slots */
    size_t count, held;        /* slots; those with bytes */
    uint64_t clock;
};

bool http_cache_init(struct http_cache *cache, size_t slots);
void http_cache_release(struct http_cache *cache);

/* The slot of a block, full or not; NULL: it has none. */
struct http_slot *http_cache_find(struct http_cache *cache, const void *file, uint64_t number);

/* A slot for a block that has none, for `fetch` to fill. NULL: all are being filled, or there is no
 * memory. */
struct http_slot *http_cache_claim(struct http_cache *cache, const void *file, uint64_t number,
                                   struct http_fetch *fetch);

void http_cache_use(struct http_cache *cache, struct http_slot *slot);

/* Empty a slot. */
void http_cache_drop(struct http_cache *cache, struct http_slot *slot);

/* Empty all full slots of a file. */
void http_cache_drop_file(struct http_cache *cache, const void *file);

#endif
