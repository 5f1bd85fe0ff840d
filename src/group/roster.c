#include "group/roster_parts.h"

#include "base/fault.h"

#include <stdio.h>
#include <string.h>

void roster_init(struct roster *roster, const struct roster_options *options)
{
    memset(roster, 0, sizeof *roster);
    roster->options = *options;
    roster->reforming = (struct reforming){
        .on = options->reforms && options->last_view > 0,
        .view = options->last_view,
        .incarnation = options->last_incarnation,
        .who = options->last,
        .highest = options->last_view,
    };
}

struct roster_order *roster_order(struct roster_orders *out, enum roster_order_kind kind)
{
    PL_ASSERT(out->count < ROSTER_ORDERS_MAX);
    struct roster_order *o = &out->at[out->count++];
    *o = (struct roster_order){.kind = kind};
    return o;
}

void roster_order_pair(struct roster_orders *out, enum roster_order_kind kind, uint32_t node,
                       uint32_t other)
{
    struct roster_order *o = roster_order(out, kind);
    o->node = node;
    o->other = other;
}

struct roster_member *roster_find(struct roster *roster, uint32_t node)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].node == node)
            return &roster->member[i];
    return NULL;
}

size_t roster_count_in(const struct roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += roster->member[i].in;
    return n;
}

void roster_make_view(struct roster *roster, struct roster_orders *out)
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
    roster_order(out, ORDER_VIEW);
}

void roster_tell(struct roster_orders *out, uint32_t node, const char *what)
{
    struct roster_order *o = roster_order(out, ORDER_MEMBER);
    o->node = node;
    o->what = what;
}

/* ---- who comes to a run under way ---- */

/* The lowest that waits, or NULL; and whether one that waits has a sponsor already. */
static struct roster_member *first_waiting(struct roster *roster, bool *sponsored)
{
    struct roster_member *first = NULL;
    *sponsored = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->waits)
            continue;
        *sponsored |= m->sponsor != ROSTER_NOBODY;
        if (!first || m->node < first->node)
            first = m;
    }
    return first;
}

/* Members that have been asked to leave, and are still here. */
static uint32_t count_parting(struct roster *roster)
{
    uint32_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += roster->member[i].in && roster->member[i].parts;
    return n;
}

static uint32_t most_wanted(const struct roster *roster)
{
    return roster->wanted > 0 ? roster->wanted : roster->options.workers_max;
}

void roster_seek_sponsor(struct roster *roster, struct roster_orders *out)
{
    bool sponsored;
    struct roster_member *m = first_waiting(roster, &sponsored);
    const struct view *view = &roster->view;
    if (!m || sponsored || view->count == 0 || view->count >= roster->options.workers_max ||
        view->count - count_parting(roster) >= most_wanted(roster))
        return;
    for (size_t i = 0; i < view->count; i++) {
        const struct roster_member *may = roster_find(roster, view->node[i]);
        if (may->settles || may->parts)
            continue;
        m->sponsor = view->node[i];
        roster_order_pair(out, ORDER_SPONSOR, m->sponsor, m->node);
        return;
    }
}

static bool sponsors(const struct roster *roster, uint32_t node)
{
    for (size_t i = 0; i < roster->count; i++)
        if ((roster->member[i].waits || roster->member[i].settles) &&
            roster->member[i].sponsor == node)
            return true;
    return false;
}

/* Where there are more than there are to be, the latest to come are the first to go; not one on
 * whom another hangs, nor the last. */
static void part(struct roster *roster, struct roster_orders *out)
{
    if (roster->wanted == 0)
        return; /* nobody has said */
    const struct view *view = &roster->view;
    uint32_t stay = (uint32_t)view->count - count_parting(roster);
    for (size_t i = view->count; i-- > 0 && stay > most_wanted(roster) && stay > 1;) {
        struct roster_member *m = roster_find(roster, view->node[i]);
        if (m->parts || m->settles || sponsors(roster, m->node))
            continue;
        m->parts = true;
        roster_order(out, ORDER_PART)->node = m->node;
        stay--;
    }
}

static void want(struct roster *roster, uint32_t n, struct roster_orders *out)
{
    if (roster->options.workers_max == 0)
        return; /* who leaves could not come back */
    roster->wanted = n < 1 ? 1 : n > roster->options.workers_max ? roster->options.workers_max : n;
    part(roster, out);
    roster_seek_sponsor(roster, out);
}

static void sponsored(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out)
{
    const struct roster_member *sponsor = roster_find(roster, event->node);
    struct roster_member *m = roster_find(roster, event->other);
    if (!sponsor || !sponsor->in)
        return;
    if (!m || !m->waits || m->sponsor != event->node) {
        roster_order_pair(out, ORDER_RELEASE, event->node, event->other);
        return;
    }
    m->waits = false;
    m->in = m->settles = true;
    m->moved = event->now;
    roster_tell(out, m->node, "join");
    roster_make_view(roster, out);
    part(roster, out);
    roster_seek_sponsor(roster, out);
}

