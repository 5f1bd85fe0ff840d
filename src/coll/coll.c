#include "coll/coll.h"

#include "base/fault.h"
#include "world/trace.h"

#include <string.h>

static struct trace_span wait_for_node(const struct coll *c, uint32_t node)
{
    return (struct trace_span){.kind = SPAN_WAIT, .row = (uint8_t)c->lane, .peer = node, .n = c->n};
}

/* The group has moved on from the view this collective runs in. */
static bool is_superseded(const struct coll *c)
{
    return group_view(c->group) != c->view || atomic_load(&c->group->end.over);
}

int64_t coll_deadline(const struct coll *c)
{
    return c->patient ? WORLD_FOREVER : world_now(c->group->world) + c->group->timing.piece;
}

static int wait_in_view(struct coll *c, const struct wait_for *what, int64_t deadline,
                        struct wake *wake)
{
    struct world *world = c->group->world;
    for (;;) {
        const struct wait_for changed = wait_signal(world, SIGNAL_GROUP);
        if (is_superseded(c))
            return ERR_VIEW;
        struct wait_for set[2] = {
            changed,
            *what,
        };
        int rc = world_wait(world, set, 2, deadline, wake);
        if (rc != OK || wake->which == 1)
            return rc; /* a signal may be late, and of the very view that this runs in */
    }
}

/* A wait that ends well is accounted for by its caller. */
int coll_wait(struct coll *c, const struct wait_for *what, int64_t deadline, struct wake *wake)
{
    int64_t begun = trace_now(c->group->world);
    int rc = wait_in_view(c, what, deadline, wake);
    if (rc != OK)
        trace_end(c->group->world, begun, wait_for_node(c, WORLD_ANY));
    return rc;
}

int coll_lost(struct coll *c, int64_t deadline)
{
    int64_t begun = trace_now(c->group->world);
    int rc = group_wait_view(c->group, c->view->number, deadline);
    trace_end(c->group->world, begun, wait_for_node(c, WORLD_DRIVER));
    return rc == OK || rc == ERR_DRIVER ? ERR_VIEW : rc;
}

/* A member that is lost ends the view. */
static int lose_peer(struct coll *c, uint32_t peer, int64_t deadline)
{
    return c->outlives_driver && peer == WORLD_DRIVER ? ERR_PEER : coll_lost(c, deadline);
}

int coll_send(struct coll *c, size_t to, uint64_t tag, const void *data, size_t len)
{
    struct world *world = c->group->world;
    uint32_t peer = c->ranks->node[to];
    struct message *m = message_new(tag, c->view->number, len);
    if (!m)
        return ERR_NOMEM;
    memcpy(m->data, data, len);
    int64_t deadline = coll_deadline(c);
    for (;;) {
        if (is_superseded(c)) {
            message_unref(m);
            return ERR_VIEW;
        }
        int rc = world_send(world, peer, m, CLASS_BULK);
        if (rc == ERR_PEER)
            return lose_peer(c, peer, deadline);
        if (rc == OK && c->waits)
            c->waits->bytes += len;
        if (rc != ERR_FULL)
            return rc;
        struct wake wake;
        struct wait_for credit = {.kind = WAIT_CREDIT, .peer = peer};
        int64_t begun = trace_now(world);
        rc = coll_wait(c, &credit, deadline, &wake);
        if (rc != OK) {
            message_unref(m);
            return rc;
        }
        trace_end(world, begun, wait_for_node(c, peer));
    }
}

/* A wait before the first byte was for the sender; after it, for the link. */
void coll_account(struct coll *c, uint32_t node, int64_t first_byte, size_t len, int64_t from)
{
    int64_t now = world_now(c->group->world);
    int64_t first = first_byte < now ? first_byte : now;
    int64_t waited = first > from ? first - from : 0;
    trace_between(c->group->world, from, from + waited, wait_for_node(c, node));
    c->waits->total += waited;
    c->waits->bytes += len;
    /* A message that began before the wait may have been there for long. */
    if (first >= from && now - first > c->waits->arriving) {
        c->waits->arriving = now - first;
        c->waits->arrived_bytes = len;
        c->waits->arrived_from = node;
    }
    if (waited >= c->waits->longest && waited > 0) {
        c->waits->longest = waited;
        c->waits->longest_for = node;
    }
}

int coll_recv(struct coll *c, size_t from, uint64_t tag, void *into, size_t len)
{
    struct world *world = c->group->world;
    uint32_t peer = c->ranks->node[from];
    struct recv recv = {
        .from = peer,
        .view = c->view->number,
        .tag = tag,
        .into = into,
        .len = len,
    };
    int64_t start = world_now(world), deadline = coll_deadline(c);
    int rc = world_post_recv(world, &recv);
    if (rc != OK)
        return rc;
    struct wake wake;
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    rc = coll_wait(c, &done, deadline, &wake);
    world_unpost(world, &recv);
    if (rc != OK)
        return rc;
    if (recv.status == ERR_PEER)
        return lose_peer(c, peer, deadline);
    if (recv.status == OK && c->waits)
        coll_account(c, peer, recv.first_byte, len, start);
    return recv.status;
}

size_t coll_pieces(const struct coll *c, size_t n)
{
    size_t pieces = (n + c->chunk_floats - 1) / c->chunk_floats;
    PL_ASSERT(pieces < WIRE_HEADER_PIECE);
    return pieces;
}

size_t coll_piece(const struct coll *c, size_t n, size_t i, size_t *from)
{
    *from = i * c->chunk_floats;
    return n - *from < c->chunk_floats ? n - *from : c->chunk_floats;
}

uint64_t coll_tag(const struct coll *c, enum wire_kind kind, size_t piece)
{
    return wire_tag(kind, c->lane, c->n, (uint32_t)piece);
}

int coll_send_vector(struct coll *c, size_t to, enum wire_kind kind, const float *x, size_t n)
{
    for (size_t i = 0; i < coll_pieces(c, n); i++) {
        size_t from, len = coll_piece(c, n, i, &from);
        int rc = coll_send(c, to, coll_tag(c, kind, i), x + from, len * sizeof *x);
        if (rc != OK)
            return rc;
    }
    return OK;
}

int coll_recv_vector(struct coll *c, size_t from_rank, enum wire_kind kind, float *x, size_t n)
{
    for (size_t i = 0; i < coll_pieces(c, n); i++) {
        size_t from, len = coll_piece(c, n, i, &from);
        int rc = coll_recv(c, from_rank, coll_tag(c, kind, i), x + from, len * sizeof *x);
        if (rc != OK)
            return rc;
    }
    return OK;
}
