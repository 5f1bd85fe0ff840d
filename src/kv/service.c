/* The task that owns a node's copies: it takes calls, moves fetches on, hears the master and
 * serves other nodes. Nothing in it waits but the loop at the end. */
#include "base/fault.h"
#include "kv/kv_internal.h"

#define RETRY       \
    (WORLD_SECOND / \
     20) /* ns between two requests for the holders, if the last reply did not help */

int kv_post_recv(struct kv *kv, struct recv *recv)
{
    int rc = world_post_recv(kv->group->world, recv);
    kv->posts += rc == OK;
    return rc;
}

int kv_post_send(struct kv *kv, struct send *send)
{
    int rc = world_post_send(kv->group->world, send);
    kv->posts += rc == OK;
    return rc;
}

/* ---- the end of calls ---- */

static void unlink_call(struct kv *kv, struct kv_call *call)
{
    struct kv_call **at = &kv->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

static void complete_call(struct kv_call *call, int status)
{
    if (call->given_up)
        return;
    if (status != OK)
        call->reported = call->err;
    call->reported.status = status;
    atomic_store(&call->completed, true);
    world_raise(call->kv->group->world, SIGNAL_KV_DONE);
}

/* With the call's message, unless it is OK. */
void kv_call_end(struct kv *kv, struct kv_call *call, int status)
{
    kv_fetch_end(call);
    kv->coming -= call->room;
    unlink_call(kv, call);
    complete_call(call, status);
    kv_call_unref(call);
}

void kv_call_end_with(struct kv *kv, struct kv_call *call, const struct kv_copy *copy)
{
    call->value = kv_value_ref(copy->value);
    atomic_store(&call->size, copy->value->meta.size);
    atomic_store(&call->have, copy->value->meta.size);
    kv_call_end(kv, call, OK);
}

/* A call without a message gets one. */
void kv_call_fail(struct kv *kv, struct kv_call *call, int status)
{
    if (call->err.status != status)
        err_set(&call->err, status, "key '%s': %s", call->key, status_text(status));
    kv_call_end(kv, call, status);
}

static void end_all(struct kv *kv, int status, const char *why)
{
    while (kv->calls) {
        err_set(&kv->calls->err, status, "key '%s': %s", kv->calls->key, why);
        kv_call_end(kv, kv->calls, status);
    }
}

/* ---- calls begin ---- */

static int begin_update(struct kv *kv, struct kv_call *call)
{
    const struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    const struct kv_meta *meta = &call->value->meta;
    uint64_t taken = kv->store.bytes + kv->coming - (copy ? copy->value->meta.size : 0);
    if (copy && copy->value->meta.version > meta->version) {
        err_set(&call->err, ERR_USAGE, "key '%s': this member has version %llu, and %llu is older",
                call->key, (unsigned long long)copy->value->meta.version,
                (unsigned long long)meta->version);
        kv_call_end(kv, call, ERR_USAGE);
        return OK;
    }
    if (taken > kv->options.bytes_max || meta->size > kv->options.bytes_max - taken) {
        err_set(&call->err, ERR_FULL,
                "key '%s': %llu bytes have no room here: %llu of %llu are taken", call->key,
                (unsigned long long)meta->size, (unsigned long long)taken,
                (unsigned long long)kv->options.bytes_max);
        kv_call_end(kv, call, ERR_FULL);
        return OK;
    }
    call->room = meta->size;
    kv->coming += call->room;
    return kv_request_hold(kv, call);
}

static int begin_get(struct kv *kv, struct kv_call *call)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    if (!copy || copy->value->meta.version != call->version)
        return kv_request_find(kv, call);
    kv_call_end_with(kv, call, copy);
    return OK;
}

static int begin_withdraw(struct kv *kv, struct kv_call *call)
{
    struct kv_copy *copy = kv_store_find(&kv->store, call->key);
    if (!copy) {
        err_set(&call->err, ERR_NOT_FOUND, "key '%s': this node has no copy", call->key);
        kv_call_end(kv, call, ERR_NOT_FOUND);
        return OK;
    }
    int rc = kv_withdraw_copy(kv, copy->value);
    if (rc == OK)
        kv_call_end(kv, call, OK);
    return rc;
}

