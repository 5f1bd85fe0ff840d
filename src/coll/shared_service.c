/* A member's service of shared variables. It alone keeps the submissions of this node's tasks,
 * communicates with the coordinator, and passes started rounds to their lanes. */
#include "base/fault.h"
#include "coll/shared_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- variables ---- */

/* The variable of the coordinator's number; created at its first mention, when `done` of its rounds
 * are done: a joiner has no part in those. NULL: no memory. */
static struct shared_var *var_of(struct shared *s, uint32_t id, const struct tasks_spec *spec,
                                 uint64_t done)
{
    if (s->var[id])
        return s->var[id];
    struct shared_var *var = calloc(1, sizeof *var);
    if (!var)
        return NULL;
    var->shared = s;
    var->id = id;
    var->spec = *spec;
    var->done = var->closed = done;
    return s->var[id] = var;
}

static const float **row_of(struct shared_var *var, uint64_t round)
{
    return &var->vector[round % SHARED_AHEAD * var->spec.tasks];
}

/* The first call on this node that wants the variable brings its function; others have the same. */
static int make_own(struct shared_var *var, const struct reduction *reduction, struct err *err)
{
    if (var->vector) {
        bool same = var->reduction.fn == reduction->fn && var->reduction.user == reduction->user;
        return same ? OK
                    : err_set(err, ERR_USAGE, "shared variable '%s': has another function already",
                              var->spec.key);
    }
    var->vector = calloc((size_t)var->spec.tasks * SHARED_AHEAD, sizeof *var->vector);
    if (!var->vector)
        return err_set(err, ERR_NOMEM, "shared variable '%s': out of memory", var->spec.key);
    var->reduction = *reduction;
    return OK;
}

static void free_var(struct shared_var *var)
{
    for (size_t i = 0; var && i < SHARED_KEPT; i++)
        free(var->slot[i].x);
    if (var) {
        free(var->local);
        free(var->vector);
    }
    free(var);
}

/* ---- what calls and lanes hand over ---- */

static int request_init(struct shared *s, struct shared_item *item)
{
    struct buf bytes = {0};
    buf_put_u8(&bytes, REQUEST_INIT);
    buf_put_u64(&bytes, item->request);
    tasks_spec_encode(&item->spec, &bytes);
    item->link.next = s->open_requests;
    s->open_requests = item;
    return shared_request(s, &bytes);
}

static int take_submit(struct shared *s, const struct shared_item *item)
{
    struct shared_var *var = item->var;
    struct buf bytes = {0};
    if (item->round < var->closed || row_of(var, item->round)[item->task])
        return OK; /* it is over, or handed in already */
    row_of(var, item->round)[item->task] = item->x;
    buf_put_u8(&bytes, REQUEST_COMMIT);
    buf_put_u32(&bytes, var->id);
    buf_put_u64(&bytes, item->round);
    buf_put_u32(&bytes, item->task);
    return shared_request(s, &bytes);
}

static void take_closed(const struct shared_item *item)
{
    struct shared_var *var = item->var;
    var->closed = item->round + 1;
    for (uint32_t t = 0; var->vector && t < var->spec.tasks; t++)
        row_of(var, item->round)[t] = NULL;
}

static int take_items(struct shared *s)
{
    int rc = OK;
    for (struct shared_item *item = inbox_take(&s->inbox), *next; item; item = next) {
        next = item->link.next;
        if (rc == OK && item->kind == ITEM_INIT) {
            rc = request_init(s, item);
            continue; /* kept, until it is answered */
        }
        if (rc == OK && item->kind == ITEM_SUBMIT)
            rc = take_submit(s, item);
        else if (rc == OK)
            take_closed(item);
        shared_item_unref(item);
    }
    return rc;
}

/* ---- what the coordinator tells ---- */

static struct shared_item *take_request(struct shared *s, uint64_t request)
{
    struct shared_item *item;
    for (void **at = &s->open_requests; (item = *at); at = &item->link.next) {
        if (item->request != request)
            continue;
        *at = item->link.next;
        break;
    }
    return item;
}

static void complete_item(struct shared *s, struct shared_item *item)
{
    atomic_store(&item->has_reply, true);
    shared_item_unref(item);
    world_raise(s->group->world, SIGNAL_RESULT);
}

static int on_var(struct shared *s, struct byte_reader *in)
{
    struct shared_item *item = take_request(s, read_u64(in));
    uint32_t id = read_u32(in);
    uint64_t done = read_u64(in);
    if (!byte_reader_done(in) || !item || id >= TASKS_VARS_MAX) {
        shared_item_unref(item);
        return ERR_PROTOCOL;
    }
    struct shared_var *var = var_of(s, id, &item->spec, done);
    if (!var)
        err_set(&item->err, ERR_NOMEM, "shared variable '%s': out of memory", item->spec.key);
    else if (make_own(var, &item->reduction, &item->err) == OK)
        item->var = var;
    complete_item(s, item);
    return OK;
}

