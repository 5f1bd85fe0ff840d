#include "kv/kv_table.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN SIZE_MAX

int kv_key_check(const char *key, int status, struct err *err)
{
    size_t len = key ? strnlen(key, KV_KEY_MAX + 1) : 0;
    if (len == 0 || len > KV_KEY_MAX)
        return err_set(err, status, "key: must have 1 to %d characters", KV_KEY_MAX);
    for (size_t i = 0; i < len; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return err_set(err, status, "key '%s': character %zu is a blank, or cannot be printed",
                           key, i + 1);
    return OK;
}

void kv_table_init(struct kv_table *table)
{
    memset(table, 0, sizeof *table);
}

void kv_table_release(struct kv_table *table)
{
    free(table->entry);
    free(table->wait);
    kv_table_init(table);
}

/* ---- entries ---- */

static size_t entry_of(const struct kv_table *table, const char *key, uint64_t version)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->entry[i].meta.version == version && strcmp(table->entry[i].key, key) == 0)
            return i;
    return UNKNOWN;
}

static size_t newest_of(const struct kv_table *table, const char *key)
{
    size_t best = UNKNOWN;
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->entry[i].key, key) == 0 &&
            (best == UNKNOWN || table->entry[i].meta.version > table->entry[best].meta.version))
            best = i;
    return best;
}

/* The entry of a key that the node holds. */
static size_t held_by(const struct kv_table *table, const char *key, uint32_t node)
{
    for (size_t i = 0; i < table->count; i++)
        if (members_has(&table->entry[i].holders, node) && strcmp(table->entry[i].key, key) == 0)
            return i;
    return UNKNOWN;
}

/* An entry disappears with its last holder; the last entry takes its place. */
static bool withdraw_holder(struct kv_table *table, size_t i, uint32_t node)
{
    struct kv_entry *e = &table->entry[i];
    members_remove(&e->holders, node);
    if (!members_empty(&e->holders))
        return false;
    *e = table->entry[--table->count];
    return true;
}

static void withdraw_all(struct kv_table *table, uint32_t node)
{
    for (size_t i = 0; i < table->count;) {
        bool held = members_has(&table->entry[i].holders, node);
        i += !(held && withdraw_holder(table, i, node));
    }
}

/* ---- orders ---- */

static struct kv_order *add_order(struct kv_orders *out, enum kv_order_kind kind, uint32_t node,
                                  uint64_t request)
{
    struct kv_order *o = &out->at[out->count++];
    *o = (struct kv_order){.kind = kind, .node = node, .request = request};
    return o;
}

/* With the refusal that has been written already. */
static void refuse_event(struct kv_orders *out, const struct kv_event *event)
{
    add_order(out, KV_REFUSED, event->node, event->request);
}

/* Readers are sent to different holders by turns, as the listing draws them by chance. */
static void reply_found(struct kv_table *table, const struct kv_entry *e, uint32_t node,
                        uint64_t request, struct kv_orders *out)
{
    struct kv_order *o = add_order(out, KV_FOUND, node, request);
    uint32_t other[VIEW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++)
        if (i != node && members_has(&e->holders, i))
            other[count++] = i;
    o->meta = e->meta;
    o->count = count < KV_LOCATIONS ? count : KV_LOCATIONS;
    for (uint32_t i = 0; i < o->count; i++)
        o->location[i] = other[(table->turn + i) % count];
    table->turn += o->count;
}

/* ---- readers ---- */

static void forget_request(struct kv_table *table, uint32_t node, uint64_t request)
{
    for (size_t i = 0; i < table->waits; i++)
        if (table->wait[i].node == node && table->wait[i].request == request) {
            table->wait[i] = table->wait[--table->waits];
            return;
        }
}

static void forget_all(struct kv_table *table, uint32_t node)
{
    for (size_t i = 0; i < table->waits;)
        if (table->wait[i].node == node)
            table->wait[i] = table->wait[--table->waits];
        else
            i++;
}

/* A waiting node that never was a member may be dead, and nothing would have reported it. */
static void forget_a_stranger(struct kv_table *table)
{
    for (size_t i = 0; i < table->waits; i++)
        if (!members_has(&table->in, table->wait[i].node)) {
            table->wait[i] = table->wait[--table->waits];
            return;
        }
}

static int wait_for(struct kv_table *table, const struct kv_event *event, struct kv_orders *out)
{
    if (table->waits == KV_WAITS_MAX)
        forget_a_stranger(table);
    if (table->waits == KV_WAITS_MAX) {
        err_set(&out->refusal, ERR_FULL, "key '%s': %d readers wait for values already", event->key,
                KV_WAITS_MAX);
        refuse_event(out, event);
        return OK;
    }
    if (!array_grow(&table->wait, table->waits, &table->waits_room, sizeof *table->wait))
        return ERR_NOMEM;
    struct kv_wait *w = &table->wait[table->waits++];
    *w = (struct kv_wait){
        .node = event->node, .request = event->request, .version = event->meta.version};
    memcpy(w->key, event->key, strlen(event->key) + 1);
    return OK;
}

