/* All parcels of a task: a list of them, and the one place where the task waits. */
#include "base/fault.h"
#include "coll/parcel_parts.h"
#include "tensor/reduce.h"

#include <stdatomic.h>

void parcels_put(struct parcels *ps, struct parcel *p)
{
    struct parcel **last = &ps->first;
    while (*last)
        last = &(*last)->next;
    *last = p;
    p->all = ps;
}

void parcels_forget(struct parcel *p)
{
    struct parcel **at = &p->all->first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->all = NULL;
}

/* ---- beginning and ending ---- */

void parcels_init(struct parcels *ps, struct world *world, struct group *group, uint32_t lane)
{
    PL_ASSERT(lane <= UINT8_MAX);
    *ps = (struct parcels){.world = world, .group = group, .lane = lane};
}

void parcels_close(struct parcels *ps)
{
    while (ps->first)
        parcel_cancel(ps->first);
    /* A post is counted a moment after its status is set. */
    for (uint64_t seen; (seen = atomic_load(&ps->ended.times)) < ps->posts;) {
        const struct wait_for any = {.kind = WAIT_ENDED, .ended = &ps->ended, .seen = seen};
        struct wake wake;
        (void)world_wait(ps->world, &any, 1, WORLD_FOREVER, &wake); /* cancelled: look again */
    }
}

/* Bytes are sealed where they leave, and opened where they come in. */
static int pay(struct parcels *ps)
{
    const struct cost cost = {ps->world->costs.crypto * (double)ps->bytes};
    ps->bytes = 0;
    return cost.seconds > 0 ? world_work(ps->world, &cost) : OK;
}

int parcels_step(struct parcels *ps)
{
    ps->full = false;
    for (struct parcel *p = ps->first; p; p = p->next)
        parcel_step(p);
    return pay(ps);
}

/* ---- waiting ---- */

static bool is_note(const struct message *m)
{
    return (m->tag & WIRE_NOTE) == WIRE_NOTE && m->data && m->len >= PARCEL_HEAD &&
           m->len <= PARCEL_HEAD + PARCEL_NOTE;
}

/* Until something of `own` holds (out->which), a post has ended since `seen`, or a note (out->note)
 * has come in from `*from` (NULL: notes can wait). It may also turn out to be nothing. */
static int wait_for_any(struct parcels *ps, const struct wait_for *own, int n, uint64_t seen,
                        const uint32_t *from, int64_t deadline, struct parcel_wake *out)
{
    struct wait_for set[WORLD_WAITS_MAX];
    PL_ASSERT(n >= 0 && n <= WORLD_WAITS_MAX - 3);
    for (int i = 0; i < n; i++)
        set[i] = own[i];
    int count = n;
    set[count++] = (struct wait_for){.kind = WAIT_ENDED, .ended = &ps->ended, .seen = seen};
    if (ps->full)
        set[count++] = (struct wait_for){.kind = WAIT_CREDIT, .peer = ps->world->self};
    if (from)
        set[count++] = (struct wait_for){.kind = WAIT_MESSAGE,
                                         .from = *from,
                                         .view = ps->view,
                                         .tag = wire_tag(WIRE_PARCEL, ps->lane, 0, 0),
                                         .mask = wire_tag(UINT8_MAX, UINT8_MAX, 0, 0)};
    *out = (struct parcel_wake){.which = -1};
    int rc = world_wait(ps->world, set, count, deadline, &out->wake);
    if (rc == OK && out->wake.which < n)
        out->which = out->wake.which;
    else if (rc == OK && out->wake.msg && is_note(out->wake.msg))
        out->note = out->wake.msg;
    else if (rc == OK)
        message_unref(out->wake.msg);
    return rc;
}

static struct parcel *take_one(struct parcels *ps)
{
    for (struct parcel *p = ps->first; p; p = p->next)
        if (p->status != POST_PENDING) {
            parcels_forget(p);
            return p;
        }
    return NULL;
}

