#include "group/roster.h"

#include "base/fault.h"

#include <stdio.h>
#include <string.h>

void roster_init(struct roster *roster, const struct roster_options *options)
{
    memset(roster, 0, sizeof *roster);
    roster->options = *options;
}

void lane_go_encode(const struct lane_go *go, struct buf *out)
{
    buf_put_u32(out, go->view);
    buf_put_u32(out, go->lane);
    buf_put_u64(out, go->completed);
    buf_put_u32(out, go->holder);
    members_encode(&go->lacking, out);
    buf_put_u8(out, go->driver_lacks);
}

int lane_go_decode(struct cut *in, struct lane_go *out)
{
    out->view = cut_u32(in);
    out->lane = cut_u32(in);
    out->completed = cut_u64(in);
    out->holder = cut_u32(in);
    members_decode(in, &out->lacking);
    out->driver_lacks = cut_u8(in) != 0;
    return cut_done(in) ? OK : ERR_PROTOCOL;
}

static struct roster_order *order(struct roster_orders *out, enum roster_order_kind kind)
{
    PL_ASSERT(out->count < ROSTER_ORDERS_MAX);
    struct roster_order *o = &out->at[out->count++];
    *o = (struct roster_order){.kind = kind};
    return o;
}

static struct roster_member *find(struct roster *roster, uint32_t node)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].node == node)
            return &roster->member[i];
    return NULL;
}

static size_t count_in(const struct roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += roster->member[i].in;
    return n;
}

/* The next view holds those who are in; reports of older views are forgotten. */
static void make_view(struct roster *roster, struct roster_orders *out)
{
    struct view *view = &roster->view;
    view->number++;
    view->incarnation = roster->options.incarnation;
    view->count = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *m = &roster->member[i];
        if (!m->in)
            continue;
        size_t at = view->count++;
        while (at > 0 && view->node[at - 1] > m->node) {
            view->node[at] = view->node[at - 1];
            memcpy(view->address[at], view->address[at - 1], NODE_ADDRESS_MAX);
            at--;
        }
        view->node[at] = m->node;
        memcpy(view->address[at], m->address, NODE_ADDRESS_MAX);
    }
    memset(roster->lane, 0, sizeof roster->lane);
    order(out, ORDER_VIEW);
}

static void tell(struct roster_orders *out, uint32_t node, const char *what)
{
    struct roster_order *o = order(out, ORDER_MEMBER);
    o->node = node;
    o->what = what;
}

static void join(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    /* Joining a view that is already at work is not possible yet: who comes late is turned away. */
    if (find(roster, event->node) || roster->view.number > 0 || event->node >= VIEW_MEMBERS_MAX) {
        order(out, ORDER_DROP)->node = event->node;
        return;
    }
    struct roster_member *m = &roster->member[roster->count++];
    *m = (struct roster_member){
        .node = event->node, .in = true, .heard = event->now, .moved = event->now};
    snprintf(m->address, sizeof m->address, "%s", event->address);
    tell(out, event->node, "join");
    if (count_in(roster) == roster->options.workers)
        make_view(roster, out);
}

static void lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out)
{
    m->in = false;
    tell(out, m->node, what);
    order(out, ORDER_DROP)->node = m->node;
    if (roster->view.number > 0)
        make_view(roster, out);
}

static void heartbeat(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = find(roster, event->node);
    if (!m || !m->in)
        return;
    m->heard = event->now;
    if (event->busy && event->progress == m->progress)
        return;
    int64_t gap = event->now - m->moved;
    if (event->busy && m->progress > 0 && gap > m->longest)
        m->longest = gap;
    m->moved = event->now;
    m->progress = event->progress;
}

/* Two members cannot hear each other, though the driver hears both: one of them will have to go. */
static void lost(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = find(roster, event->node);
    const struct roster_member *other = find(roster, event->other);
    if (!m || !m->in || !other || !other->in)
        return;
    m->link_lost = true;
    m->other = event->other;
    m->lost_at = event->now;
}

