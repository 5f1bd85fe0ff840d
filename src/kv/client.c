#include "kv/client.h"

#include "base/fault.h"
#include "kv/kv_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLOW_DEFAULT  (5 * WORLD_SECOND)
#define DRAIN_DEFAULT (5 * WORLD_SECOND)

/* ---- calls as objects ---- */

struct kv_call *kv_call_new(struct kv *kv, enum kv_call_kind kind, const char *key)
{
    struct kv_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->kv = kv;
    call->kind = kind;
    call->deadline = WORLD_FOREVER;
    memcpy(call->key, key, strlen(key) + 1);
    atomic_init(&call->references, 1);
    return call;
}

void kv_call_unref(struct kv_call *call)
{
    if (atomic_fetch_sub(&call->references, 1) != 1)
        return;
    kv_value_unref(call->value);
    free(call);
}

static void hand_over(struct kv_call *call)
{
    struct kv *kv = call->kv;
    atomic_fetch_add(&call->references, 1);
    inbox_push(&kv->inbox, &call->link);
    world_raise(kv->group->world, SIGNAL_KV);
}

/* ---- start and stop ---- */

int kv_start(struct kv *kv, struct group *group, const struct kv_options *options)
{
    memset(kv, 0, sizeof *kv);
    if (options)
        kv->options = *options;
    struct kv_options *o = &kv->options;
    o->bytes_max = o->bytes_max ? o->bytes_max : UINT64_MAX;
    o->slow = o->slow ? o->slow : SLOW_DEFAULT;
    o->drain = o->drain ? o->drain : DRAIN_DEFAULT;
    kv->group = group;
    int rc = world_spawn(group->world, "kv", kv_service_task, kv, &kv->service);
    if (rc != OK)
        kv->group = NULL;
    return rc;
}

/* A post is counted a moment after its status is set. */
static void await_posts(struct kv *kv)
{
    for (uint64_t seen; (seen = atomic_load(&kv->ended.times)) < kv->posts;) {
        const struct wait_for any = {.kind = WAIT_ENDED, .ended = &kv->ended, .seen = seen};
        struct wake wake;
        (void)world_wait(kv->group->world, &any, 1, WORLD_FOREVER, &wake); /* cancelled: again */
    }
}

void kv_stop(struct kv *kv)
{
    if (!kv->group)
        return;
    world_end_task(kv->group->world, &kv->service);
    int rc = atomic_load(&kv->group->end.over) ? OK : kv_request_leave(kv);
    if (rc != OK) /* the view without this node has the same effect */
        log_info(kv->group->log, "the key-value store ends without a message: %s", status_text(rc));
    kv_service_release(kv);
    await_posts(kv);
    kv->group = NULL;
}

/* ---- waiting ---- */

static int is_over(struct err *err)
{
    return err_set(err, ERR_DRIVER, "the group is over, or this node is no longer in it");
}

static bool is_completed(void *arg)
{
    struct kv_call *call = arg;
    return atomic_load(&call->completed);
}

/* The call's status and message; or ERR_TIMEOUT, ERR_DRIVER, ERR_CANCELLED: it has none yet. */
static int await_call(struct kv_call *call, int64_t deadline, struct err *err)
{
    int rc = group_wait(call->kv->group, SIGNAL_KV_DONE, is_completed, call, deadline);
    if (rc == ERR_DRIVER)
        return is_over(err);
    if (rc == ERR_TIMEOUT)
        return err_set(err, rc, "key '%s': it is still under way", call->key);
    if (rc == OK && call->reported.status != OK && err)
        *err = call->reported;
    return rc == OK ? call->reported.status : rc;
}

/* Pass the call to the service and wait for its end; consumes the caller's reference. The service
 * enforces the deadline, since it knows what the call waited for. */
static int carry_out(struct kv_call *call, struct err *err)
{
    hand_over(call);
    int rc = await_call(call, WORLD_FOREVER, err);
    kv_call_unref(call);
    return rc;
}