int parcels_next(struct parcels *ps, const struct wait_for *own, int n, int64_t deadline,
                 struct parcel_wake *out)
{
    static const uint32_t anybody = WORLD_ANY;
    for (;;) {
        uint64_t seen = atomic_load(&ps->ended.times);
        int rc = parcels_step(ps);
        if (rc != OK)
            return rc;
        *out = (struct parcel_wake){.ended = take_one(ps), .which = -1};
        if (out->ended)
            return OK;
        rc = wait_for_any(ps, own, n, seen, &anybody, deadline, out);
        if (rc != OK || out->note || out->which >= 0)
            return rc;
    }
}

int parcels_await(struct parcels *ps, uint32_t from, int64_t deadline, struct message **note)
{
    /* Nobody sends this: it ends when the node does, or the view. */
    struct recv life = {.from = from,
                        .view = ps->view,
                        .tag = wire_tag(WIRE_PARCEL_GO, ps->lane, UINT32_MAX, PARCEL_LIFE),
                        .ended = &ps->ended};
    struct parcel_wake got = {0};
    int64_t begun = trace_now(ps->world);
    int rc = from == WORLD_ANY ? OK : world_post_recv(ps->world, &life);
    ps->posts += from != WORLD_ANY && rc == OK;
    while (rc == OK && !got.note) {
        uint64_t seen = atomic_load(&ps->ended.times);
        int how = from == WORLD_ANY ? POST_PENDING : atomic_load(&life.status);
        bool lives = how == POST_PENDING; /* else: what has come in by now */
        rc = parcels_step(ps);
        if (rc == OK)
            rc = wait_for_any(ps, NULL, 0, seen, &from, lives ? deadline : 0, &got);
        rc = rc == ERR_TIMEOUT && !lives ? how : rc;
    }
    trace_end(ps->world, begun,
              (struct trace_span){.kind = SPAN_WAIT, .row = parcels_row(ps), .peer = from});
    if (from != WORLD_ANY)
        world_unpost(ps->world, &life);
    if (rc == OK)
        *note = got.note;
    return rc;
}

static int finish(struct parcel *p, int64_t deadline)
{
    for (struct parcels *ps; (ps = p->all);) {
        struct parcel_wake got;
        uint64_t seen = atomic_load(&ps->ended.times);
        int rc = parcels_step(ps);
        if (rc == OK && p->status != POST_PENDING) {
            parcels_forget(p);
            break;
        }
        if (rc == OK)
            rc = wait_for_any(ps, NULL, 0, seen, NULL, deadline, &got);
        if (rc != OK)
            return rc;
    }
    return p->status;
}

int parcel_finish(struct parcel *p, int64_t deadline)
{
    struct parcels *ps = p->all;
    if (!ps)
        return p->status;
    int64_t begun = trace_now(ps->world);
    int rc = finish(p, deadline);
    trace_end(ps->world, begun,
              (struct trace_span){.kind = SPAN_WAIT, .row = parcels_row(ps), .peer = p->peer});
    return rc;
}

/* ---- notes ---- */

size_t parcel_note_floats(const struct message *note)
{
    uint64_t n = bytes_le64(note->data);
    return n <= SIZE_MAX ? n : SIZE_MAX;
}

uint32_t parcel_note_lane(const struct message *note)
{
    return (uint32_t)(note->tag >> (16 + PARCEL_COUNT_BITS)) & UINT8_MAX;
}

struct cut parcel_note_cut(const struct message *note)
{
    return (struct cut){(const uint8_t *)note->data + PARCEL_HEAD, note->len - PARCEL_HEAD, false};
}

struct cut parcel_cut(const struct parcel *p)
{
    return (struct cut){p->note + PARCEL_HEAD, p->note_len - PARCEL_HEAD, false};
}

void parcel_add(void *user, void *at, const void *bytes, size_t n)
{
    static const struct reduction sum = {.kind = REDUCE_SUM};
    (void)user;
    reduce_range(&sum, at, bytes, n / sizeof(float));
}