/* All who take part have reported: if anyone completed the highest number, it counts. */
static void decide(struct roster *roster, uint32_t number, struct roster_orders *out)
{
    const struct roster_lane *lane = &roster->lane[number];
    const struct view *view = &roster->view;
    struct lane_go go = {.view = view->number, .lane = number};
    if (roster->options.driver_takes_part) {
        go.completed = lane->driver_at;
        go.holder = ROSTER_DRIVER; /* the driver, until a worker is ahead of it */
    }
    for (size_t i = 0; i < view->count; i++) {
        if (lane->at[i] > go.completed || (i == 0 && !roster->options.driver_takes_part)) {
            go.completed = lane->at[i];
            go.holder = view->node[i];
        }
    }
    for (size_t i = 0; i < view->count; i++)
        if (lane->at[i] < go.completed)
            members_add(&go.lacking, view->node[i]);
    go.driver_lacks = roster->options.driver_takes_part && lane->driver_at < go.completed;
    order(out, ORDER_LANE_GO)->go = go;
}

static void lane_at(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out)
{
    if (roster->view.number == 0 || event->view != roster->view.number ||
        event->lane >= ROSTER_LANES_MAX)
        return;
    struct roster_lane *lane = &roster->lane[event->lane];
    int rank = view_rank(&roster->view, event->node);
    if (rank >= 0) {
        members_add(&lane->in, event->node);
        lane->at[rank] = event->completed;
    } else if (event->node == ROSTER_DRIVER && roster->options.driver_takes_part) {
        lane->driver_in = true;
        lane->driver_at = event->completed;
    } else {
        return;
    }
    bool driver_ready = lane->driver_in || !roster->options.driver_takes_part;
    if (!lane->decided && driver_ready && members_count(&lane->in) == roster->view.count) {
        lane->decided = true;
        decide(roster, event->lane, out);
    }
}

/* How long a member may be busy without progress. */
static int64_t patience(const struct roster *roster, const struct roster_member *m)
{
    int64_t limit = roster->options.stall_max;
    if (m->progress <= 1)
        return 20 * limit;
    return 8 * m->longest > limit ? 8 * m->longest : limit;
}

static bool has_lost(const struct roster_member *m, uint32_t node)
{
    return m->in && m->link_lost && m->other == node;
}

/* How many links of a member's are broken, by what it or the other end of each has said. */
static size_t broken_links(const struct roster *roster, const struct roster_member *m)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *other = &roster->member[i];
        n += has_lost(other, m->node) || (other->in && has_lost(m, other->node));
    }
    return n;
}

/* A broken link outlasts the time in which a death would have been heard of: whoever has more such
 * links leaves, or else the higher number. */
static void tick_link(struct roster *roster, struct roster_member *m, int64_t now,
                      struct roster_orders *out)
{
    struct roster_member *other = find(roster, m->other);
    if (!m->link_lost || now - m->lost_at <= roster->options.silence_max)
        return;
    size_t mine = broken_links(roster, m), others = broken_links(roster, other);
    m->link_lost = false;
    if (other->in)
        lose(roster, others > mine || (others == mine && other->node > m->node) ? other : m, "cut",
             out);
}

static void tick(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->in)
            continue;
        /* While the driver stood still it heard nobody: that is nobody's silence. */
        m->heard += event->pause;
        m->moved += event->pause;
        if (event->now - m->heard > roster->options.silence_max)
            lose(roster, m, "cut", out);
        else if (event->now - m->moved > patience(roster, m))
            lose(roster, m, "hung", out);
        else
            tick_link(roster, m, event->now, out);
    }
}

void roster_step(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    out->count = 0;
    struct roster_member *m = find(roster, event->node);
    switch (event->kind) {
    case ROSTER_JOIN: join(roster, event, out); break;
    case ROSTER_LEAVE:
        if (m && m->in)
            lose(roster, m, "leave", out);
        break;
    case ROSTER_PEER_DOWN:
        if (m && m->in)
            lose(roster, m, "dead", out);
        break;
    case ROSTER_HEARTBEAT: heartbeat(roster, event); break;
    case ROSTER_LANE_AT: lane_at(roster, event, out); break;
    case ROSTER_LOST: lost(roster, event); break;
    case ROSTER_TICK: tick(roster, event, out); break;
    }
}