static int begin_call(struct kv *kv, struct kv_call *call)
{
    switch (call->kind) {
    case CALL_UPDATE: return begin_update(kv, call);
    case CALL_GET: return begin_get(kv, call);
    default: return begin_withdraw(kv, call);
    }
}

/* When one cannot begin the service ends, and all with it. */
static int take_calls(struct kv *kv, bool serving)
{
    int rc = OK;
    for (struct kv_call *call = inbox_take(&kv->inbox), *next; call; call = next) {
        next = call->link.next;
        call->next = kv->calls;
        kv->calls = call;
        if (serving && rc == OK)
            rc = begin_call(kv, call);
    }
    return rc;
}

/* ---- moving on ---- */

static void reply_too_late(struct kv_call *call)
{
    char version[KV_VERSION_TEXT];
    const struct kv_meta *half = kv_fetch_meta(call);
    if (call->kind == CALL_UPDATE)
        err_set(&call->err, ERR_TIMEOUT,
                "key '%s', version %llu: the master has not answered in time", call->key,
                (unsigned long long)call->value->meta.version);
    else if (half && call->request)
        err_set(
            &call->err, ERR_TIMEOUT,
            "key '%s', version %llu: no member holds it any more; %llu of %llu bytes had arrived",
            call->key, (unsigned long long)half->version,
            (unsigned long long)atomic_load(&call->have), (unsigned long long)half->size);
    else if (half)
        err_set(&call->err, ERR_TIMEOUT,
                "key '%s', version %llu: %llu of %llu bytes arrived in time", call->key,
                (unsigned long long)half->version, (unsigned long long)atomic_load(&call->have),
                (unsigned long long)half->size);
    else
        err_set(&call->err, ERR_TIMEOUT, "key '%s', %s: the master named no holder in time",
                call->key, kv_version_text(call, version));
}

/* The master may have recorded an update whose caller gave up: keep the value until that is known.
 */
static int end_late(struct kv *kv, struct kv_call *call, bool cancelled)
{
    if (cancelled)
        err_set(&call->err, ERR_CANCELLED, "key '%s': cancelled", call->key);
    else
        reply_too_late(call);
    if (call->kind == CALL_UPDATE) {
        complete_call(call, call->err.status);
        call->given_up = true;
        return OK;
    }
    int rc = kv_request_forget(kv, call);
    kv_call_end(kv, call, call->err.status);
    return rc;
}

static int step_fetch(struct kv *kv, struct kv_call *call, int64_t now)
{
    int rc = kv_fetch_step(call, now);
    if (rc == POST_PENDING || rc == ERR_CANCELLED)
        return rc == POST_PENDING ? OK : rc;
    if (rc == ERR_NOT_FOUND) {
        call->retry_at = now + RETRY;
        return OK;
    }
    if (rc != OK) {
        kv_call_fail(kv, call, rc);
        return OK;
    }
    rc = kv_keep(kv, call->value);
    kv_call_end(kv, call, OK);
    return rc;
}

static int step_call(struct kv *kv, struct kv_call *call, int64_t now)
{
    bool cancelled = atomic_load(&call->cancelled);
    if (!call->given_up && (cancelled || call->deadline <= now))
        return end_late(kv, call, cancelled);
    if (call->retry_at && call->retry_at <= now) {
        call->retry_at = 0;
        return kv_request_find(kv, call);
    }
    if (call->fetch && !call->retry_at && !call->request)
        return step_fetch(kv, call, now);
    return OK;
}

/* Charge the task for sealing and opening bytes (simulation). */
static int pay_for_crypto(struct kv *kv)
{
    const struct cost cost = {kv->group->world->costs.crypto * (double)kv->moved};
    kv->moved = 0;
    return cost.seconds > 0 ? world_work(kv->group->world, &cost) : OK;
}

