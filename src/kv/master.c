/* Messages between a node and the master: reports of copies, and replies. */
#include "kv/kv_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- to the master ---- */

static int post_request(struct kv *kv, const struct kv_request *request)
{
    struct buf bytes = {0};
    kv_request_encode(request, &bytes);
    int rc = wire_send_buf(kv->group->world, WORLD_DRIVER, WIRE_KV_REQUEST, 0, &bytes);
    buf_release(&bytes);
    return rc == ERR_PEER ? OK : rc; /* the group reports the loss of the driver */
}

static int request_with(struct kv *kv, struct kv_call *call, struct kv_request question)
{
    call->request = question.request = atomic_fetch_add(&kv->requests, 1) + 1;
    call->requested = question.meta.version;
    memcpy(question.key, call->key, sizeof question.key);
    return post_request(kv, &question);
}

int kv_request_hold(struct kv *kv, struct kv_call *call)
{
    return request_with(kv, call, (struct kv_request){.what = KV_HOLD, .meta = call->value->meta});
}

/* Requests the holders of a half-fetched value's remaining pieces; or the holders of the value. */
int kv_request_find(struct kv *kv, struct kv_call *call)
{
    const struct kv_meta *half = kv_fetch_meta(call);
    struct kv_request find = {.what = KV_FIND, .patient = call->patient};
    find.meta.version = half ? half->version : call->version;
    if (half && call->version == KV_NEWEST)
        find.patient = false; /* if no node has it, a newer one will do */
    return request_with(kv, call, find);
}

int kv_request_forget(struct kv *kv, const struct kv_call *call)
{
    const struct kv_request forget = {.what = KV_FORGET, .request = call->request};
    return call->request && call->kind == CALL_GET ? post_request(kv, &forget) : OK;
}

int kv_request_leave(struct kv *kv)
{
    return post_request(kv, &(struct kv_request){.what = KV_LEAVE});
}

static int report_drop(struct kv *kv, const struct kv_value *value)
{
    struct kv_request drop = {.what = KV_DROP, .meta = value->meta};
    memcpy(drop.key, value->key, sizeof drop.key);
    return post_request(kv, &drop);
}

/* "version 7", or "the newest version" */
const char *kv_version_text(const struct kv_call *call, char text[KV_VERSION_TEXT])
{
    if (call->version == KV_NEWEST)
        return "the newest version";
    snprintf(text, KV_VERSION_TEXT, "version %llu", (unsigned long long)call->version);
    return text;
}

/* ---- copies ---- */

int64_t kv_read_since(const struct kv *kv)
{
    int64_t now = world_now(kv->group->world);
    return now > kv->options.drain ? now - kv->options.drain : 1;
}

/* Report a copy to the master without a waiting call. */
static int report_copy(struct kv *kv, struct kv_value *value)
{
    struct kv_call *call = kv_call_new(kv, CALL_REGISTER, value->key);
    if (!call)
        return ERR_NOMEM;
    call->value = kv_value_ref(value);
    call->next = kv->calls;
    kv->calls = call;
    return kv_request_hold(kv, call);
}

int kv_withdraw_copy(struct kv *kv, const struct kv_value *value)
{
    int rc = report_drop(kv, value);
    kv_store_drop(&kv->store, value->key, kv_read_since(kv));
    return rc;
}

/* Keeps a fetched value, unless the store has a newer one. */
int kv_keep(struct kv *kv, struct kv_value *value)
{
    struct kv_copy *copy = kv_store_find(&kv->store, value->key);
    if (copy && copy->value->meta.version >= value->meta.version)
        return OK;
    int rc = kv_store_put(&kv->store, value, kv_read_since(kv));
    if (rc != OK) {
        log_warn(kv->group->log, "key '%s' is not kept here: %s", value->key, status_text(rc));
        return OK;
    }
    return report_copy(kv, value);
}

/* ---- what the master tells ---- */

static int on_update_reply(struct kv *kv, struct kv_call *call, const struct kv_reply *reply)
{
    if (reply->what != KV_HELD) {
        call->err = reply->refusal;
        kv_call_end(kv, call, reply->refusal.status);
        return OK;
    }
    const struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    bool newer = copy && copy->value->meta.version > call->value->meta.version;
    int rc = newer ? OK : kv_store_put(&kv->store, call->value, kv_read_since(kv));
    int reported = OK;
    if (rc != OK) {
        err_set(&call->err, rc, "key '%s': this node cannot keep it: %s", call->key,
                status_text(rc));
        reported = report_drop(kv, call->value);
    }
    kv_call_end(kv, call, rc);
    return reported;
}

