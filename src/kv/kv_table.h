/* The master's table of the key-value store, as a pure step function: which node holds which
 * version of which key, and the checksum that all its copies have. No clock, no messages, no
 * values: events go in, orders come out, and any state can be built in a test. (Elastic §5.3,
 * Algorithm 5.)
 *
 * A value of one key and version is the same wherever it is: who says otherwise is refused, and
 * named. A node holds one version of a key, and a newer one takes the place of the one it held; its
 * versions never fall. An entry is there while somebody holds it. A node that is no member holds
 * nothing, but may send requests: joiners do. */
#ifndef PL_KV_KV_TABLE_H
#define PL_KV_KV_TABLE_H

#include "kv/limits.h"

/* Properties that all copies of a version share. */
struct kv_meta {
    uint64_t version, size, checksum;
};

struct kv_entry {
    char key[KV_KEY_MAX + 1];
    struct kv_meta meta;
    struct members holders; /* never none */
};

/* A reader that waits for a version. */
struct kv_wait {
    uint32_t node;
    uint64_t request, version;
    char key[KV_KEY_MAX + 1];
};

struct kv_table {
    struct members in; /* members, which may hold values */
    struct kv_entry *entry;
    size_t count, room;
    struct kv_wait *wait;
    size_t waits, waits_room;
    uint64_t turn; /* rotates the holders that a reply names */
};

enum kv_event_kind {
    KV_MEMBERS, /* the membership is `members` */
    KV_HOLD,    /* node holds `meta` of key, and nothing older: request */
    KV_FIND,    /* node requests the holders of a version (or KV_NEWEST) of key: request, patient */
    KV_FORGET,  /* node no longer waits for the reply to this request */
    KV_DROP,    /* node no longer holds this version of key */
    KV_LEAVE,   /* node holds nothing any more, and waits for nothing */
};

struct kv_event {
    enum kv_event_kind kind;
    uint32_t node;
    uint64_t request;
    const struct members *members; /* borrowed */
    const char *key;               /* borrowed; ≤ KV_KEY_MAX */
    struct kv_meta meta;           /* FIND, DROP: the version alone */
    bool patient;                  /* FIND: reply when a node holds it */
};

enum kv_order_kind {
    KV_HELD,    /* it is recorded */
    KV_FOUND,   /* meta, and up to KV_LOCATIONS other nodes that have it */
    KV_NONE,    /* no node holds it */
    KV_REFUSED, /* with the orders' refusal */
};

/* A reply to a node's request: */
struct kv_order {
    enum kv_order_kind kind;
    uint32_t node;
    uint64_t request;
    struct kv_meta meta;
    uint32_t count;
    uint32_t location[KV_LOCATIONS]; /* none: the node itself is the only one */
};

struct kv_orders {
    size_t count;
    struct kv_order at[KV_WAITS_MAX + 1];
    struct err refusal;
};

void kv_table_init(struct kv_table *table);
void kv_table_release(struct kv_table *table);

/* Take one event in; the replies are written to `out` (cleared first). Refusals:
 *
 * ERR_REPLICAS  the version has another size or checksum elsewhere
 * ERR_USAGE     the node holds a newer one; or the version or size is out of bounds
 * ERR_VIEW      the node is no member (yet): it may read, and holds nothing
 * ERR_FULL      there are KV_ENTRIES_MAX entries, or KV_WAITS_MAX waits, already
 *
 * Other events that make no sense (a drop of a value that the node does not hold) are ignored.
 * ERR_NOMEM: the table is as it was. */
int kv_table_step(struct kv_table *table, const struct kv_event *event, struct kv_orders *out);

#endif
