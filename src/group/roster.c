#include "group/roster.h"

#include "base/fault.h"

#include <stdio.h>
#include <string.h>

#define GRACE_MAX INT64_C(5000000000) /* ns */

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

static void order_pair(struct roster_orders *out, enum roster_order_kind kind, uint32_t node,
                       uint32_t other)
{
    struct roster_order *o = order(out, kind);
    o->node = node;
    o->other = other;
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

/* If there is room, the next that waits gets a sponsor: who has been in for longest, for it has all
 * that is to be handed on. One comes in at a time. */
static void seek_sponsor(struct roster *roster, struct roster_orders *out)
{
    bool sponsored;
    struct roster_member *m = first_waiting(roster, &sponsored);
    const struct view *view = &roster->view;
    if (!m || sponsored || view->count == 0 || view->count >= roster->options.workers_max ||
        view->count - count_parting(roster) >= most_wanted(roster))
        return;
    for (size_t i = 0; i < view->count; i++) {
        const struct roster_member *may = find(roster, view->node[i]);
        if (may->settles || may->parts)
            continue;
        m->sponsor = view->node[i];
        order_pair(out, ORDER_SPONSOR, m->sponsor, m->node);
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
        struct roster_member *m = find(roster, view->node[i]);
        if (m->parts || m->settles || sponsors(roster, m->node))
            continue;
        m->parts = true;
        order(out, ORDER_PART)->node = m->node;
        stay--;
    }
}

static void want(struct roster *roster, uint32_t n, struct roster_orders *out)
{
    if (roster->options.workers_max == 0)
        return; /* who leaves could not come back */
    roster->wanted = n < 1 ? 1 : n > roster->options.workers_max ? roster->options.workers_max : n;
    part(roster, out);
    seek_sponsor(roster, out);
}

static void sponsored(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out)
{
    const struct roster_member *sponsor = find(roster, event->node);
    struct roster_member *m = find(roster, event->other);
    if (!sponsor || !sponsor->in)
        return;
    if (!m || !m->waits || m->sponsor != event->node) {
        order_pair(out, ORDER_RELEASE, event->node, event->other);
        return;
    }
    m->waits = false;
    m->in = m->settles = true;
    m->moved = event->now;
    tell(out, m->node, "join");
    make_view(roster, out);
    part(roster, out);
    seek_sponsor(roster, out);
}

static struct roster_member *add_member(struct roster *roster, const struct roster_event *event)
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
    if (find(roster, event->node) || event->node >= VIEW_MEMBERS_MAX ||
        (roster->view.number > 0 && roster->options.workers_max == 0)) {
        order(out, ORDER_DROP)->node = event->node;
        return;
    }
    struct roster_member *m = add_member(roster, event);
    m->in = !begun;
    m->waits = begun;
    if (begun) {
        seek_sponsor(roster, out);
        return;
    }
    tell(out, event->node, "join");
    if (count_in(roster) == roster->options.workers)
        make_view(roster, out);
}

/* ---- who returns to a driver that has come back ---- */

static void want_missing(const struct roster *roster, struct roster_orders *out)
{
    const struct roster_options *o = &roster->options;
    uint32_t most = o->workers_max > o->workers ? o->workers_max : o->workers, here = 0;
    for (size_t i = 0; i < roster->count; i++)
        here += roster->member[i].in || roster->member[i].waits;
    if (here < most)
        order(out, ORDER_WANT)->other = most - here;
}

static bool is_expected(const struct roster *roster, const struct roster_member *m)
{
    return m->back && members_has(&roster->reforming.who, m->node);
}

static size_t count_back(const struct roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += is_expected(roster, &roster->member[i]);
    return n;
}

/* Those who are back from the newest view go on together. */
static void reform(struct roster *roster, struct roster_orders *out)
{
    struct reforming *r = &roster->reforming;
    struct members missing = r->who;
    r->on = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        m->in = is_expected(roster, m);
        if (m->in) {
            missing.word[m->node / 64] &= ~(UINT64_C(1) << m->node % 64);
            tell(out, m->node, "back");
        } else if (m->back) {
            order(out, ORDER_AFRESH)->node = m->node;
        }
        m->back = false;
    }
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(&missing, node))
            tell(out, node, "dead");
    if (roster->options.workers_max > 0) /* else nobody can come in any more */
        want_missing(roster, out);
    roster->view.number = r->highest;
    make_view(roster, out);
    seek_sponsor(roster, out);
}

/* Nobody is left of those who trained: the run goes on from what the driver has, with others. */
static void begin_anew(struct roster *roster, struct roster_orders *out)
{
    roster->reforming.on = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->back) /* of a view that was left behind */
            order(out, ORDER_AFRESH)->node = m->node;
        m->back = false;
    }
    for (size_t i = 0; i < roster->count && roster->view.number == 0; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->waits)
            continue;
        m->waits = false;
        m->in = true;
        tell(out, m->node, "join");
        if (count_in(roster) == roster->options.workers)
            make_view(roster, out);
    }
    want_missing(roster, out);
    seek_sponsor(roster, out);
}

static bool is_newer(const struct reforming *r, const struct roster_event *event)
{
    return event->incarnation > r->incarnation ||
           (event->incarnation == r->incarnation && event->view > r->view);
}

/* As long as a death takes to be noticed, where that is not a matter of minutes. */
static int64_t grace(const struct roster *roster)
{
    int64_t silence_max = roster->options.silence_max;
    return silence_max < GRACE_MAX ? silence_max : GRACE_MAX;
}

/* No view that was ever made: of nobody, or without who tells of it, or at the end of all numbers.
 */
