/* One value on its way here: pieces land in it from all its holders at once. */
#include "base/fault.h"
#include "base/hash.h"
#include "kv/kv_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = KV_LOCATIONS * KV_WINDOW };

#define SLOW_MAX (60 * WORLD_SECOND)
#define REST     (WORLD_SECOND / 20) /* of a holder that is busy */

struct kv_slot {
    struct recv recv;
    uint32_t source, piece, number;
    bool busy;
};

struct kv_fetch {
    struct kv_value *value; /* incomplete */
    struct kv_plan plan;
    int64_t slow; /* silence after which a holder is given up: longer, each time that all were */
    struct kv_slot slot[SLOTS];
};

/* ---- beginning and ending ---- */

static int no_room(struct kv_call *call, const struct kv_meta *meta)
{
    const struct kv *kv = call->kv;
    return err_set(&call->err, ERR_FULL,
                   "key '%s', version %llu: %llu bytes have no room here: %llu of %llu are taken",
                   call->key, (unsigned long long)meta->version, (unsigned long long)meta->size,
                   (unsigned long long)(kv->store.bytes + kv->coming),
                   (unsigned long long)kv->options.bytes_max);
}

int kv_fetch_begin(struct kv *kv, struct kv_call *call, const struct kv_meta *meta)
{
    uint64_t taken = kv->store.bytes + kv->coming, room = kv->options.bytes_max;
    if (taken > room || meta->size > room - taken)
        return no_room(call, meta);
    struct kv_fetch *f = calloc(1, sizeof *f);
    if (!f || kv_plan_init(&f->plan, meta) != OK || !(f->value = kv_value_new(call->key, meta))) {
        if (f)
            kv_plan_release(&f->plan);
        free(f);
        return err_set(&call->err, ERR_NOMEM, "key '%s': out of memory for %llu bytes", call->key,
                       (unsigned long long)meta->size);
    }
    kv->coming += meta->size;
    f->slow = kv->options.slow;
    call->fetch = f;
    atomic_store(&call->have, 0);
    atomic_store(&call->size, meta->size);
    return OK;
}

/* End the slot: no receive writes into its piece any more. */
static void slot_fail(struct kv_call *call, struct kv_slot *slot)
{
    struct kv_fetch *f = call->fetch;
    world_unpost(call->kv->group->world, &slot->recv);
    slot->busy = false;
    kv_plan_failed(&f->plan, slot->source, slot->piece);
}

void kv_fetch_end(struct kv_call *call)
{
    struct kv_fetch *f = call->fetch;
    if (!f)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        if (f->slot[i].busy)
            slot_fail(call, &f->slot[i]);
    call->kv->coming -= f->plan.meta.size;
    kv_value_unref(f->value);
    kv_plan_release(&f->plan);
    free(f);
    call->fetch = NULL;
}

/* ---- holders ---- */

static void source_out(struct kv_call *call, uint32_t s, const char *why)
{
    struct kv_fetch *f = call->fetch;
    if (f->plan.source[s].state == KV_OUT)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        if (f->slot[i].busy && f->slot[i].source == s)
            slot_fail(call, &f->slot[i]);
    kv_plan_out(&f->plan, s);
    log_info(call->kv->group->log, "key '%s', version %llu: node %u %s; %u of %u pieces are here",
             call->key, (unsigned long long)f->plan.meta.version, f->plan.source[s].node, why,
             f->plan.have, f->plan.pieces);
}

int kv_fetch_sources(struct kv_call *call, const struct kv_reply *reply)
{
    struct kv_fetch *f = call->fetch;
    uint32_t node[KV_LOCATIONS], count = 0;
    for (uint32_t i = 0; i < reply->count; i++) {
        int rc = reply->address[i][0]
                     ? world_peer_add(call->kv->group->world, reply->node[i], reply->address[i])
                     : OK;
        if (rc == ERR_CANCELLED || rc == ERR_NOMEM)
            return rc;
        if (rc == OK && reply->node[i] != call->kv->group->world->self)
            node[count++] = reply->node[i];
    }
    kv_plan_sources(&f->plan, node, count);
    return reply->count > 0 && f->plan.sources == 0 && !members_empty(&f->plan.liars) ? ERR_PROTOCOL
                                                                                      : OK;
}

bool kv_fetch_gone(struct kv_call *call, uint32_t from, uint32_t number, enum kv_gone why,
                   int64_t now)
{
    struct kv_fetch *f = call->fetch;
    for (size_t i = 0; f && i < SLOTS; i++) {
        struct kv_slot *slot = &f->slot[i];
        if (!slot->busy || slot->number != number || slot->recv.from != from)
            continue;
        uint32_t s = slot->source;
        slot_fail(call, slot);
        if (why == KV_BUSY)
            kv_plan_rest(&f->plan, s, now + REST);
        else
            source_out(call, s, "does not hold it any more");
        return true;
    }
    return false;
}

/* ---- pieces ---- */

static void take_piece(struct kv_call *call, struct kv_slot *slot, int64_t now)
{
    struct kv_fetch *f = call->fetch;
    slot->busy = false;
    call->kv->moved += slot->recv.len;
    kv_plan_landed(&f->plan, slot->source, slot->piece, hash_bytes(slot->recv.into, slot->recv.len),
                   now);
}

static void take_ended(struct kv_call *call, int64_t now)
{
    struct kv_fetch *f = call->fetch;
    for (size_t i = 0; i < SLOTS; i++) {
        struct kv_slot *slot = &f->slot[i];
        int status = slot->busy ? atomic_load(&slot->recv.status) : POST_PENDING;
        if (status == OK)
            take_piece(call, slot, now);
        else if (status != POST_PENDING)
            source_out(call, slot->source, status_text(status));
    }
    atomic_store(&call->have, kv_plan_bytes(&f->plan));
}

