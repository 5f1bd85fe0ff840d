/* A lane of shared variables: runs the exchanges that the coordinator has started in it, one after
 * another, with the contributions of this node's tasks. */
#include "base/fault.h"
#include "coll/shared_internal.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_FLOATS = 4096 };

static float *new_floats(size_t n)
{
    size_t bytes = (n * sizeof(float) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return aligned_alloc(ARENA_ALIGN, bytes);
}

static struct reduction reduction_of(const struct shared_var *var)
{
    static const enum reduce_kind kinds[TASKS_OPS] = {[TASKS_SUM] = REDUCE_SUM,
                                                      [TASKS_MEAN] = REDUCE_SUM,
                                                      [TASKS_LARGEST] = REDUCE_MAX,
                                                      [TASKS_SMALLEST] = REDUCE_MIN,
                                                      [TASKS_USER] = REDUCE_USER};
    return (struct reduction){kinds[var->spec.op], var->reduction.fn, var->reduction.user};
}

/* -0 + x is x, also for x = -0. */
static float identity_of(const struct tasks_spec *spec)
{
    switch (spec->op) {
    case TASKS_LARGEST: return -INFINITY;
    case TASKS_SMALLEST: return INFINITY;
    case TASKS_USER: return spec->identity;
    default: return -0.0f;
    }
}

/* Clear the slot of this round's result: mark it as unused, and wait until no caller reads the
 * older result. */
static int clear_slot(struct shared_var *var, struct shared_slot *slot)
{
    struct world *world = var->shared->group->world;
    atomic_store(&slot->holds, 0);
    for (;;) {
        const struct wait_for gone = wait_signal(world, SIGNAL_RESULT);
        if (atomic_load(&slot->readers) == 0)
            break;
        struct wake wake;
        int rc = world_wait(world, &gone, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    if (!slot->x)
        slot->x = new_floats(var->spec.n);
    return slot->x ? OK : ERR_NOMEM;
}

/* Local reduction first: ((v0 ∘ v1) ∘ v2) ∘ … in order of task number, block by block. One vector
 * alone is put in from where it lies. */
static int reduce_here(struct shared_var *var, const struct shared_item *job, const float **x)
{
    const struct reduction reduction = reduction_of(var);
    *x = job->count > 0 ? job->vector[0] : NULL;
    if (job->count <= 1)
        return OK;
    if (!var->local)
        var->local = new_floats(var->spec.n);
    if (!var->local)
        return ERR_NOMEM;
    for (size_t from = 0; from < var->spec.n; from += BLOCK_FLOATS) {
        size_t left = var->spec.n - from, len = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        memcpy(var->local + from, job->vector[0] + from, len * sizeof(float));
        for (uint32_t t = 1; t < job->count; t++)
            reduce_range(&reduction, var->local + from, job->vector[t] + from, len);
    }
    *x = var->local;
    return OK;
}

/* Point the lane's exchange to this variable's next input and result. The last result stays, for
 * members that lack it. */
static void set_exchange(struct exchange *e, struct shared_var *var, const float *input, float *out)
{
    const struct reduction reduction = reduction_of(var);
    const struct reduction *had = &e->config.reduction;
    size_t n = var->spec.n;
    if (e->n_floats != n || had->kind != reduction.kind || had->fn != reduction.fn ||
        had->user != reduction.user)
        e->planned_in = 0; /* the plan is another one */
    e->config.reduction = reduction;
    e->config.identity = identity_of(&var->spec);
    e->config.algorithm = var->shared->algorithm;
    e->config.chunk = var->shared->chunk;
    while (n / e->config.chunk + 1 >= WIRE_HEADER_PIECE)
        e->config.chunk *= 2;
    e->n_floats = n;
    e->input = (struct vec){(float *)input, n}; /* it is only read */
    e->result[(e->completed + 1) & 1] = (struct vec){out, n};
}

static int report_ended(struct shared_var *var, const struct shared_item *job, bool whole)
{
    struct buf bytes = {0};
    buf_put_u8(&bytes, REQUEST_ENDED);
    buf_put_u32(&bytes, var->id);
    buf_put_u64(&bytes, job->round);
    buf_put_u64(&bytes, job->number);
    buf_put_u8(&bytes, whole);
    return shared_request(var->shared, &bytes);
}

/* Report to the service before any caller sees the result: a caller that then submits to a later
 * round finds its slot free. */
static int publish_result(struct shared_var *var, struct shared_slot *slot, uint64_t round)
{
    struct shared *s = var->shared;
    struct shared_item *closed = shared_item_new(ITEM_CLOSED, 0);
    if (!closed)
        return ERR_NOMEM;
    closed->var = var;
    closed->round = round;
    inbox_push(&s->inbox, &closed->link);
    world_raise(s->group->world, SIGNAL_SHARED);
    atomic_store(&slot->holds, round + 1);
    atomic_store(&var->done, round + 1);
    world_raise(s->group->world, SIGNAL_RESULT);
    return OK;
}

static int do_job(struct shared_lane *lane, const struct shared_item *job)
{
    struct shared_var *var = job->var;
    struct exchange *e = &lane->exchange;
    struct shared_slot *slot = &var->slot[job->round % SHARED_KEPT];
    const float *input;
    int rc = clear_slot(var, slot);
    if (rc == OK)
        rc = reduce_here(var, job, &input);
    if (rc != OK)
        return rc;
    PL_ASSERT(e->completed + 1 == job->number); /* G2 */
    set_exchange(e, var, input, slot->x);
    const struct exchange_meta mine = {
        .weight = job->count > 0, .samples = job->count, .hash_min = UINT64_MAX};
    rc = exchange_run(e, &mine);
    atomic_store(&lane->shared->group->work.busy,
                 false); /* no steps here: no progress is ever due */
    if (rc != OK)
        return rc;
    bool whole = exchange_result_meta(e)->samples == var->spec.tasks;
    if (whole)
        rc = publish_result(var, slot, job->round);
    else
        atomic_fetch_add(&lane->shared->voids, 1);
    return rc == OK ? report_ended(var, job, whole) : rc;
}

static int do_jobs(struct shared_lane *lane, struct shared_item *job)
{
    int rc = OK;
    while (job && rc == OK) {
        struct shared_item *next = job->link.next;
        rc = do_job(lane, job);
        shared_item_unref(job);
        job = next;
    }
    shared_drop(job);
    return rc;
}

/* Between exchanges, keep the lane in line with new views: members may lack the last result. */
static int serve_result(struct shared_lane *lane)
{
    struct group *group = lane->shared->group;
    struct world *world = group->world;
    uint32_t number = SIGNAL_LANE + lane->exchange.lane;
    while (!atomic_load(&group->end.over)) {
        const struct wait_for set[] = {
            wait_signal(world, number),
            wait_signal(world, SIGNAL_GROUP),
        };
        struct shared_item *jobs = inbox_take(&lane->jobs);
        int rc = jobs ? do_jobs(lane, jobs) : exchange_sync(&lane->exchange);
        struct wake wake;
        if (rc == OK && !jobs && !atomic_load(&group->end.over))
            rc = world_wait(world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int lane_task(void *arg)
{
    struct shared_lane *lane = arg;
    kernels_set_threads(1); /* the cores are the callers' */
    int rc = serve_result(lane);
    if (rc != OK && rc != ERR_CANCELLED)
        group_quit(lane->shared->group, rc);
    return rc;
}

/* A joiner begins behind the exchanges that all members had ended when it was admitted. It needs no
 * result of them, because no member can lack one: it takes part like any other from its first one.
 */
int shared_lane_start(struct shared_lane *lane, uint64_t completed)
{
    struct shared *s = lane->shared;
    const struct exchange_config config = {.pinned = true, .chunk = s->chunk, .plain = true};
    if (lane->task)
        return OK;
    uint32_t number = (uint32_t)(lane - s->lane);
    int rc =
        exchange_init(&lane->exchange, s->group, number, false, 0, &config, completed, &s->arena);
    if (rc == OK)
        rc = world_spawn(s->group->world, "shared lane", lane_task, lane, &lane->task);
    return rc;
}

void shared_lane_stop(struct shared_lane *lane)
{
    world_end_task(lane->shared->group->world, &lane->task);
    exchange_release(&lane->exchange);
    shared_drop(inbox_take(&lane->jobs));
}