static int no_memory(const char *key, struct err *err)
{
    return err_set(err, ERR_NOMEM, "key '%s': out of memory", key);
}

/* ---- update and withdraw ---- */

static int check_update(const char *key, uint64_t state, const void *data, size_t size,
                        struct err *err)
{
    int rc = kv_key_check(key, ERR_USAGE, err);
    if (rc != OK)
        return rc;
    if (state >= KV_VERSION_MAX)
        return err_set(err, ERR_USAGE, "key '%s': there is no version after %llu", key,
                       (unsigned long long)state);
    if (size > KV_VALUE_MAX)
        return err_set(err, ERR_USAGE, "key '%s': a value has at most %llu bytes, this has %zu",
                       key, (unsigned long long)KV_VALUE_MAX, size);
    if (!data && size > 0)
        return err_set(err, ERR_USAGE, "key '%s': no value", key);
    return OK;
}

int kv_update(struct kv *kv, const char *key, uint64_t state, const void *data, size_t size,
              int64_t deadline, struct err *err)
{
    int rc = check_update(key, state, data, size, err);
    if (rc != OK)
        return rc;
    const struct kv_meta meta = {state + 1, size, kv_checksum(data, size)};
    struct kv_call *call = kv_call_new(kv, CALL_UPDATE, key);
    if (call)
        call->value = kv_value_new(key, &meta);
    if (!call || !call->value) {
        if (call)
            kv_call_unref(call);
        return no_memory(key, err);
    }
    if (size > 0)
        memcpy(call->value->data, data, size);
    call->deadline = deadline;
    rc = world_copied(kv->group->world, size);
    if (rc == OK)
        return carry_out(call, err);
    kv_call_unref(call);
    return rc;
}

int kv_withdraw(struct kv *kv, const char *key, struct err *err)
{
    int rc = kv_key_check(key, ERR_USAGE, err);
    struct kv_call *call = rc == OK ? kv_call_new(kv, CALL_WITHDRAW, key) : NULL;
    if (rc != OK)
        return rc;
    return call ? carry_out(call, err) : no_memory(key, err);
}

/* ---- get ---- */

int kv_begin(struct kv *kv, const struct kv_want *want, struct kv_call **out, struct err *err)
{
    int rc = kv_key_check(want->key, ERR_USAGE, err);
    if (rc == OK && want->version == 0)
        rc = err_set(err, ERR_USAGE, "key '%s': versions begin with 1", want->key);
    if (rc != OK)
        return rc;
    struct kv_call *call = kv_call_new(kv, CALL_GET, want->key);
    if (!call)
        return no_memory(want->key, err);
    call->version = want->version;
    call->patient = want->patient;
    call->deadline = want->deadline;
    hand_over(call);
    *out = call;
    return OK;
}

void kv_progress(const struct kv_call *call, uint64_t *have, uint64_t *size)
{
    *size = atomic_load(&call->size);
    *have = atomic_load(&call->have);
    *have = *have < *size ? *have : *size;
}

int kv_finish(struct kv_call *call, int64_t deadline, struct kv_value **out, struct err *err)
{
    int rc = await_call(call, deadline, err);
    if (rc == OK)
        *out = kv_value_ref(call->value);
    return rc;
}

void kv_end(struct kv_call *call)
{
    if (!call)
        return;
    if (!atomic_load(&call->completed)) {
        atomic_store(&call->cancelled, true);
        world_raise(call->kv->group->world, SIGNAL_KV);
    }
    kv_call_unref(call);
}

int kv_get(struct kv *kv, const struct kv_want *want, struct kv_value **out, struct err *err)
{
    struct kv_call *call;
    int rc = kv_begin(kv, want, &call, err);
    if (rc != OK)
        return rc;
    rc = kv_finish(call, WORLD_FOREVER, out, err);
    kv_end(call);
    return rc;
}