/* Another value of that version must not be read from here. */
static int on_copy_reply(struct kv *kv, struct kv_call *call, const struct kv_reply *reply)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    bool same = copy && copy->value == call->value;
    if (reply->what != KV_HELD)
        log_info(kv->group->log, "%s", reply->refusal.text);
    if (same && reply->what != KV_HELD && reply->refusal.status == ERR_REPLICAS)
        kv_store_drop(&kv->store, call->key, INT64_MAX);
    kv_call_end(kv, call, OK);
    return OK;
}

static int on_none_reply(struct kv *kv, struct kv_call *call)
{
    char version[KV_VERSION_TEXT];
    const struct kv_meta *half = kv_fetch_meta(call);
    if (half && call->version == KV_NEWEST) {
        kv_fetch_end(call);
        return kv_request_find(kv, call);
    }
    if (half)
        err_set(&call->err, ERR_NOT_FOUND,
                "key '%s', %s: no member holds it any more; %llu of %llu bytes had arrived",
                call->key, kv_version_text(call, version),
                (unsigned long long)atomic_load(&call->have), (unsigned long long)half->size);
    else
        err_set(&call->err, ERR_NOT_FOUND, "key '%s', %s: no member holds it", call->key,
                kv_version_text(call, version));
    kv_call_end(kv, call, ERR_NOT_FOUND);
    return OK;
}

static bool same_meta(const struct kv_meta *a, const struct kv_meta *b)
{
    return a && a->version == b->version && a->size == b->size && a->checksum == b->checksum;
}

static int on_found_reply(struct kv *kv, struct kv_call *call, const struct kv_reply *reply)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    int rc = OK;
    if (copy && same_meta(&copy->value->meta, &reply->meta)) {
        kv_call_end_with(kv, call, copy);
        return OK;
    }
    if (call->fetch && !same_meta(kv_fetch_meta(call), &reply->meta))
        kv_fetch_end(call);
    if (!call->fetch)
        rc = kv_fetch_begin(kv, call, &reply->meta);
    if (rc == OK)
        rc = kv_fetch_sources(call, reply);
    if (rc == OK || rc == ERR_CANCELLED)
        return rc;
    kv_call_fail(kv, call, rc);
    return OK;
}

static int on_get_reply(struct kv *kv, struct kv_call *call, const struct kv_reply *reply)
{
    if (reply->what == KV_FOUND)
        return on_found_reply(kv, call, reply);
    if (reply->what == KV_NONE)
        return on_none_reply(kv, call);
    call->err = reply->refusal;
    kv_call_end(kv, call, reply->refusal.status);
    return OK;
}

/* A reply that does not fit its request: the master is out of order. */
static bool reply_fits(const struct kv_call *call, const struct kv_reply *reply)
{
    if (reply->what == KV_REFUSED)
        return true;
    if (call->kind != CALL_GET)
        return reply->what == KV_HELD;
    return reply->what == KV_NONE ||
           (reply->what == KV_FOUND && reply->meta.version > 0 &&
            (call->requested == KV_NEWEST || call->requested == reply->meta.version));
}

int kv_on_reply(struct kv *kv, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct kv_reply reply;
    int rc = kv_reply_decode(&in, &reply);
    struct kv_call *call = rc == OK ? kv->calls : NULL;
    while (call && call->request != reply.request)
        call = call->next;
    if (rc == OK && call && reply.request != 0 && !reply_fits(call, &reply))
        rc = ERR_PROTOCOL;
    else if (rc == OK && call && reply.request != 0) { /* else: no call waits for it any more */
        call->request = 0;
        rc = call->kind == CALL_UPDATE     ? on_update_reply(kv, call, &reply)
             : call->kind == CALL_REGISTER ? on_copy_reply(kv, call, &reply)
                                           : on_get_reply(kv, call, &reply);
    }
    return rc;
}

/* ---- a new master, or membership at last ---- */

/* Report all copies to a master that does not know this node. A recovered master also gets the
 * requests that the previous one did not answer. */
int kv_follow_view(struct kv *kv)
{
    const struct view *view = group_view(kv->group);
    if (!view || view_rank(view, kv->group->world->self) < 0 ||
        view->incarnation == kv->incarnation)
        return OK;
    bool first = kv->incarnation == 0;
    int rc = OK;
    kv->incarnation = view->incarnation;
    for (struct kv_call *call = first ? NULL : kv->calls; rc == OK && call; call = call->next)
        if (call->request)
            rc = call->kind == CALL_GET ? kv_request_find(kv, call) : kv_request_hold(kv, call);
    for (size_t i = 0; rc == OK && i < kv->store.count; i++)
        rc = report_copy(kv, kv->store.copy[i].value);
    return rc;
}
