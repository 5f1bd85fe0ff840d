#include "train/lease_server.h"

#include "wire/wire_send.h"

_Static_assert((int)LEASE_NODES_MAX == (int)VIEW_MEMBERS_MAX, "each node can hold leases");

void lease_grant_encode(const struct lease_grant *grant, struct buf *out)
{
    buf_put_u32(out, grant->request);
    buf_put_u32(out, (uint32_t)grant->count);
    for (size_t i = 0; i < grant->count; i++) {
        buf_put_u64(out, grant->lease[i].from);
        buf_put_u64(out, grant->lease[i].to);
    }
}

int lease_grant_decode(struct byte_reader *in, struct lease_grant *out)
{
    *out = (struct lease_grant){.count = 0};
    out->request = read_u32(in); /* one statement a number: initialisers have no order */
    out->count = read_u32(in);
    if (out->count > LEASE_HELD_MAX)
        return ERR_PROTOCOL;
    for (size_t i = 0; i < out->count; i++) {
        out->lease[i].from = read_u64(in);
        out->lease[i].to = read_u64(in);
    }
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

uint64_t lease_server_first_size(size_t members, uint64_t step, size_t records)
{
    return lease_size(0, step, records, members);
}

struct lease lease_server_first(uint64_t frontier, const struct view *first, uint32_t node,
                                uint64_t step, size_t records)
{
    uint64_t size = lease_server_first_size(first->count, step, records);
    uint64_t from = frontier + (uint64_t)view_rank(first, node) * size;
    return (struct lease){.from = from, .to = from + size};
}

static bool holds_lease(const struct lease_server *leases, uint32_t node)
{
    return node < LEASE_NODES_MAX && leases->table.holder[node].here;
}

/* A grant could not be sent. The server sends it again while the worker still holds part of it; if
 * nothing is left, the request is open again. */
static void forget_unsent(struct lease_server *leases, uint32_t node)
{
    size_t count = leases->table.holder[node].count;
    if (leases->unsent[node] <= count)
        return;
    leases->unsent[node] = (uint8_t)count;
    if (count == 0)
        leases->replied[node]--;
}

/* Send a node its newest leases. If that fails, the node requests again. */
static void send_grant(struct lease_server *leases, uint32_t node)
{
    const struct lease_holder *h = &leases->table.holder[node];
    struct lease_grant grant = {.request = leases->replied[node], .count = leases->unsent[node]};
    struct buf bytes = {0};
    for (size_t i = 0; i < grant.count; i++)
        grant.lease[i] = h->held[h->count - grant.count + i];
    lease_grant_encode(&grant, &bytes);
    if (wire_send_buf(leases->world, node, WIRE_LEASE, 0, &bytes) == OK)
        leases->unsent[node] = 0;
    buf_release(&bytes);
}

static void grant_lease(struct lease_server *leases, uint32_t node, uint32_t request, uint64_t want)
{
    struct lease given[LEASE_HELD_MAX];
    size_t n = lease_grant(&leases->table, node, want, given);
    if (n == 0)
        return; /* its report of the leases that it holds has not arrived */
    leases->replied[node] = request;
    leases->unsent[node] = (uint8_t)n;
    send_grant(leases, node);
}

/* A node that joins has made its first request by joining. */
static void add_node(struct lease_server *leases, uint32_t node)
{
    members_add(&leases->known, node);
    leases->replied[node] = 1;
    lease_add_node(&leases->table, node);
}

void lease_server_begin(struct lease_server *leases, const struct view *first)
{
    uint64_t size = lease_server_first_size(first->count, leases->step, leases->records);
    leases->opened = true;
    for (size_t i = 0; i < first->count; i++) {
        add_node(leases, first->node[i]);
        lease_grant_first(&leases->table, first->node[i], size);
    }
}

void lease_server_recover(struct lease_server *leases, const struct view *view,
                          const struct recovery_report *reports, uint64_t used, uint64_t repeated)
{
    leases->opened = true;
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        members_add(&leases->known, node);
        leases->replied[node] = reports[node].lease_request;
        if (!lease_node_reconnects(&leases->table, node, &reports[node].lease,
                                   reports[node].lease_high))
            log_warn(leases->log, "worker %u: the leases that it reports cannot be its own", node);
    }
    lease_finish_recovery(&leases->table, used, repeated);
}

void lease_server_welcome(struct lease_server *leases, const struct view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        if (members_has(&leases->known, node))
            continue;
        add_node(leases, node);
        grant_lease(leases, node, 1,
                    lease_server_first_size(view->count, leases->step, leases->records));
    }
}

struct members lease_server_orphans(const struct lease_server *leases, const struct view *view)
{
    struct members orphans = {{0}};
    for (uint32_t node = 0; node < leases->table.nodes; node++)
        if (holds_lease(leases, node) && view_rank(view, node) < 0)
            members_add(&orphans, node);
    return orphans;
}

void lease_server_reclaim(struct lease_server *leases, const struct members *orphans)
{
    for (uint32_t node = 0; node < leases->table.nodes; node++)
        if (members_has(orphans, node))
            lease_node_dies(&leases->table, node);
}

bool lease_server_accepts(const struct lease_server *leases, uint32_t node)
{
    return holds_lease(leases, node);
}

void lease_server_on_report(struct lease_server *leases, uint32_t node,
                            const struct lease_report *report)
{
    if (!holds_lease(leases, node))
        return;
    lease_report_use(&leases->table, node, report->taken, report->repeated);
    forget_unsent(leases, node);
    if (report->ends)
        lease_node_leaves(&leases->table, node);
    else if (report->want > 0 && report->request == leases->replied[node] &&
             leases->unsent[node] > 0)
        send_grant(leases, node);
    else if (report->want > 0 && report->request > leases->replied[node])
        grant_lease(leases, node, report->request, report->want);
}