static int on_find(struct kv_table *table, const struct kv_event *event, struct kv_orders *out)
{
    uint64_t version = event->meta.version;
    size_t i =
        version == KV_NEWEST ? newest_of(table, event->key) : entry_of(table, event->key, version);
    if (i != UNKNOWN)
        reply_found(table, &table->entry[i], event->node, event->request, out);
    else if (event->patient)
        return wait_for(table, event, out);
    else
        add_order(out, KV_NONE, event->node, event->request);
    return OK;
}

static void reply_to_waiters(struct kv_table *table, const struct kv_entry *e,
                             struct kv_orders *out)
{
    for (size_t i = 0; i < table->waits;) {
        const struct kv_wait w = table->wait[i];
        bool meant = w.version == KV_NEWEST || w.version == e->meta.version;
        if (!meant || strcmp(w.key, e->key) != 0) {
            i++;
            continue;
        }
        table->wait[i] = table->wait[--table->waits];
        reply_found(table, e, w.node, w.request, out);
    }
}

/* ---- holders ---- */

static uint32_t first_holder(const struct kv_entry *e)
{
    uint32_t node = 0;
    while (!members_has(&e->holders, node))
        node++;
    return node;
}

/* May the node hold the version? OK, or the reason for the refusal. `same` is the entry of the
 * version, `old` the one that the node holds of the key. */
static int judge_hold(const struct kv_table *table, const struct kv_event *event, size_t same,
                      size_t old, struct err *err)
{
    const struct kv_meta *meta = &event->meta;
    unsigned long long version = meta->version;
    if (meta->version == 0 || meta->version > KV_VERSION_MAX || meta->size > KV_VALUE_MAX)
        return err_set(err, ERR_USAGE, "key '%s', version %llu: a version or size out of bounds",
                       event->key, version);
    if (!members_has(&table->in, event->node))
        return err_set(err, ERR_VIEW, "key '%s', version %llu: node %u is no member", event->key,
                       version, event->node);
    if (old != UNKNOWN && table->entry[old].meta.version > meta->version)
        return err_set(
            err, ERR_USAGE, "key '%s': node %u holds version %llu, and would fall back to %llu",
            event->key, event->node, (unsigned long long)table->entry[old].meta.version, version);
    const struct kv_entry *e = same != UNKNOWN ? &table->entry[same] : NULL;
    if (e && (e->meta.checksum != meta->checksum || e->meta.size != meta->size))
        return err_set(err, ERR_REPLICAS,
                       "key '%s', version %llu: node %u has %llu bytes with checksum %016llx, node "
                       "%u has %llu with %016llx",
                       event->key, version, event->node, (unsigned long long)meta->size,
                       (unsigned long long)meta->checksum, first_holder(e),
                       (unsigned long long)e->meta.size, (unsigned long long)e->meta.checksum);
    bool frees = old != UNKNOWN && members_count(&table->entry[old].holders) == 1;
    if (!e && table->count == KV_ENTRIES_MAX && !frees)
        return err_set(err, ERR_FULL, "key '%s', version %llu: %d versions are held already",
                       event->key, version, KV_ENTRIES_MAX);
    return OK;
}

static int on_hold(struct kv_table *table, const struct kv_event *event, struct kv_orders *out)
{
    size_t same = entry_of(table, event->key, event->meta.version);
    size_t old = held_by(table, event->key, event->node);
    if (judge_hold(table, event, same, old, &out->refusal) != OK) {
        refuse_event(out, event);
        return OK;
    }
    if (!array_grow(&table->entry, table->count, &table->room, sizeof *table->entry))
        return ERR_NOMEM;
    if (old != UNKNOWN && old != same)
        withdraw_holder(table, old, event->node);
    same = entry_of(table, event->key, event->meta.version); /* it may have moved */
    if (same == UNKNOWN) {
        same = table->count++;
        table->entry[same] = (struct kv_entry){.meta = event->meta};
        memcpy(table->entry[same].key, event->key, strlen(event->key) + 1);
    }
    members_add(&table->entry[same].holders, event->node);
    add_order(out, KV_HELD, event->node, event->request);
    reply_to_waiters(table, &table->entry[same], out);
    return OK;
}

static void on_drop(struct kv_table *table, const struct kv_event *event)
{
    size_t i = entry_of(table, event->key, event->meta.version);
    if (i != UNKNOWN && members_has(&table->entry[i].holders, event->node))
        withdraw_holder(table, i, event->node);
}

static void on_members(struct kv_table *table, const struct members *in)
{
    const struct members gone = members_without(&table->in, in);
    MEMBERS_EACH (node, &gone) {
        withdraw_all(table, node);
        forget_all(table, node);
    }
    table->in = *in;
}

int kv_table_step(struct kv_table *table, const struct kv_event *event, struct kv_orders *out)
{
    out->count = 0;
    out->refusal = (struct err){0};
    switch (event->kind) {
    case KV_MEMBERS: on_members(table, event->members); return OK;
    case KV_HOLD: return on_hold(table, event, out);
    case KV_FIND: return on_find(table, event, out);
    case KV_FORGET: forget_request(table, event->node, event->request); return OK;
    case KV_DROP: on_drop(table, event); return OK;
    case KV_LEAVE:
        withdraw_all(table, event->node);
        forget_all(table, event->node);
        return OK;
    }
    return OK;
}