/* Advance all calls as far as possible. *until: when to do so again at the latest. */
static int step_calls(struct kv *kv, int64_t *until)
{
    int rc = take_calls(kv, true);
    if (rc == OK)
        rc = kv_follow_view(kv);
    if (atomic_load(&kv->group->end.over))
        end_all(kv, ERR_DRIVER, "the group is over, or this node is no longer in it");
    int64_t now = world_now(kv->group->world);
    for (struct kv_call *call = kv->calls, *next; rc == OK && call; call = next) {
        next = call->next;
        rc = step_call(kv, call, now);
    }
    kv_serve_reap(kv);
    int64_t read = kv_store_sweep(&kv->store, kv_read_since(kv));
    *until = read == INT64_MAX ? WORLD_FOREVER : read + kv->options.drain + 1;
    for (const struct kv_call *call = kv->calls; call; call = call->next) {
        int64_t at = call->given_up ? WORLD_FOREVER : call->deadline;
        at = call->retry_at && call->retry_at < at ? call->retry_at : at;
        int64_t wakes =
            call->fetch && !call->retry_at && !call->request ? kv_fetch_wakes(call, now) : at;
        at = wakes < at ? wakes : at;
        *until = at < *until ? at : *until;
    }
    return rc == OK ? pay_for_crypto(kv) : rc;
}

/* ---- the loop ---- */

static int take_gone(struct kv *kv, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    enum kv_gone why;
    uint32_t number = (uint32_t)(m->tag >> 16);
    if (kv_gone_decode(&in, &why) != OK)
        return OK;
    int64_t now = world_now(kv->group->world);
    for (struct kv_call *call = kv->calls; call; call = call->next)
        if (kv_fetch_gone(call, m->from, number, why, now))
            break;
    return OK;
}

enum { ON_REPLY, ON_GONE, ON_FETCH, ON_LATE, ON_CALL, ON_GROUP, ON_ENDED, WAITS };

static int take_event(struct kv *kv, const struct wake *wake)
{
    int rc = OK;
    if (wake->which == ON_REPLY)
        rc = kv_on_reply(kv, wake->msg);
    else if (wake->which == ON_GONE)
        rc = take_gone(kv, wake->msg);
    else if (wake->which == ON_FETCH)
        rc = kv_serve(kv, wake->msg);
    if (wake->which <= ON_LATE) /* ON_LATE: a piece that no receive waits for any more */
        message_unref(wake->msg);
    return rc;
}

/* Messages first: each round steps, so calls and pieces that ended never wait for them. */
static int serve_calls(struct kv *kv)
{
    struct world *world = kv->group->world;
    for (;;) {
        const struct wait_for set[] = {
            [ON_REPLY] = wire_from(WORLD_DRIVER, WIRE_KV_REPLY),
            [ON_GONE] = wire_from(WORLD_ANY, WIRE_KV_GONE),
            [ON_FETCH] = wire_from(WORLD_ANY, WIRE_KV_FETCH),
            [ON_LATE] = wire_from(WORLD_ANY, WIRE_KV_PIECE),
            [ON_CALL] = wait_signal(world, SIGNAL_KV),
            [ON_GROUP] = wait_signal(world, SIGNAL_GROUP),
            [ON_ENDED] = {.kind = WAIT_ENDED,
                          .ended = &kv->ended,
                          .seen = atomic_load(&kv->ended.times)},
        };
        struct wake wake;
        int64_t until;
        int rc = step_calls(kv, &until);
        if (rc == OK)
            rc = world_wait(world, set, WAITS, until, &wake);
        if (rc == OK)
            rc = take_event(kv, &wake);
        if (rc != OK && rc != ERR_TIMEOUT)
            return rc;
    }
}

/* Rather an end that all can see than calls that never return. */
int kv_service_task(void *arg)
{
    struct kv *kv = arg;
    int rc = serve_calls(kv);
    if (rc != ERR_CANCELLED)
        group_quit(kv->group, rc);
    return rc;
}

void kv_service_release(struct kv *kv)
{
    take_calls(kv, false);
    end_all(kv, ERR_CANCELLED, "the store is closed");
    kv_serve_release(kv);
    kv_store_release(&kv->store);
}