static bool makes_no_sense(const struct roster_event *event)
{
    return event->node >= VIEW_MEMBERS_MAX || event->view == 0 || event->view >= UINT32_MAX / 2 ||
           !members_has(event->who, event->node);
}

static void come_back(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out)
{
    struct reforming *r = &roster->reforming;
    struct roster_member *m = find(roster, event->node);
    if (!roster->options.reforms || roster->view.number > 0 || makes_no_sense(event) ||
        event->incarnation >= roster->options.incarnation || (m && (m->in || m->waits))) {
        order(out, ORDER_AFRESH)->node = event->node;
        return;
    }
    if (!m)
        m = add_member(roster, event);
    for (size_t i = 0; i < roster->count && !r->on; i++) /* who came for a first view waits */
        if (roster->member[i].in) {
            roster->member[i].in = false;
            roster->member[i].waits = true;
        }
    bool first = count_back(roster) == 0;
    r->on = m->back = true;
    m->heard = m->moved = event->now;
    snprintf(m->address, sizeof m->address, "%s", event->address);
    if (is_newer(r, event)) {
        r->view = event->view;
        r->incarnation = event->incarnation;
        r->who = *event->who;
    }
    r->highest = event->view > r->highest ? event->view : r->highest;
    if (first && is_expected(roster, m))
        r->until = event->now + grace(roster);
    if (count_back(roster) == members_count(&r->who))
        reform(roster, out);
}

/* Nobody is waited for longer than that, or twice as long, for the first. */
static void tick_reforming(struct roster *roster, const struct roster_event *event,
                           struct roster_orders *out)
{
    struct reforming *r = &roster->reforming;
    if (r->until == 0)
        r->until = event->now + 2 * grace(roster);
    r->until += event->pause;
    if (event->now < r->until)
        return;
    if (count_back(roster) > 0)
        reform(roster, out);
    else
        begin_anew(roster, out);
}

/* ---- who goes ---- */

static void put_out(struct roster_member *m, const char *what, struct roster_orders *out)
{
    m->in = m->settles = false;
    tell(out, m->node, what);
    order(out, ORDER_DROP)->node = m->node;
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

static void lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out)
{
    if (m->waits || m->back) { /* it is not in: nobody else is concerned */
        m->waits = m->back = false;
        order(out, ORDER_DROP)->node = m->node;
    } else {
        put_out(m, what, out);
        orphan(roster, m->node, out);
        if (roster->view.number > 0)
            make_view(roster, out);
    }
    seek_sponsor(roster, out);
}

static void heartbeat(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = find(roster, event->node);
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
    struct roster_member *m = find(roster, event->node);
    const struct roster_member *other = find(roster, event->other);
    if (!m || !m->in || !other || !other->in)
        return;
    m->link_lost = true;
    m->other = event->other;
    m->lost_at = event->now;
}

/* A newcomer that is ahead of all who hold a result: what it begins behind has died with those who
 * had it. Out it goes, and so the view ends; false: there is none. */
static bool fence(struct roster *roster, const struct roster_lane *lane, uint64_t completed,
                  struct roster_orders *out)
{
    const struct view *view = &roster->view;
    for (size_t i = 0; i < view->count; i++) {
        if (!members_has(&lane->fresh, view->node[i]) || members_has(&lane->blank, view->node[i]) ||
            lane->at[i] <= completed)
            continue;
        lose(roster, find(roster, view->node[i]), "fenced", out);
        return true;
    }
    return false;
}

/* All who take part have reported: if anyone completed the highest number, it counts. */
static void decide(struct roster *roster, uint32_t number, struct roster_orders *out)
{
    const struct roster_lane *lane = &roster->lane[number];
    const struct view *view = &roster->view;
    struct lane_go go = {.view = view->number, .lane = number, .holder = ROSTER_NOBODY};
    if (roster->options.driver_takes_part && !lane->driver_blank) {
        go.completed = lane->driver_at;
        go.holder = ROSTER_DRIVER; /* the driver, until a worker is ahead of it */
    }
    for (size_t i = 0; i < view->count; i++) {
        if (members_has(&lane->fresh, view->node[i]))
            continue;
        if (lane->at[i] > go.completed || go.holder == ROSTER_NOBODY) {
            go.completed = lane->at[i];
            go.holder = view->node[i];
        }
    }
    if (fence(roster, lane, go.completed, out))
        return;
    for (size_t i = 0; i < view->count; i++)
        if (lane->at[i] < go.completed || members_has(&lane->blank, view->node[i]))
            members_add(&go.lacking, view->node[i]);
    go.driver_lacks =
        roster->options.driver_takes_part && (lane->driver_blank || lane->driver_at < go.completed);
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
        if (event->fresh)
            members_add(&lane->fresh, event->node);
        if (event->blank)
            members_add(&lane->blank, event->node);
        lane->at[rank] = event->completed;
    } else if (event->node == ROSTER_DRIVER && roster->options.driver_takes_part) {
        lane->driver_in = true;
        lane->driver_at = event->completed;
        lane->driver_blank = event->blank;
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
    if (roster->reforming.on)
        tick_reforming(roster, event, out);
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->in && !m->waits)
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
    case ROSTER_RETURN: come_back(roster, event, out); break;
    case ROSTER_LEAVE:
        if (m && (m->in || m->waits || m->back))
            lose(roster, m, "leave", out);
        break;
    case ROSTER_PEER_DOWN:
        if (m && (m->in || m->waits || m->back))
            lose(roster, m, "dead", out);
        break;
    case ROSTER_HEARTBEAT: heartbeat(roster, event); break;
    case ROSTER_LANE_AT: lane_at(roster, event, out); break;
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
