#include "real/http_cache.h"

#include "base/hash.h"
#include "real/http.h"

#include <stdlib.h>

bool http_cache_init(struct http_cache *cache, size_t slots)
{
    *cache = (struct http_cache){.count = slots};
    cache->slot = calloc(slots, sizeof *cache->slot);
    cache->bucket = calloc(slots, sizeof(struct http_slot *));
    return cache->slot && cache->bucket;
}

void http_cache_release(struct http_cache *cache)
{
    for (size_t i = 0; cache->slot && i < cache->count; i++)
        free(cache->slot[i].bytes);
    free(cache->slot);
    free(cache->bucket);
}

static struct http_slot **bucket_of(struct http_cache *cache, const void *file, uint64_t number)
{
    return &cache->bucket[hash_mix((uint64_t)(uintptr_t)file, number) % cache->count];
}

struct http_slot *http_cache_find(struct http_cache *cache, const void *file, uint64_t number)
{
    struct http_slot *slot = *bucket_of(cache, file, number);
    while (slot && (slot->file != file || slot->number != number))
        slot = slot->next;
    return slot;
}

void http_cache_use(struct http_cache *cache, struct http_slot *slot)
{
    slot->used = ++cache->clock;
}

void http_cache_drop(struct http_cache *cache, struct http_slot *slot)
{
    struct http_slot **at = bucket_of(cache, slot->file, slot->number);
    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    slot->file = NULL;
    slot->fetch = NULL;
    slot->used = 0;
}

void http_cache_drop_file(struct http_cache *cache, const void *file)
{
    for (size_t i = 0; i < cache->count; i++)
        if (cache->slot[i].file == file && !cache->slot[i].fetch)
            http_cache_drop(cache, &cache->slot[i]);
}

/* The least recently used slot that nothing is fetched into; an empty one is older than any. */
static struct http_slot *find_oldest(struct http_cache *cache, bool with_bytes)
{
    struct http_slot *oldest = NULL;
    for (size_t i = 0; i < cache->count; i++) {
        struct http_slot *slot = &cache->slot[i];
        if (!slot->fetch && (slot->bytes || !with_bytes) && (!oldest || slot->used < oldest->used))
            oldest = slot;
    }
    return oldest;
}

struct http_slot *http_cache_claim(struct http_cache *cache, const void *file, uint64_t number,
                                   struct http_fetch *fetch)
{
    struct http_slot *slot = find_oldest(cache, false);
    if (slot && !slot->bytes) {
        slot->bytes = malloc(HTTP_BLOCK);
        if (slot->bytes)
            cache->held++;
        else
            slot = find_oldest(cache, true);
    }
    if (!slot)
        return NULL;
    if (slot->file)
        http_cache_drop(cache, slot);
    struct http_slot **bucket = bucket_of(cache, file, number);
    slot->file = file;
    slot->number = number;
    slot->fetch = fetch;
    slot->next = *bucket;
    *bucket = slot;
    return slot;
}