static void give_up_slow(struct kv_call *call, int64_t now)
{
    struct kv_fetch *f = call->fetch;
    bool any = false;
    for (uint32_t s = 0; s < f->plan.sources; s++) {
        const struct kv_source *source = &f->plan.source[s];
        if (source->under_way == 0 || now - source->last_piece < f->slow)
            continue;
        source_out(call, s, "does not answer");
        any = true;
    }
    if (any && kv_plan_stuck(&f->plan) && f->slow < SLOW_MAX)
        f->slow *= 2;
}

static struct kv_slot *free_slot(struct kv_fetch *f)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (!f->slot[i].busy)
            return &f->slot[i];
    PL_ASSERT(!"a slot for each piece of each window");
    return NULL;
}

/* Post the receive before the request, so that the piece finds it. */
static int want_piece(struct kv_call *call, uint32_t s, uint32_t piece)
{
    struct kv *kv = call->kv;
    struct kv_fetch *f = call->fetch;
    struct kv_source *source = &f->plan.source[s];
    struct kv_slot *slot = free_slot(f);
    struct kv_piece request = {.version = f->plan.meta.version,
                               .at = kv_piece_at(piece),
                               .len = kv_piece_len(&f->plan, piece)};
    struct buf bytes = {0};
    *slot = (struct kv_slot){.source = s, .piece = piece, .number = ++kv->number, .busy = true};
    slot->recv = (struct recv){
        .from = source->node,
        .tag = wire_tag(WIRE_KV_PIECE, 0, slot->number, 0),
        .into = f->value->data + request.at,
        .len = request.len,
        .ended = &kv->ended,
    };
    memcpy(request.key, call->key, sizeof request.key);
    kv_piece_encode(&request, &bytes);
    int rc = bytes.failed ? ERR_NOMEM : kv_post_recv(kv, &slot->recv);
    if (rc == OK)
        rc = wire_send(kv->group->world, source->node, wire_tag(WIRE_KV_FETCH, 0, slot->number, 0),
                       bytes.data, bytes.len);
    else
        slot->recv.status = rc;
    buf_release(&bytes);
    return rc;
}

static int want_or_part(struct kv_call *call, uint32_t s, uint32_t piece)
{
    int rc = want_piece(call, s, piece);
    if (rc == OK || rc == ERR_CANCELLED || rc == ERR_NOMEM)
        return rc;
    source_out(call, s, status_text(rc));
    return OK;
}

/* A slow holder's piece that still arrives is discarded. */
static void leave_piece(struct kv_call *call, uint32_t s, uint32_t piece)
{
    for (size_t i = 0; i < SLOTS; i++) {
        struct kv_slot *slot = &call->fetch->slot[i];
        if (!slot->busy || slot->source != s || slot->piece != piece)
            continue;
        world_unpost(call->kv->group->world, &slot->recv);
        slot->busy = false;
    }
}

static int want_more(struct kv_call *call, int64_t now)
{
    struct kv_plan *plan = &call->fetch->plan;
    int rc = OK;
    for (uint32_t s, piece; rc == OK && kv_plan_next(plan, now, &s, &piece);)
        rc = want_or_part(call, s, piece);
    for (uint32_t from, to, piece; rc == OK && kv_plan_move(plan, now, &from, &to, &piece);) {
        leave_piece(call, from, piece);
        rc = want_or_part(call, to, piece);
    }
    if (rc != OK)
        return rc;
    return kv_plan_stuck(plan) ? ERR_NOT_FOUND : POST_PENDING;
}

/* All pieces are here: does the checksum agree with the master's (K3)? */
static int check_value(struct kv_call *call)
{
    struct kv_fetch *f = call->fetch;
    const struct logger *log = call->kv->group->log;
    unsigned long long version = f->plan.meta.version;
    uint32_t liar;
    if (kv_plan_check(&f->plan, &liar) == OK) {
        call->value = kv_value_ref(f->value);
        kv_fetch_end(call);
        return OK;
    }
    if (f->plan.pieces == 0)
        return err_set(
            &call->err, ERR_PROTOCOL,
            "key '%s', version %llu: an empty value has not the checksum that the master "
            "knows",
            call->key, version);
    if (liar == WORLD_ANY)
        log_warn(log,
                 "key '%s', version %llu: pieces of several holders have a wrong checksum: they "
                 "are read one by one",
                 call->key, version);
    if (liar == WORLD_ANY)
        return POST_PENDING;
    err_set(&call->err, ERR_PROTOCOL,
            "key '%s', version %llu: the value of node %u does not have the checksum that the "
            "master knows",
            call->key, version, liar);
    log_error(log, "%s", call->err.text);
    return POST_PENDING;
}

int kv_fetch_step(struct kv_call *call, int64_t now)
{
    struct kv_fetch *f = call->fetch;
    take_ended(call, now);
    give_up_slow(call, now);
    int rc = f->plan.have == f->plan.pieces ? check_value(call) : POST_PENDING;
    return rc == POST_PENDING ? want_more(call, now) : rc;
}

int64_t kv_fetch_wakes(const struct kv_call *call, int64_t now)
{
    const struct kv_plan *plan = &call->fetch->plan;
    int64_t first = kv_plan_wakes(plan, now);
    for (uint32_t s = 0; s < plan->sources; s++) {
        int64_t late = plan->source[s].last_piece + call->fetch->slow;
        if (plan->source[s].under_way > 0 && late < first)
            first = late;
    }
    return first;
}

const struct kv_meta *kv_fetch_meta(const struct kv_call *call)
{
    return call->fetch ? &call->fetch->plan.meta : NULL;
}
