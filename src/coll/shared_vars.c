#include "coll/shared_vars.h"

#include "base/fault.h"
#include "coll/shared_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- items ---- */

struct shared_item *shared_item_new(enum shared_item_kind kind, uint32_t count)
{
    struct shared_item *item = calloc(1, sizeof *item + count * sizeof *item->vector);
    if (!item)
        return NULL;
    item->kind = kind;
    item->references = 1;
    return item;
}

void shared_item_unref(struct shared_item *item)
{
    if (item && atomic_fetch_sub(&item->references, 1) == 1)
        free(item);
}

void shared_drop(struct shared_item *items)
{
    while (items) {
        struct shared_item *next = items->link.next;
        shared_item_unref(items);
        items = next;
    }
}

int shared_request(struct shared *shared, struct buf *bytes)
{
    int rc = wire_send_buf(shared->group->world, WORLD_DRIVER, WIRE_SHARED_REQUEST, 0, bytes);
    buf_release(bytes);
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

/* ---- start and stop ---- */

int shared_start(struct shared *shared, struct group *group)
{
    memset(shared, 0, sizeof *shared);
    shared->group = group;
    shared->chunk = 64 * 1024;
    arena_init(&shared->arena);
    for (size_t i = 0; i < TASKS_LANES; i++)
        shared->lane[i].shared = shared;
    return world_spawn(group->world, "shared", shared_service_task, shared, &shared->service);
}

static bool may_leave(void *arg)
{
    struct shared *shared = arg;
    return atomic_load(&shared->may_leave);
}

/* A member that left while others lack a result with its tasks would take the result with it, so it
 * waits. */
static void leave_variables(struct shared *shared)
{
    struct buf bytes = {0};
    buf_put_u8(&bytes, REQUEST_LEAVE);
    int rc = shared_request(shared, &bytes);
    if (rc == OK)
        rc = group_wait(shared->group, SIGNAL_RESULT, may_leave, shared, WORLD_FOREVER);
    if (rc != OK && rc != ERR_CANCELLED)
        log_info(shared->group->log, "shared variables end without a message: %s", status_text(rc));
}

void shared_stop(struct shared *shared)
{
    if (!shared->group)
        return;
    if (shared->service && !atomic_load(&shared->group->end.over))
        leave_variables(shared);
    world_end_task(shared->group->world, &shared->service);
    for (size_t i = 0; i < TASKS_LANES; i++)
        shared_lane_stop(&shared->lane[i]);
    shared_service_release(shared);
    arena_release(&shared->arena);
    shared->group = NULL;
}

/* ---- calls ---- */

static void hand_over(struct shared *shared, struct shared_item *item)
{
    inbox_push(&shared->inbox, &item->link);
    world_raise(shared->group->world, SIGNAL_SHARED);
}

static bool has_reply(void *arg)
{
    struct shared_item *item = arg;
    return atomic_load(&item->has_reply);
}

static int is_over(struct err *err)
{
    return err_set(err, ERR_DRIVER, "the team is over, or this member is no longer in it");
}

int shared_init(struct shared *shared, const struct tasks_spec *spec,
                const struct reduction *reduction, struct shared_var **out, struct err *err)
{
    int rc = tasks_spec_check(spec, ERR_USAGE, err);
    if (rc != OK)
        return rc;
    if (spec->op == TASKS_USER && !reduction->fn)
        return err_set(err, ERR_USAGE, "shared variable '%s': no function to reduce with",
                       spec->key);
    struct shared_item *item = shared_item_new(ITEM_INIT, 0);
    if (!item)
        return err_set(err, ERR_NOMEM, "shared variable '%s': out of memory", spec->key);
    item->references = 2;
    item->spec = *spec;
    item->reduction = *reduction;
    item->request = atomic_fetch_add(&shared->requests, 1);
    hand_over(shared, item);
    rc = group_wait(shared->group, SIGNAL_RESULT, has_reply, item, WORLD_FOREVER);
    if (rc == ERR_DRIVER)
        is_over(err);
    if (rc == OK && !item->var) {
        rc = item->err.status;
        if (err)
            *err = item->err;
    }
    if (rc == OK)
        *out = item->var;
    shared_item_unref(item);
    return rc;
}

int shared_submit(struct shared_var *var, uint64_t round, uint32_t task, const float *x,
                  struct err *err)
{
    const char *key = var->spec.key;
    uint64_t done = atomic_load(&var->done);
    unsigned long long r = round, first = done;
    if (!x)
        return err_set(err, ERR_USAGE, "shared variable '%s', round %llu, task %u: no vector", key,
                       r, task);
    if (task >= var->spec.tasks)
        return err_set(err, ERR_USAGE, "shared variable '%s': task %u, but num_tasks is %u", key,
                       task, var->spec.tasks);
    if (round >= done + SHARED_AHEAD)
        return err_set(err, ERR_USAGE,
                       "shared variable '%s': round %llu is too far ahead: %llu is not done yet, "
                       "and %d may be open",
                       key, r, first, SHARED_AHEAD);
    if (atomic_load(&var->shared->group->end.over))
        return is_over(err);
    if (round < done)
        return OK;
    struct shared_item *item = shared_item_new(ITEM_SUBMIT, 0);
    if (!item)
        return err_set(err, ERR_NOMEM, "shared variable '%s': out of memory", key);
    item->var = var;
    item->round = round;
    item->task = task;
    item->x = x;
    hand_over(var->shared, item);
    return OK;
}

/* ---- results ---- */

static struct shared_slot *slot_of(struct shared_var *var, uint64_t round)
{
    return &var->slot[round % SHARED_KEPT];
}

static bool slot_holds(const struct shared_slot *slot, uint64_t round)
{
    return atomic_load(&slot->holds) == round + 1;
}

/* A lane may be waiting to write there. */
static void let_go(struct shared_var *var, struct shared_slot *slot, uint64_t round)
{
    atomic_fetch_sub(&slot->readers, 1);
    if (!slot_holds(slot, round))
        world_raise(var->shared->group->world, SIGNAL_RESULT);
}

/* true: the slot stays unchanged until it is released. */
static bool hold_slot(struct shared_var *var, struct shared_slot *slot, uint64_t round)
{
    if (!slot_holds(slot, round))
        return false;
    atomic_fetch_add(&slot->readers, 1);
    if (slot_holds(slot, round))
        return true;
    let_go(var, slot, round);
    return false;
}

/* 1: held for the caller; 0: not yet; ERR_NOT_FOUND. The completed round is read before the slot:
 * in the other order a result could be missed. */
static int look_up_round(struct shared_var *var, uint64_t round, struct err *err)
{
    uint64_t done = atomic_load(&var->done);
    if (hold_slot(var, slot_of(var, round), round))
        return 1;
    if (round >= done)
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "shared variable '%s': the result of round %llu is no longer kept; %llu rounds "
                   "are done, and the last two are",
                   var->spec.key, (unsigned long long)round, (unsigned long long)done);
}

