#include "train/bootstrap.h"

#include "base/fault.h"
#include "wire/wire_send.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PART_LEAST = 16 * 1024, /* floats */
    PARTS_EACH = 4,         /* parts for each worker, if the model is large enough */
    PARTS_MAX = 256,
    AHEAD = 4 /* parts that a worker fetches from others at once */
};

/* ns without a part from other workers, after which the rest is requested from the driver. */
#define PATIENCE (60 * WORLD_SECOND)
/* A holder's link may be busy for long with earlier requests (kv_options). */
#define SLOW (30 * WORLD_SECOND)

/* ns for which copies are kept where no exchange shows that all others have begun. */
#define KEEP       (30 * WORLD_SECOND)
#define KEEP_TIMES 4

/* The division into parts of `each` floats; the last may be shorter. */
struct parts {
    size_t floats, each;
    uint32_t count;
};

static struct parts parts_of(size_t floats, size_t workers)
{
    size_t most = PARTS_EACH * workers < PARTS_MAX ? PARTS_EACH * workers : PARTS_MAX;
    size_t fit = (floats + PART_LEAST - 1) / PART_LEAST, count = fit < most ? fit : most;
    size_t least = (size_t)((floats * sizeof(float) + KV_VALUE_MAX - 1) / KV_VALUE_MAX);
    struct parts p = {.floats = floats, .each = floats};
    count = count > least ? count : least;
    PL_ASSERT(count <= PARTS_MAX); /* the limit is a terabyte */
    if (floats == 0)
        return p;
    p.each = (floats + count - 1) / count;
    p.count = (uint32_t)((floats + p.each - 1) / p.each);
    return p;
}

/* The state of a worker that fetches all parts. */
struct part_fetch {
    struct bootstrap *b;
    struct group *group;
    const struct view *first;
    struct parts parts;
    float *into;
    bool here[PARTS_MAX];
    const struct view *seen; /* the view by which parts were assigned */
    uint32_t rank;
    uint32_t turn;   /* parts of others that were requested */
    int64_t arrived; /* when a part last arrived from others */
    bool impatient;  /* `arrived` is too long ago */
    uint32_t under_way;
    struct pending_part {
        struct kv_call *call; /* NULL: free */
        uint32_t part;
        uint64_t have; /* bytes at the last look */
    } pending[AHEAD];
};

static size_t part_at(const struct part_fetch *t, uint32_t part)
{
    return part * t->parts.each;
}

static size_t part_len(const struct part_fetch *t, uint32_t part)
{
    size_t left = t->parts.floats - part_at(t, part);
    return left < t->parts.each ? left : t->parts.each;
}

/* The worker that receives this part from the driver: counting from the part's number, the first
 * worker of the first view that is still a member. Every member computes the same. */
static uint32_t owner_of(const struct part_fetch *t, uint32_t part)
{
    const struct view *now = group_view(t->group);
    size_t rank = part % t->first->count;
    while (view_rank(now, t->first->node[rank]) < 0 && rank != t->rank)
        rank = (rank + 1) % t->first->count;
    return t->first->node[rank];
}

static void part_key(uint32_t part, char key[KV_KEY_MAX + 1])
{
    snprintf(key, KV_KEY_MAX + 1, "bootstrap/%" PRIu32, part);
}

/* ---- from the driver ---- */

