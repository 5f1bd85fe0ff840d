/* What a node and the master say to each other: where copies are told of, and answers heard. */
#include "kv/parts.h"

#include <stdio.h>
#include <string.h>

/* ---- to the master ---- */

static int post(struct kv *kv, const struct kv_ask *ask)
{
    struct buf bytes = {0};
    kv_ask_encode(ask, &bytes);
    int rc = wire_post_buf(kv->group->world, WORLD_DRIVER, WIRE_KV_ASK, 0, &bytes);
    buf_release(&bytes);
    return rc == ERR_PEER ? OK : rc; /* the group will say that the driver is gone */
}

static int ask(struct kv *kv, struct kv_call *call, struct kv_ask question)
{
    call->request = question.request = atomic_fetch_add(&kv->requests, 1) + 1;
    call->asked = question.meta.version;
    memcpy(question.key, call->key, sizeof question.key);
    return post(kv, &question);
}

int kv_ask_hold(struct kv *kv, struct kv_call *call)
{
    return ask(kv, call, (struct kv_ask){.what = KV_HOLD, .meta = call->value->meta});
}

/* Who has the rest of what is half here; or who has what is wanted. */
int kv_ask_find(struct kv *kv, struct kv_call *call)
{
    const struct kv_meta *half = kv_fetch_meta(call);
    struct kv_ask find = {.what = KV_FIND, .patient = call->patient};
    find.meta.version = half ? half->version : call->version;
    if (half && call->version == KV_NEWEST)
        find.patient = false; /* if nobody has, a newer one will do */
    return ask(kv, call, find);
}

int kv_ask_forget(struct kv *kv, const struct kv_call *call)
{
    const struct kv_ask forget = {.what = KV_FORGET, .request = call->request};
    return call->request && call->kind == CALL_GET ? post(kv, &forget) : OK;
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
    return now > kv->options.linger ? now - kv->options.linger : 1;
}

/* Tell the master of a copy, for nobody who waits. */
static int tell_copy(struct kv *kv, struct kv_value *value)
{
    struct kv_call *call = kv_call_new(kv, CALL_REGISTER, value->key);
    if (!call)
        return ERR_NOMEM;
    call->value = kv_value_ref(value);
    call->next = kv->calls;
    kv->calls = call;
    return kv_ask_hold(kv, call);
}

int kv_withdraw_copy(struct kv *kv, const struct kv_value *value)
{
    struct kv_ask drop = {.what = KV_DROP, .meta = value->meta};
    memcpy(drop.key, value->key, sizeof drop.key);
    kv_store_drop(&kv->store, value->key, kv_read_since(kv));
    return post(kv, &drop);
}

/* What has been fetched stays here, unless something newer is. */
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
    return tell_copy(kv, value);
}

/* ---- what the master tells ---- */

static int hear_of_update(struct kv *kv, struct kv_call *call, const struct kv_tell *tell)
{
    if (tell->what != KV_HELD) {
        call->err = tell->refusal;
        kv_call_end(kv, call, tell->refusal.status);
        return OK;
    }
    const struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    bool newer = copy && copy->value->meta.version > call->value->meta.version;
    int rc = newer ? OK : kv_store_put(&kv->store, call->value, kv_read_since(kv));
    struct kv_ask drop = {.what = KV_DROP, .meta = call->value->meta};
    memcpy(drop.key, call->key, sizeof drop.key);
    if (rc != OK)
        err_set(&call->err, rc, "key '%s': this node cannot keep it: %s", call->key,
                status_text(rc));
    kv_call_end(kv, call, rc);
    return rc == OK ? OK : post(kv, &drop);
}

/* Another value of that version must not be read from here. */
static int hear_of_copy(struct kv *kv, struct kv_call *call, const struct kv_tell *tell)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    bool same = copy && copy->value == call->value;
    if (tell->what != KV_HELD)
        log_info(kv->group->log, "%s", tell->refusal.text);
    if (same && tell->what != KV_HELD && tell->refusal.status == ERR_REPLICAS)
        kv_store_drop(&kv->store, call->key, INT64_MAX);
    kv_call_end(kv, call, OK);
    return OK;
}