uint64_t shared_round(const struct shared_var *var)
{
    return atomic_load(&var->done);
}

int shared_poll(struct shared_var *var, uint64_t round, struct err *err)
{
    bool over = atomic_load(&var->shared->group->end.over);
    int rc = look_up_round(var, round, err);
    if (rc == 1)
        let_go(var, slot_of(var, round), round);
    return rc == 0 && over ? is_over(err) : rc;
}

struct looking {
    struct shared_var *var;
    uint64_t round;
    struct err *err;
    int rc;
};

static bool has_looked(void *arg)
{
    struct looking *l = arg;
    l->rc = look_up_round(l->var, l->round, l->err);
    return l->rc != 0;
}

static void copy_out(const struct shared_var *var, const float *x, float *out)
{
    size_t n = var->spec.n;
    if (var->spec.op != TASKS_MEAN) {
        memcpy(out, x, n * sizeof *out);
        return;
    }
    const float tasks = (float)var->spec.tasks;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / tasks;
}

int shared_get(struct shared_var *var, uint64_t round, float *out, int64_t deadline,
               struct err *err)
{
    struct looking l = {var, round, err, 0};
    int rc = group_wait(var->shared->group, SIGNAL_RESULT, has_looked, &l, deadline);
    if (rc == ERR_TIMEOUT)
        return err_set(err, rc, "shared variable '%s': round %llu has no result yet", var->spec.key,
                       (unsigned long long)round);
    if (rc == ERR_DRIVER)
        return is_over(err);
    if (rc != OK || l.rc != 1)
        return rc != OK ? rc : l.rc;
    struct shared_slot *slot = slot_of(var, round);
    if (out)
        copy_out(var, slot->x, out);
    let_go(var, slot, round);
    return OK;
}
