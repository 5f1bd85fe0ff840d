/* A holder's side: pieces of its values on their way to readers. They leave from where the value
 * lies, which stays until the last has left. */
#include "kv/kv_internal.h"

#include <stdlib.h>
#include <string.h>

struct kv_serving {
    struct kv_serving *next;
    struct kv_value *value;
    struct send send;
};

/* A reader may request an update that the master has recorded before the master's reply is here. */
static struct kv_value *value_of(struct kv *kv, const struct kv_piece *piece)
{
    struct kv_value *value =
        kv_store_read(&kv->store, piece->key, piece->version, world_now(kv->group->world));
    for (struct kv_call *call = kv->calls; call && !value; call = call->next)
        if (call->kind == CALL_UPDATE && call->value->meta.version == piece->version &&
            strcmp(call->key, piece->key) == 0)
            value = call->value;
    bool within = value && piece->at + piece->len <= value->meta.size;
    return within ? value : NULL;
}

static uint32_t number_of(const struct message *m)
{
    return (uint32_t)(m->tag >> 16);
}

static int send_gone(struct kv *kv, const struct message *m, enum kv_gone why)
{
    uint8_t byte = (uint8_t)why;
    int rc =
        wire_send(kv->group->world, m->from, wire_tag(WIRE_KV_GONE, 0, number_of(m), 0), &byte, 1);
    return rc == ERR_PEER ? OK : rc;
}

static int send_piece(struct kv *kv, const struct message *m, struct kv_value *value,
                      const struct kv_piece *piece)
{
    struct kv_serving *s = calloc(1, sizeof *s);
    if (!s)
        return send_gone(kv, m, KV_BUSY);
    s->send = (struct send){
        .to = m->from,
        .tag = wire_tag(WIRE_KV_PIECE, 0, number_of(m), 0),
        .from = value->data + piece->at,
        .len = piece->len,
        .ended = &kv->ended,
    };
    s->value = kv_value_ref(value);
    s->next = kv->first;
    kv->first = s;
    kv->servings++;
    int rc = kv_post_send(kv, &s->send);
    kv->moved += rc == OK ? piece->len : 0;
    return rc == ERR_NOMEM ? send_gone(kv, m, KV_BUSY) : rc;
}

static bool is_busy(const struct kv *kv, uint32_t reader)
{
    uint32_t sending = 0;
    for (const struct kv_serving *s = kv->first; s; s = s->next)
        sending += s->send.to == reader;
    return kv->servings >= KV_SERVINGS_MAX || sending >= KV_SERVINGS_EACH;
}

int kv_serve(struct kv *kv, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct kv_piece piece;
    if (kv_piece_decode(&in, &piece) != OK || m->from == kv->group->world->self) {
        log_warn(kv->group->log, "node %u requested an invalid piece", m->from);
        return OK;
    }
    struct kv_value *value = value_of(kv, &piece);
    if (!value)
        return send_gone(kv, m, KV_NOT_HERE);
    if (is_busy(kv, m->from))
        return send_gone(kv, m, KV_BUSY);
    return send_piece(kv, m, value, &piece);
}

void kv_serve_reap(struct kv *kv)
{
    for (struct kv_serving **at = &kv->first; *at;) {
        struct kv_serving *s = *at;
        if (atomic_load(&s->send.status) == POST_PENDING) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        kv->servings--;
        kv_value_unref(s->value);
        free(s);
    }
}

void kv_serve_release(struct kv *kv)
{
    for (struct kv_serving *s = kv->first; s; s = s->next)
        if (atomic_load(&s->send.status) == POST_PENDING)
            world_unsend(kv->group->world, &s->send);
    kv_serve_reap(kv);
}
