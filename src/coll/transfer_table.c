/* All transfers of a task: a list of them, and the one place where the task waits. */
#include "base/fault.h"
#include "coll/transfer_internal.h"
#include "tensor/reduce.h"

#include <stdatomic.h>

void transfers_put(struct transfers *ps, struct transfer *p)
{
    struct transfer **last = &ps->first;
    while (*last)
        last = &(*last)->next;
    *last = p;
    p->all = ps;
}

void transfers_forget(struct transfer *p)
{
    struct transfer **at = &p->all->first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->all = NULL;
}

/* ---- beginning and ending ---- */

void transfers_init(struct transfers *ps, struct world *world, struct group *group, uint32_t lane)
{
    PL_ASSERT(lane <= UINT8_MAX);
    *ps = (struct transfers){.world = world, .group = group, .lane = lane};
}

void transfers_close(struct transfers *ps)
{
    while (ps->first)
        transfer_cancel(ps->first);
    /* A post is counted a moment after its status is set: wait for the count. */
    for (uint64_t seen; (seen = atomic_load(&ps->ended.times)) < ps->posts;) {
        const struct wait_for any = {.kind = WAIT_ENDED, .ended = &ps->ended, .seen = seen};
        struct wake wake;
        /* even if the task is cancelled: look again */
        (void)world_wait(ps->world, &any, 1, WORLD_FOREVER, &wake);
    }
}

/* Charge the task for sealing and opening the bytes that it has moved (simulation). */
static int pay_for_crypto(struct transfers *ps)
{
    const struct cost cost = {ps->world->costs.crypto * (double)ps->bytes};
    ps->bytes = 0;
    return cost.seconds > 0 ? world_work(ps->world, &cost) : OK;
}

int transfers_step(struct transfers *ps)
{
    ps->full = false;
    for (struct transfer *p = ps->first; p; p = p->next)
        transfer_step(p);
    return pay_for_crypto(ps);
}

/* ---- waiting ---- */

static bool is_header(const struct message *m)
{
    return (m->tag & WIRE_HEADER_PIECE) == WIRE_HEADER_PIECE && m->data &&
           m->len >= TRANSFER_HEAD && m->len <= TRANSFER_HEAD + TRANSFER_HEADER;
}

/* Wait until an event of `own` occurs (out->which), a post has ended since `seen`, or a header
 * (out->header) arrives from `*from` (NULL: headers can wait). It may return without any of them.
 */
static int wait_for_any(struct transfers *ps, const struct wait_for *own, int n, uint64_t seen,
                        const uint32_t *from, int64_t deadline, struct transfer_wake *out)
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
                                         .tag = wire_tag(WIRE_TRANSFER, ps->lane, 0, 0),
                                         .mask = wire_tag(UINT8_MAX, UINT8_MAX, 0, 0)};
    *out = (struct transfer_wake){.which = -1};
    int rc = world_wait(ps->world, set, count, deadline, &out->wake);
    if (rc == OK && out->wake.which < n)
        out->which = out->wake.which;
    else if (rc == OK && out->wake.msg && is_header(out->wake.msg))
        out->header = out->wake.msg;
    else if (rc == OK)
        message_unref(out->wake.msg);
    return rc;
}

static struct transfer *take_one(struct transfers *ps)
{
    for (struct transfer *p = ps->first; p; p = p->next)
        if (p->status != POST_PENDING) {
            transfers_forget(p);
            return p;
        }
    return NULL;
}

int transfers_next(struct transfers *ps, const struct wait_for *own, int n, int64_t deadline,
                   struct transfer_wake *out)
{
    static const uint32_t anybody = WORLD_ANY;
    for (;;) {
        uint64_t seen = atomic_load(&ps->ended.times);
        int rc = transfers_step(ps);
        if (rc != OK)
            return rc;
        *out = (struct transfer_wake){.ended = take_one(ps), .which = -1};
        if (out->ended)
            return OK;
        rc = wait_for_any(ps, own, n, seen, &anybody, deadline, out);
        if (rc != OK || out->header || out->which >= 0)
            return rc;
    }
}