static int hear_of_none(struct kv *kv, struct kv_call *call)
{
    char version[KV_VERSION_TEXT];
    const struct kv_meta *half = kv_fetch_meta(call);
    if (half && call->version == KV_NEWEST) {
        kv_fetch_end(call);
        return kv_ask_find(kv, call);
    }
    if (half)
        err_set(&call->err, ERR_NOT_FOUND,
                "key '%s', %s: nobody holds it any more; %llu of %llu bytes had come", call->key,
                kv_version_text(call, version), (unsigned long long)atomic_load(&call->have),
                (unsigned long long)half->size);
    else
        err_set(&call->err, ERR_NOT_FOUND, "key '%s', %s: nobody holds it", call->key,
                kv_version_text(call, version));
    kv_call_end(kv, call, ERR_NOT_FOUND);
    return OK;
}

static bool same_meta(const struct kv_meta *a, const struct kv_meta *b)
{
    return a && a->version == b->version && a->size == b->size && a->checksum == b->checksum;
}

static int hear_of_found(struct kv *kv, struct kv_call *call, const struct kv_tell *tell)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    int rc = OK;
    if (copy && same_meta(&copy->value->meta, &tell->meta)) {
        call->value = kv_value_ref(copy->value);
        atomic_store(&call->size, tell->meta.size);
        atomic_store(&call->have, tell->meta.size);
        kv_call_end(kv, call, OK);
        return OK;
    }
    if (call->fetch && !same_meta(kv_fetch_meta(call), &tell->meta))
        kv_fetch_end(call);
    if (!call->fetch)
        rc = kv_fetch_begin(kv, call, &tell->meta);
    if (rc == OK)
        rc = kv_fetch_sources(call, tell);
    if (rc == OK || rc == ERR_CANCELLED)
        return rc;
    kv_call_fail(kv, call, rc);
    return OK;
}

static int hear_of_get(struct kv *kv, struct kv_call *call, const struct kv_tell *tell)
{
    if (tell->what == KV_FOUND)
        return hear_of_found(kv, call, tell);
    if (tell->what == KV_NONE)
        return hear_of_none(kv, call);
    call->err = tell->refusal;
    kv_call_end(kv, call, tell->refusal.status);
    return OK;
}

/* Who asked has what is no answer to it: the master is out of order. */
static bool fits(const struct kv_call *call, const struct kv_tell *tell)
{
    if (tell->what == KV_REFUSED)
        return true;
    if (call->kind != CALL_GET)
        return tell->what == KV_HELD;
    return tell->what == KV_NONE ||
           (tell->what == KV_FOUND && tell->meta.version > 0 &&
            (call->asked == KV_NEWEST || call->asked == tell->meta.version));
}

int kv_hear(struct kv *kv, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    struct kv_tell tell;
    int rc = kv_tell_decode(&in, &tell);
    struct kv_call *call = rc == OK ? kv->calls : NULL;
    while (call && call->request != tell.request)
        call = call->next;
    if (rc == OK && call && tell.request != 0 && !fits(call, &tell))
        rc = ERR_PROTOCOL;
    else if (rc == OK && call && tell.request != 0) { /* else: nobody waits for it any more */
        call->request = 0;
        rc = call->kind == CALL_UPDATE     ? hear_of_update(kv, call, &tell)
             : call->kind == CALL_REGISTER ? hear_of_copy(kv, call, &tell)
                                           : hear_of_get(kv, call, &tell);
    }
    return rc;
}

/* ---- a new master, or membership at last ---- */

/* Everything is told to a master that has heard nothing of this node; and to one that came after
 * another, what that one left unanswered, too. */
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
            rc = call->kind == CALL_GET ? kv_ask_find(kv, call) : kv_ask_hold(kv, call);
    for (size_t i = 0; rc == OK && i < kv->store.count; i++)
        rc = tell_copy(kv, kv->store.copy[i].value);
    return rc;
}
