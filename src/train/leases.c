#include "train/leases.h"

#include "wire/wire_send.h"

_Static_assert((int)LEASE_NODES_MAX == (int)VIEW_MEMBERS_MAX, "each node can hold leases");

void lease_grant_encode(const struct lease_grant *grant, struct buf *out)
{
    buf_put_u32(out, grant->ask);
    buf_put_u32(out, (uint32_t)grant->count);
    for (size_t i = 0; i < grant->count; i++) {
        buf_put_u64(out, grant->lease[i].from);
        buf_put_u64(out, grant->lease[i].to);
    }
}

int lease_grant_decode(struct byte_reader *in, struct lease_grant *out)
{
    *out = (struct lease_grant){.count = 0};
    out->ask = read_u32(in); /* one statement a number: initialisers have no order */
    out->count = read_u32(in);
    if (out->count > LEASE_HELD_MAX)
        return ERR_PROTOCOL;
    for (size_t i = 0; i < out->count; i++) {
        out->lease[i].from = read_u64(in);
        out->lease[i].to = read_u64(in);
    }
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

uint64_t leases_first_size(size_t members, uint64_t grain, size_t records)
{
    return lease_size(0, grain, records, members);
}

struct lease leases_first(uint64_t frontier, const struct view *first, uint32_t node,
                          uint64_t grain, size_t records)
{
    uint64_t size = leases_first_size(first->count, grain, records);
    uint64_t from = frontier + (uint64_t)view_rank(first, node) * size;
    return (struct lease){.from = from, .to = from + size};
}

static bool holds(const struct leases *leases, uint32_t node)
{
    return node < LEASE_NODES_MAX && leases->book.holder[node].here;
}

/* What it has not been sent it has not gone over, but it says so: what it still holds is sent, and
 * where that is nothing, its question is open again. */
static void forget_unsent(struct leases *leases, uint32_t node)
{
    size_t count = leases->book.holder[node].count;
    if (leases->unsent[node] <= count)
        return;
    leases->unsent[node] = (uint8_t)count;
    if (count == 0)
        leases->answered[node]--;
}

/* The newest leases of a node, which it has not been sent. It will ask again where that fails. */
static void send_grant(struct leases *leases, uint32_t node)
{
    const struct lease_holder *h = &leases->book.holder[node];
    struct lease_grant grant = {.ask = leases->answered[node], .count = leases->unsent[node]};
    struct buf bytes = {0};
    for (size_t i = 0; i < grant.count; i++)
        grant.lease[i] = h->held[h->count - grant.count + i];
    lease_grant_encode(&grant, &bytes);
    if (wire_send_buf(leases->world, node, WIRE_LEASE, 0, &bytes) == OK)
        leases->unsent[node] = 0;
    buf_release(&bytes);
}

static void grant(struct leases *leases, uint32_t node, uint32_t ask, uint64_t want)
{
    struct lease given[LEASE_HELD_MAX];
    size_t n = lease_grant(&leases->book, node, want, given);
    if (n == 0)
        return; /* it has not said yet that it has used up what it holds */
    leases->answered[node] = ask;
    leases->unsent[node] = (uint8_t)n;
    send_grant(leases, node);
}

/* Coming is a question, too: the first. */
static void enter(struct leases *leases, uint32_t node)
{
    members_add(&leases->known, node);
    leases->answered[node] = 1;
    lease_add_node(&leases->book, node);
}

void leases_begin(struct leases *leases, const struct view *first)
{
    uint64_t size = leases_first_size(first->count, leases->book.grain, leases->records);
    leases->opened = true;
    for (size_t i = 0; i < first->count; i++) {
        enter(leases, first->node[i]);
        lease_grant_first(&leases->book, first->node[i], size);
    }
}

void leases_return(struct leases *leases, const struct view *view, const struct comeback *back,
                   uint64_t used, uint64_t repeated)
{
    leases->opened = true;
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        members_add(&leases->known, node);
        leases->answered[node] = back[node].lease_ask;
        if (!lease_node_reconnects(&leases->book, node, &back[node].lease, back[node].lease_high))
            log_warn(leases->log, "worker %u: the leases that it says it holds cannot be its own",
                     node);
    }
    lease_finish_recovery(&leases->book, used, repeated);
}

void leases_welcome(struct leases *leases, const struct view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        if (members_has(&leases->known, node))
            continue;
        enter(leases, node);
        grant(leases, node, 1, leases_first_size(view->count, leases->book.grain, leases->records));
    }
}

struct members leases_orphans(const struct leases *leases, const struct view *view)
{
    struct members gone = {{0}};
    for (uint32_t node = 0; node < leases->book.nodes; node++)
        if (holds(leases, node) && view_rank(view, node) < 0)
            members_add(&gone, node);
    return gone;
}

void leases_take_back(struct leases *leases, const struct members *gone)
{
    for (uint32_t node = 0; node < leases->book.nodes; node++)
        if (members_has(gone, node))
            lease_node_dies(&leases->book, node);
}

bool leases_counts(const struct leases *leases, uint32_t node)
{
    return holds(leases, node);
}

void leases_hear(struct leases *leases, uint32_t node, const struct lease_word *word)
{
    if (!holds(leases, node))
        return;
    lease_report_use(&leases->book, node, word->taken, word->again);
    forget_unsent(leases, node);
    if (word->ends)
        lease_node_leaves(&leases->book, node);
    else if (word->want > 0 && word->ask == leases->answered[node] && leases->unsent[node] > 0)
        send_grant(leases, node);
    else if (word->want > 0 && word->ask > leases->answered[node])
        grant(leases, node, word->ask, word->want);
}
