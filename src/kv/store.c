#include "kv/store.h"

#include "base/array.h"
#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

struct kv_value *kv_value_new(const char *key, const struct kv_meta *meta)
{
    if (meta->size > KV_VALUE_MAX || meta->size > SIZE_MAX - sizeof(struct kv_value))
        return NULL;
    struct kv_value *value = malloc(sizeof *value + (size_t)meta->size);
    if (!value)
        return NULL;
    value->meta = *meta;
    atomic_init(&value->references, 1);
    memcpy(value->key, key, strlen(key) + 1);
    return value;
}

struct kv_value *kv_value_ref(struct kv_value *value)
{
    atomic_fetch_add(&value->references, 1);
    return value;
}

void kv_value_unref(struct kv_value *value)
{
    if (value && atomic_fetch_sub(&value->references, 1) == 1)
        free(value);
}

/* ---- copies ---- */

static void forget_copy(struct kv_store *store, const struct kv_copy *copy)
{
    store->bytes -= copy->value->meta.size;
    kv_value_unref(copy->value);
}

static void forget_retired(struct kv_store *store, size_t i)
{
    forget_copy(store, &store->retired[i]);
    store->retired[i] = store->retired[--store->retirees];
}

void kv_store_release(struct kv_store *store)
{
    while (store->retirees)
        forget_retired(store, 0);
    while (store->count)
        forget_copy(store, &store->copy[--store->count]);
    free(store->copy);
    memset(store, 0, sizeof *store);
}

struct kv_copy *kv_store_find(struct kv_store *store, const char *key)
{
    for (size_t i = 0; i < store->count; i++)
        if (strcmp(store->copy[i].value->key, key) == 0)
            return &store->copy[i];
    return NULL;
}

/* A reader of the copy at this moment need not start over. The one that was read the longest time
 * ago makes room. */
static void retire_copy(struct kv_store *store, const struct kv_copy *copy, int64_t since)
{
    if (copy->read == 0 || copy->read < since) {
        forget_copy(store, copy);
        return;
    }
    if (store->retirees == KV_RETIRED_MAX) {
        size_t oldest = 0;
        for (size_t i = 1; i < KV_RETIRED_MAX; i++)
            if (store->retired[i].read < store->retired[oldest].read)
                oldest = i;
        forget_retired(store, oldest);
    }
    store->retired[store->retirees++] = *copy;
}

static struct kv_copy *new_copy(struct kv_store *store)
{
    if (!array_grow(&store->copy, store->count, &store->room, sizeof *store->copy))
        return NULL;
    return &store->copy[store->count++];
}

int kv_store_put(struct kv_store *store, struct kv_value *value, int64_t since)
{
    struct kv_copy *copy = kv_store_find(store, value->key), old = {0};
    PL_ASSERT(!copy || copy->value->meta.version <= value->meta.version);
    bool same_version = copy && copy->value->meta.version == value->meta.version;
    if (same_version && copy->value->meta.checksum == value->meta.checksum)
        return OK;
    if (!copy && store->count == KV_ENTRIES_MAX)
        return ERR_FULL;
    if (copy)
        old = *copy;
    else
        copy = new_copy(store);
    if (!copy)
        return ERR_NOMEM;
    *copy = (struct kv_copy){.value = kv_value_ref(value)};
    store->bytes += value->meta.size;
    if (old.value)
        retire_copy(store, &old, same_version ? INT64_MAX : since);
    return OK;
}

void kv_store_drop(struct kv_store *store, const char *key, int64_t since)
{
    struct kv_copy *copy = kv_store_find(store, key);
    if (!copy)
        return;
    const struct kv_copy old = *copy;
    *copy = store->copy[--store->count];
    retire_copy(store, &old, since);
}

struct kv_value *kv_store_read(struct kv_store *store, const char *key, uint64_t version,
                               int64_t now)
{
    struct kv_copy *copy = kv_store_find(store, key);
    if (copy && copy->value->meta.version != version)
        copy = NULL;
    for (size_t i = 0; !copy && i < store->retirees; i++)
        if (store->retired[i].value->meta.version == version &&
            strcmp(store->retired[i].value->key, key) == 0)
            copy = &store->retired[i];
    if (!copy)
        return NULL;
    copy->read = now > 0 ? now : 1;
    return copy->value;
}

int64_t kv_store_sweep(struct kv_store *store, int64_t since)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < store->retirees;) {
        if (store->retired[i].read < since) {
            forget_retired(store, i);
            continue;
        }
        if (store->retired[i].read < first)
            first = store->retired[i].read;
        i++;
    }
    return first;
}