int transfers_await(struct transfers *ps, uint32_t from, int64_t deadline, struct message **header)
{
    /* No node sends this message: the receive ends with the node or with the view. */
    struct recv life = {.from = from,
                        .view = ps->view,
                        .tag = wire_tag(WIRE_TRANSFER_GO, ps->lane, UINT32_MAX, TRANSFER_LIFE),
                        .ended = &ps->ended};
    struct transfer_wake got = {0};
    int64_t begun = trace_now(ps->world);
    int rc = from == WORLD_ANY ? OK : world_post_recv(ps->world, &life);
    ps->posts += from != WORLD_ANY && rc == OK;
    while (rc == OK && !got.header) {
        uint64_t seen = atomic_load(&ps->ended.times);
        int outcome = from == WORLD_ANY ? POST_PENDING : atomic_load(&life.status);
        bool is_live = outcome == POST_PENDING; /* else: take what has arrived */
        rc = transfers_step(ps);
        if (rc == OK)
            rc = wait_for_any(ps, NULL, 0, seen, &from, is_live ? deadline : 0, &got);
        rc = rc == ERR_TIMEOUT && !is_live ? outcome : rc;
    }
    trace_end(ps->world, begun,
              (struct trace_span){.kind = SPAN_WAIT, .row = transfers_row(ps), .peer = from});
    if (from != WORLD_ANY)
        world_unpost(ps->world, &life);
    if (rc == OK)
        *header = got.header;
    return rc;
}

static int finish_transfer(struct transfer *p, int64_t deadline)
{
    for (struct transfers *ps; (ps = p->all);) {
        struct transfer_wake got;
        uint64_t seen = atomic_load(&ps->ended.times);
        int rc = transfers_step(ps);
        if (rc == OK && p->status != POST_PENDING) {
            transfers_forget(p);
            break;
        }
        if (rc == OK)
            rc = wait_for_any(ps, NULL, 0, seen, NULL, deadline, &got);
        if (rc != OK)
            return rc;
    }
    return p->status;
}

int transfer_finish(struct transfer *p, int64_t deadline)
{
    struct transfers *ps = p->all;
    if (!ps)
        return p->status;
    int64_t begun = trace_now(ps->world);
    int rc = finish_transfer(p, deadline);
    trace_end(ps->world, begun,
              (struct trace_span){.kind = SPAN_WAIT, .row = transfers_row(ps), .peer = p->peer});
    return rc;
}

/* ---- notes ---- */

size_t transfer_header_floats(const struct message *header)
{
    uint64_t n = bytes_le64(header->data) & FLOATS_MAX;
    return n <= SIZE_MAX ? n : SIZE_MAX;
}

enum codec transfer_header_codec(const struct message *header)
{
    uint64_t codec = bytes_le64(header->data) >> CODEC_SHIFT;
    return codec < CODECS ? (enum codec)codec : CODECS;
}

uint32_t transfer_header_lane(const struct message *header)
{
    return (uint32_t)(header->tag >> (16 + TRANSFER_COUNT_BITS)) & UINT8_MAX;
}

struct byte_reader transfer_header_reader(const struct message *header)
{
    return (struct byte_reader){(const uint8_t *)header->data + TRANSFER_HEAD,
                                header->len - TRANSFER_HEAD, false};
}

struct byte_reader transfer_reader(const struct transfer *p)
{
    return (struct byte_reader){p->header + TRANSFER_HEAD, p->header_len - TRANSFER_HEAD, false};
}

void transfer_add(void *user, void *at, const void *bytes, size_t n)
{
    static const struct reduction sum = {.kind = REDUCE_SUM};
    (void)user;
    reduce_range(&sum, at, bytes, n / sizeof(float));
}