static int on_refusal(struct shared *s, struct byte_reader *in)
{
    struct shared_item *item = take_request(s, read_u64(in));
    char why[ERR_TEXT_MAX];
    read_text(in, why, sizeof why);
    if (!byte_reader_done(in) || !item) {
        shared_item_unref(item);
        return ERR_PROTOCOL;
    }
    err_set(&item->err, ERR_USAGE, "%s", why);
    complete_item(s, item);
    return OK;
}

/* This node's vectors among those of the round, in order of their tasks. */
static int pick_vectors(struct shared_var *var, struct byte_reader *in, struct shared_item *job)
{
    uint32_t self = var->shared->group->world->self;
    for (uint32_t t = 0; t < var->spec.tasks; t++) {
        if (read_u32(in) != self)
            continue;
        const float *x = var->vector ? row_of(var, job->round)[t] : NULL;
        if (!x)
            return ERR_PROTOCOL;
        job->vector[job->count++] = x;
    }
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

static int on_start(struct shared *s, struct byte_reader *in)
{
    struct tasks_spec spec;
    uint32_t view = read_u32(in), id = read_u32(in);
    uint64_t round = read_u64(in);
    uint32_t lane = read_u32(in);
    uint64_t number = read_u64(in);
    tasks_spec_decode(in, &spec);
    if (id >= TASKS_VARS_MAX || lane >= TASKS_LANES || number == 0 || view == 0 ||
        tasks_spec_check(&spec, ERR_PROTOCOL, NULL) != OK)
        return ERR_PROTOCOL;
    struct shared_var *var = var_of(s, id, &spec, round);
    struct shared_item *job = var ? shared_item_new(ITEM_JOB, spec.tasks) : NULL;
    if (!job)
        return ERR_NOMEM;
    job->var = var;
    job->round = round;
    job->number = number;
    int rc = OK;
    if (var->spec.n != spec.n || var->spec.tasks != spec.tasks ||
        (spec.op == TASKS_USER && !var->reduction.fn))
        rc = ERR_PROTOCOL;
    if (rc == OK)
        rc = pick_vectors(var, in, job);
    /* The view is on its way. An exchange that began in an older one would be interrupted (G3). */
    if (rc == OK)
        rc = group_wait_view(s->group, view - 1, WORLD_FOREVER);
    if (rc == OK)
        rc = shared_lane_start(&s->lane[lane], number - 1);
    if (rc != OK) {
        shared_item_unref(job);
        return rc;
    }
    inbox_push(&s->lane[lane].jobs, &job->link);
    world_raise(s->group->world, SIGNAL_LANE + lane);
    return OK;
}

static int on_report(struct shared *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    switch (read_u8(&in)) {
    case REPORT_VAR: return on_var(s, &in);
    case REPORT_REFUSAL: return on_refusal(s, &in);
    case REPORT_START: return on_start(s, &in);
    case REPORT_MAY_LEAVE:
        atomic_store(&s->may_leave, true);
        world_raise(s->group->world, SIGNAL_RESULT);
        return OK;
    default: return ERR_PROTOCOL;
    }
}

/* ---- the task ---- */

static int serve_reports(struct shared *s)
{
    struct world *world = s->group->world;
    while (!atomic_load(&s->group->end.over)) {
        const struct wait_for set[] = {
            wait_signal(world, SIGNAL_SHARED),
            wait_signal(world, SIGNAL_GROUP),
            wire_from(WORLD_DRIVER, WIRE_SHARED_REPORT),
        };
        struct wake wake;
        int rc = take_items(s);
        if (rc == OK && atomic_load(&s->group->end.over))
            break;
        if (rc == OK)
            rc = world_wait(world, set, 3, WORLD_FOREVER, &wake);
        if (rc == OK && wake.which == 2) {
            rc = on_report(s, wake.msg);
            message_unref(wake.msg);
        }
        if (rc != OK)
            return rc;
    }
    return OK;
}

int shared_service_task(void *arg)
{
    struct shared *s = arg;
    int rc = serve_reports(s);
    if (rc != OK && rc != ERR_CANCELLED)
        group_quit(s->group, rc);
    return rc;
}

void shared_service_release(struct shared *s)
{
    shared_drop(inbox_take(&s->inbox));
    shared_drop(s->open_requests);
    s->open_requests = NULL;
    for (size_t i = 0; i < TASKS_VARS_MAX; i++) {
        free_var(s->var[i]);
        s->var[i] = NULL;
    }
}