struct roster_member *roster_add(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = &roster->member[roster->count++];
    *m = (struct roster_member){
        .node = event->node,
        .sponsor = ROSTER_NOBODY,
        .heard = event->now,
        .moved = event->now,
    };
    snprintf(m->address, sizeof m->address, "%s", event->address);
    return m;
}

static void join(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    bool begun = roster->view.number > 0 || roster->reforming.on;
    if (roster_find(roster, event->node) || event->node >= VIEW_MEMBERS_MAX ||
        (roster->view.number > 0 && roster->options.workers_max == 0)) {
        roster_order(out, ORDER_DROP)->node = event->node;
        return;
    }
    struct roster_member *m = roster_add(roster, event);
    m->in = !begun;
    m->waits = begun;
    if (begun) {
        roster_seek_sponsor(roster, out);
        return;
    }
    roster_tell(out, event->node, "join");
    if (roster_count_in(roster) == roster->options.workers)
        roster_make_view(roster, out);
}

/* ---- who goes ---- */

static void put_out(struct roster_member *m, const char *what, struct roster_orders *out)
{
    m->in = m->settles = false;
    roster_tell(out, m->node, what);
    roster_order(out, ORDER_DROP)->node = m->node;
}

/* What its sponsor had for a newcomer goes with the sponsor, unless it is there already. */
static void orphan(struct roster *roster, uint32_t sponsor, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->sponsor != sponsor)
            continue;
        if (m->waits)
            m->sponsor = ROSTER_NOBODY;
        else if (m->in && m->settles)
            put_out(m, "fenced", out);
    }
}

void roster_lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out)
{
    if (m->waits || m->back) { /* it is not in: nobody else is concerned */
        m->waits = m->back = false;
        roster_order(out, ORDER_DROP)->node = m->node;
    } else {
        put_out(m, what, out);
        orphan(roster, m->node, out);
        if (roster->view.number > 0)
            roster_make_view(roster, out);
    }
    roster_seek_sponsor(roster, out);
}

/* Nobody else has the model of the run. */
static bool is_needed(const struct roster *roster, const struct roster_member *m,
                      const struct roster_event *leave)
{
    return m->in && !leave->blank && roster->view.number > 0 && roster_count_in(roster) == 1;
}

static void heartbeat(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = roster_find(roster, event->node);
    if (!m || (!m->in && !m->waits && !m->back))
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
    struct roster_member *m = roster_find(roster, event->node);
    const struct roster_member *other = roster_find(roster, event->other);
    if (!m || !m->in || !other || !other->in)
        return;
    m->link_lost = true;
    m->other = event->other;
    m->lost_at = event->now;
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
    struct roster_member *other = roster_find(roster, m->other);
    if (!m->link_lost || now - m->lost_at <= roster->options.silence_max)
        return;
    size_t mine = broken_links(roster, m), others = broken_links(roster, other);
    m->link_lost = false;
    if (other->in)
        roster_lose(roster, others > mine || (others == mine && other->node > m->node) ? other : m,
                    "cut", out);
}

static void tick(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    if (roster->reforming.on)
        roster_tick_reforming(roster, event, out);
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->in && !m->waits)
            continue;
        /* While the driver stood still it heard nobody: that is nobody's silence. */
        m->heard += event->pause;
        m->moved += event->pause;
        if (event->now - m->heard > roster->options.silence_max)
            roster_lose(roster, m, "cut", out);
        else if (event->now - m->moved > patience(roster, m))
            roster_lose(roster, m, "hung", out);
        else
            tick_link(roster, m, event->now, out);
    }
}

void roster_step(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    out->count = 0;
    struct roster_member *m = roster_find(roster, event->node);
    switch (event->kind) {
    case ROSTER_JOIN: join(roster, event, out); break;
    case ROSTER_RETURN: roster_come_back(roster, event, out); break;
    case ROSTER_LEAVE:
        if (m && (m->in || m->waits || m->back) && !is_needed(roster, m, event))
            roster_lose(roster, m, "leave", out);
        break;
    case ROSTER_PEER_DOWN:
        if (m && (m->in || m->waits || m->back))
            roster_lose(roster, m, "dead", out);
        break;
    case ROSTER_HEARTBEAT: heartbeat(roster, event); break;
    case ROSTER_LANE_AT: roster_lane_at(roster, event, out); break;
    case ROSTER_LOST: lost(roster, event); break;
    case ROSTER_SPONSORED: sponsored(roster, event, out); break;
    case ROSTER_SETTLED:
        if (m)
            m->settles = false;
        part(roster, out);
        break;
    case ROSTER_WANT: want(roster, event->other, out); break;
    case ROSTER_TICK: tick(roster, event, out); break;
    }
}
