/* A node's copies of values: one version of each key, and for a while replaced ones that other
 * nodes still read. One task owns the store; values may be shared by many. */
#ifndef PL_KV_STORE_H
#define PL_KV_STORE_H

#include "kv/kv_table.h"

#include <stddef.h>

/* Never changes once it is made. Counted references; freed with the last. */
struct kv_value {
    struct kv_meta meta;
    _Atomic int references;
    char key[KV_KEY_MAX + 1];
    _Alignas(max_align_t) unsigned char data[];
};

/* Allocate a value of the size in `meta`, ≤ KV_VALUE_MAX; NULL when memory runs out. */
struct kv_value *kv_value_new(const char *key, const struct kv_meta *meta);
struct kv_value *kv_value_ref(struct kv_value *value);
void kv_value_unref(struct kv_value *value); /* NULL allowed */

struct kv_copy {
    struct kv_value *value;
    int64_t read; /* when another node last read it; 0: never */
};

struct kv_store {
    struct kv_copy *copy;
    size_t count, room;
    uint64_t bytes; /* of all copies, those retired too */
    struct kv_copy retired[KV_RETIRED_MAX];
    size_t retirees;
};

void kv_store_release(struct kv_store *store);

/* The copy of a key, or NULL. Valid until the next change. */
struct kv_copy *kv_store_find(struct kv_store *store, const char *key);

/* Keep this value (takes a reference) in place of the key's present one, which must not be newer.
 * The old value is retired if it was read at `since` or later, and dropped at once if it is of the
 * same version with other bytes. ERR_NOMEM; ERR_FULL: there are KV_ENTRIES_MAX keys */
int kv_store_put(struct kv_store *store, struct kv_value *value, int64_t since);
void kv_store_drop(struct kv_store *store, const char *key, int64_t since);

/* A version for a reader, retired or not; or NULL. */
struct kv_value *kv_store_read(struct kv_store *store, const char *key, uint64_t version,
                               int64_t now);

/* Drop retired values that were not read since then. Returns the earliest last reading of those
 * that remain; INT64_MAX: none is retired. */
int64_t kv_store_sweep(struct kv_store *store, int64_t since);

#endif