/* Request `count` floats from offset `from`; 0: the header alone. */
static int request_parts(struct group *group, size_t from, size_t count, float *into,
                         struct model_header *message)
{
    struct world *world = group->world;
    struct buf range = {0};
    buf_put_u64(&range, from);
    buf_put_u64(&range, count);
    int rc = wire_send_buf(world, WORLD_DRIVER, WIRE_WANT_MODEL, 0, &range);
    buf_release(&range);
    if (rc == OK) /* no deadline: the driver serves one worker after another, and its death has an
                     event */
        rc = model_receive(world, group, WORLD_DRIVER, into, count, message, WORLD_FOREVER);
    if (rc == OK && message->floats != count)
        rc = ERR_PROTOCOL;
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

int bootstrap_request(struct group *group, struct model_header *message)
{
    return request_parts(group, 0, 0, NULL, message);
}

int bootstrap_take_range(struct group *group, size_t from, size_t count, float *into)
{
    struct model_header message = {0};
    return request_parts(group, from, count, into, &message);
}

/* Errors that stop the worker. After any other error the part is requested from the driver. */
static bool is_final(int rc)
{
    return rc == ERR_DRIVER || rc == ERR_CANCELLED || rc == ERR_NOMEM;
}

static int take_from_driver(struct part_fetch *t, uint32_t part)
{
    struct model_header message = {0};
    struct err err = {0};
    char key[KV_KEY_MAX + 1];
    float *at = t->into + part_at(t, part);
    int rc = request_parts(t->group, part_at(t, part), part_len(t, part), at, &message);
    t->here[part] = rc == OK;
    if (rc != OK || !t->b->kv.group)
        return rc;
    part_key(part, key);
    rc = kv_update(&t->b->kv, key, 0, at, part_len(t, part) * sizeof *at,
                   world_now(t->group->world) + PATIENCE, &err);
    if (rc != OK && !is_final(rc)) { /* request the part from the driver */
        log_warn(t->group->log, "the initial state is not forwarded: %s", err.text);
        rc = OK;
    }
    return rc;
}

/* ---- from the others ---- */

static void begin_part(struct part_fetch *t, struct pending_part *w, uint32_t part)
{
    char key[KV_KEY_MAX + 1];
    struct err err;
    part_key(part, key);
    *w = (struct pending_part){.part = part};
    const struct kv_want want = {
        .key = key, .version = 1, .patient = true, .deadline = WORLD_FOREVER};
    if (kv_begin(&t->b->kv, &want, &w->call, &err) != OK)
        w->call = NULL; /* the driver serves it */
}

/* Begin to fetch more parts, up to AHEAD at once. Each worker begins at another part: otherwise all
 * would request the same part from the same holder. */
static void begin_some(struct part_fetch *t)
{
    uint32_t count = t->parts.count, workers = (uint32_t)t->first->count;
    while (t->under_way < AHEAD && t->turn < count) {
        uint32_t part = (t->rank + 1 + t->turn++) % count;
        if (part % workers == t->rank || t->here[part])
            continue;
        begin_part(t, &t->pending[t->under_way++], part);
    }
}

static bool put_part(struct part_fetch *t, uint32_t part, const struct kv_value *value)
{
    size_t size = part_len(t, part) * sizeof *t->into;
    if (value->meta.size != size)
        return false;
    memcpy(t->into + part_at(t, part), value->data, size);
    return true;
}

/* Has a part arrived recently enough to wait on? */
static bool may_arrive(struct part_fetch *t, struct pending_part *w)
{
    uint64_t have, size;
    int64_t now = world_now(t->group->world);
    kv_progress(w->call, &have, &size);
    bool arrives = have != w->have;
    w->have = have;
    if (arrives)
        t->arrived = now;
    t->impatient |= now >= t->arrived + PATIENCE;
    return arrives || !t->impatient;
}

/* After a death, fetch the parts that are this worker's now from the driver, before waiting for
 * others: they may be waiting for these. */
static int take_orphaned_parts(struct part_fetch *t)
{
    const struct view *now = group_view(t->group);
    if (now == t->seen)
        return OK;
    t->seen = now;
    int rc = OK;
    for (uint32_t part = 0; rc == OK && part < t->parts.count; part++)
        if (!t->here[part] && owner_of(t, part) == t->group->world->self)
            rc = take_from_driver(t, part);
    return rc;
}

/* Has the part arrived? POST_PENDING: not yet. */
static int poll_part(struct part_fetch *t, struct pending_part *w)
{
    struct group *group = t->group;
    struct kv_value *value = NULL;
    struct err err = {0};
    if (!w->call)
        return ERR_NOT_FOUND;
    int rc = kv_finish(w->call, world_now(group->world) + group->timing.heartbeat, &value, &err);
    if (rc == OK) {
        t->here[w->part] = put_part(t, w->part, value);
        rc = t->here[w->part] ? OK : ERR_PROTOCOL;
        kv_value_unref(value);
    } else if (rc == ERR_TIMEOUT && may_arrive(t, w)) {
        return POST_PENDING;
    }
    if (rc != OK && !is_final(rc))
        log_info(group->log, "initial state, part %" PRIu32 ": %s; requesting it from the driver",
                 w->part, err.text[0] ? err.text : status_text(rc));
    return rc;
}

/* Wait for the oldest pending part from other workers, and request it from the driver if they fail.
 */
static int take_next(struct part_fetch *t)
{
    struct pending_part w = t->pending[0];
    int rc;
    do {
        rc = take_orphaned_parts(t);
        if (rc == OK && !t->here[w.part])
            rc = poll_part(t, &w);
    } while (rc == POST_PENDING);
    kv_end(w.call);
    t->under_way--;
    memmove(t->pending, t->pending + 1, t->under_way * sizeof *t->pending);
    if (rc == OK)
        t->arrived = world_now(t->group->world);
    return rc == OK || is_final(rc) ? rc : take_from_driver(t, w.part);
}

static int take_all(struct part_fetch *t)
{
    int rc = OK;
    for (uint32_t part = t->rank; rc == OK && part < t->parts.count;
         part += (uint32_t)t->first->count) {
        begin_some(t);
        rc = take_from_driver(t, part);
    }
    begin_some(t);
    t->arrived = world_now(t->group->world);
    while (rc == OK && t->under_way > 0) {
        rc = take_next(t);
        begin_some(t);
    }
    for (uint32_t i = 0; i < t->under_way; i++)
        kv_end(t->pending[i].call);
    return rc;
}

int bootstrap_take(struct bootstrap *b, struct group *group, float *into, size_t floats)
{
    struct world *world = group->world;
    const struct view *first = group_first_view(group);
    int64_t begun = world_now(world);
    int rank = view_rank(first, world->self);
    PL_ASSERT(rank >= 0);
    struct part_fetch t = {
        .b = b,
        .group = group,
        .first = first,
        .parts = parts_of(floats, first->count),
        .into = into,
        .rank = (uint32_t)rank,
        .seen = first,
    };
    const struct kv_options options = {.slow = SLOW};
    int rc = first->count > 1 ? kv_start(&b->kv, group, &options) : OK;
    if (rc == OK)
        rc = take_all(&t);
    int64_t now = world_now(world);
    b->until = b->kv.group ? now + KEEP + KEEP_TIMES * (now - begun) : 0;
    return rc;
}

/* ---- handing on, and its end ---- */

/* Close the store in a task of its own: a reader may hang, and training must not wait for it. */
static int end_store(void *arg)
{
    struct bootstrap *b = arg;
    kv_stop(&b->kv);
    return OK;
}

void bootstrap_hand_on(struct bootstrap *b, struct world *world, bool all_have_begun)
{
    if (b->until == 0 || (!all_have_begun && world_now(world) < b->until))
        return;
    b->until = 0;
    (void)world_spawn(world, "bootstrap", end_store, b, &b->end); /* if that fails,
                                                                     bootstrap_release closes it */
}

void bootstrap_release(struct bootstrap *b, struct world *world)
{
    world_end_task(world, &b->end);
    kv_stop(&b->kv);
}

/* ---- the driver's side ---- */

/* Floats of a message, which begin at `from` of all. */
struct reading {
    const struct bootstrap_server *server;
    size_t from;
};

static int read_range(void *user, size_t from, size_t n, float *into)
{
    const struct reading *r = user;
    struct err err;
    int rc = checkpoint_range(r->server->ranges, r->from + from, n, into, &err);
    if (rc != OK)
        log_error(r->server->group->log, "the checkpoint: %s", err.text);
    return rc;
}

/* Send the requested parts to a member. Others get none, since no event would report their death.
 */
static int send_parts(struct bootstrap_server *g, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    uint64_t from = read_u64(&in), count = read_u64(&in);
    struct model_header message = g->message;
    if (view_rank(group_view(g->group), m->from) < 0)
        return ERR_VIEW;
    if (!byte_reader_done(&in) || from > message.floats || count > message.floats - from)
        return ERR_PROTOCOL;
    message.floats = count;
    if (g->vectors)
        return model_send(g->group->world, m->from, &message, g->vectors + from);
    struct reading reading = {g, from};
    return model_send_from(g->group->world, m->from, &message, read_range, &reading);
}

static int server_main(void *arg)
{
    struct bootstrap_server *g = arg;
    struct world *world = g->group->world;
    for (;;) {
        const struct wait_for request = wire_from(WORLD_ANY, WIRE_WANT_MODEL);
        struct wake wake;
        int rc = world_wait(world, &request, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        uint32_t from = wake.msg->from;
        rc = send_parts(g, wake.msg);
        message_unref(wake.msg);
        if (rc == ERR_CANCELLED)
            return rc;
        if (rc == OK || rc == ERR_PEER)
            continue;
        log_warn(g->group->log, "worker %u gets nothing to begin with, and is let go: %s", from,
                 status_text(rc));
        world_peer_drop(world, from);
    }
}

int bootstrap_serve(struct bootstrap_server *server)
{
    struct group *group = server->group;
    int rc = kv_server_start(&server->store, group);
    return rc == OK ? world_spawn(group->world, "giver", server_main, server, &server->task) : rc;
}

void bootstrap_serve_stop(struct bootstrap_server *server)
{
    if (!server->group)
        return;
    world_end_task(server->group->world, &server->task);
    kv_server_stop(&server->store);
}
