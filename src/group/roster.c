#include "group/roster_internal.h"

#include "base/fault.h"

#include <stdio.h>
#include <string.h>

/* The allowed transitions of a member. */
static const uint8_t next_states[MEMBER_STATES] = {
    [MEMBER_OUT] = 1 << MEMBER_WAITS | 1 << MEMBER_RETURNED | 1 << MEMBER_IN,
    [MEMBER_WAITS] = 1 << MEMBER_OUT | 1 << MEMBER_JOINING | 1 << MEMBER_IN,
    [MEMBER_RETURNED] = 1 << MEMBER_OUT | 1 << MEMBER_IN | 1 << MEMBER_RETURNED,
    [MEMBER_JOINING] = 1 << MEMBER_OUT | 1 << MEMBER_IN,
    [MEMBER_IN] = 1 << MEMBER_OUT | 1 << MEMBER_LEAVING | 1 << MEMBER_WAITS | 1 << MEMBER_JOINING,
    [MEMBER_LEAVING] = 1 << MEMBER_OUT,
};

void roster_set_state(struct roster_member *m, enum member_state state)
{
    PL_ASSERT(next_states[m->state] & 1 << state);
    m->state = state;
}

void roster_init(struct roster *roster, const struct roster_options *options)
{
    memset(roster, 0, sizeof *roster);
    roster->options = *options;
    roster->recovery = (struct roster_recovery){
        .on = options->recovers && options->last_view > 0,
        .view = options->last_view,
        .incarnation = options->last_incarnation,
        .members = options->last,
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

struct roster_member *roster_add(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = &roster->member[roster->count++];
    *m = (struct roster_member){
        .node = event->node,
        .donor = ROSTER_NO_NODE,
        .seat = VIEW_NO_SEAT,
        .slice = roster_has_seats(roster) ? event->node % roster->options.slices : 0,
        .last_beat = event->now,
        .last_progress = event->now,
    };
    snprintf(m->address, sizeof m->address, "%s", event->address);
    return m;
}

size_t roster_count_in(const struct roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += roster_is_in(&roster->member[i]);
    return n;
}

/* J1: a joiner that has a donor hangs on a member; when the donor goes, so does the joiner, or it
 * waits for another. */
static bool donors_are_members(struct roster *roster)
{
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *m = &roster->member[i];
        bool joins = m->state == MEMBER_WAITS || m->state == MEMBER_JOINING;
        if (!joins || m->donor == ROSTER_NO_NODE || m->donor == ROSTER_DRIVER)
            continue;
        const struct roster_member *donor = roster_find(roster, m->donor);
        if (!donor || donor->state != MEMBER_IN)
            return false;
    }
    return true;
}

void roster_make_view(struct roster *roster, struct roster_orders *out)
{
    struct view *view = &roster->view;
    PL_ASSERT(view->number < UINT32_MAX); /* V1: numbers grow */
    view->number++;
    view->incarnation = roster->options.incarnation;
    view->count = 0;
    view->leaves = view->fresh = (struct members){{0}};
    roster_settle_leaves(roster);
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!roster_is_in(m))
            continue;
        if (m->state == MEMBER_JOINING && roster_has_seats(roster))
            m->joins_in = view->number; /* it receives all of its state again */
        size_t at = view->count++;
        while (at > 0 && view->node[at - 1] > m->node) {
            view->node[at] = view->node[at - 1];
            view->seated[at] = view->seated[at - 1];
            memcpy(view->address[at], view->address[at - 1], NODE_ADDRESS_MAX);
            at--;
        }
        PL_ASSERT(m->node < VIEW_MEMBERS_MAX);
        PL_ASSERT(at == 0 || view->node[at - 1] < m->node);  /* V2: ascending, each once */
        PL_ASSERT(!members_has(&roster->departed, m->node)); /* V3 */
        view->node[at] = m->node;
        view->seated[at] = m->seat + 1; /* VIEW_NO_SEAT: 0 */
        memcpy(view->address[at], m->address, NODE_ADDRESS_MAX);
        members_put(&view->leaves, m->node, m->leaf);
        members_put(&view->fresh, m->node, roster_has_seats(roster) && m->state == MEMBER_JOINING);
    }
    view_settle_elders(view);
    roster->check.on = false; /* links have changed */
    PL_ASSERT(donors_are_members(roster));
    memset(roster->lane, 0, sizeof roster->lane); /* reports of older views do not count (E4) */
    roster_order(out, ORDER_VIEW);
}

void roster_report_member(struct roster_orders *out, uint32_t node, const char *what)
{
    struct roster_order *o = roster_order(out, ORDER_MEMBER);
    o->node = node;
    o->what = what;
}

/* ---- leaving and dying ---- */

static void put_out(struct roster *roster, struct roster_member *m, const char *what,
                    struct roster_orders *out)
{
    members_add(&roster->departed, m->node);
    roster_set_state(m, MEMBER_OUT);
    roster_report_member(out, m->node, what);
    roster_order(out, ORDER_DROP)->node = m->node;
    if (roster_has_seats(roster))
        roster_unseat(roster, m, out);
}

/* A joiner whose donor died lacks state that only the donor had promised: if it is in the view it
 * is fenced and joins again; if it still waits, it gets another donor. */
static void drop_orphans(struct roster *roster, uint32_t donor, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->donor != donor)
            continue;
        if (m->state == MEMBER_WAITS)
            m->donor = ROSTER_NO_NODE;
        else if (m->state == MEMBER_JOINING)
            put_out(roster, m, "fenced", out);
    }
}

/* The donor may never see the view with this joiner: it must not wait for it. */
static void release_donor(struct roster *roster, uint32_t donor, uint32_t joiner,
                          struct roster_orders *out)
{
    const struct roster_member *m = roster_find(roster, donor);
    if (donor == ROSTER_DRIVER || (m && roster_is_in(m)))
        roster_order_pair(out, ORDER_CANCEL_JOIN, donor, joiner);
}

void roster_lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out)
{
    bool complete = m->state != MEMBER_JOINING && m->donor != ROSTER_DRIVER;
    if (!roster_is_in(m)) { /* no view holds it, so none changes */
        roster_set_state(m, MEMBER_OUT);
        roster_order(out, ORDER_DROP)->node = m->node;
    } else {
        put_out(roster, m, what, out);
        drop_orphans(roster, m->node, out);
        if (roster->view.number > 0)
            roster_make_view(roster, out);
        if (!complete)
            release_donor(roster, m->donor, m->node, out);
    }
    roster_seek_donor(roster, out);
}

/* Is this the only member that has the model for sure? Its leave would lose the run's state. */
static bool is_needed(const struct roster *roster, const struct roster_member *leaving)
{
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *m = &roster->member[i];
        if (m != leaving && roster_is_in(m) && m->state != MEMBER_JOINING)
            return false;
    }
    return roster_is_in(leaving) && roster->view.number > 0;
}

/* A needed member stays until a joiner has reported that it has all of its state, which may be on
 * its way. Without a joiner the driver requests the model, and the run ends. */
static void on_leave(struct roster *roster, struct roster_member *m,
                     const struct roster_event *event, struct roster_orders *out)
{
    if (!m || m->state == MEMBER_OUT)
        return;
    if (event->needs_sync || !is_needed(roster, m)) {
        roster_lose(roster, m, "leave", out);
    } else if (!m->wants_leave) {
        m->wants_leave = true;
        m->wants_leave_at = event->now;
    }
}

/* Of a needed member. They join again. */
static void give_up_joiners(struct roster *roster, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].state == MEMBER_JOINING)
            roster_lose(roster, &roster->member[i], "fenced", out);
}

void roster_let_leave(struct roster *roster, int64_t now, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->wants_leave || !roster_is_in(m))
            continue;
        if (!is_needed(roster, m))
            roster_lose(roster, m, "leave", out);
        else if (now - m->wants_leave_at > roster->options.stall_max)
            give_up_joiners(roster, out);
    }
}

/* A heartbeat proves that the process lives. Progress is separate: a busy member must also advance,
 * within a time that follows its own longest step, or it counts as hung. */
static void on_heartbeat(struct roster *roster, const struct roster_event *event,
                         struct roster_orders *out)
{
    struct roster_member *m = roster_find(roster, event->node);
    if (!m || m->state == MEMBER_OUT)
        return;
    m->last_beat = event->now;
    m->paused = event->paused;
    if (m->paused)
        roster_replace_donor(roster, m, out);
    if (event->busy && event->progress == m->progress)
        return;
    int64_t gap = event->now - m->last_progress;
    if (event->busy && m->progress > 0 && gap > m->longest)
        m->longest = gap;
    m->last_progress = event->now;
    m->progress = event->progress;
}

/* ns for which a member may be busy without progress. */
static int64_t stall_limit(const struct roster *roster, const struct roster_member *m)
{
    int64_t limit = roster->options.stall_max;
    if (m->progress <= 1)
        return 20 * limit;
    return 8 * m->longest > limit ? 8 * m->longest : limit;
}

static void on_tick(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out)
{
    if (roster->recovery.on)
        roster_tick_recovery(roster, event, out);
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!roster_is_in(m) && m->state != MEMBER_WAITS)
            continue;
        /* While the driver did not run, it received nothing: that is no member's silence. */
        m->last_beat += event->pause;
        m->last_progress += event->pause;
        if (event->now - m->last_beat > roster->options.silence_max)
            roster_lose(roster, m, "cut", out);
        else if (event->now - m->last_progress > stall_limit(roster, m))
            roster_lose(roster, m, "hung", out);
        else
            roster_tick_links(roster, m, event->now, out);
    }
    roster_let_leave(roster, event->now, out);
}

void roster_step(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    out->count = 0;
    struct roster_member *m = roster_find(roster, event->node);
    switch (event->kind) {
    case ROSTER_JOIN: roster_join(roster, event, out); break;
    case ROSTER_RECONNECT: roster_reconnect(roster, event, out); break;
    case ROSTER_LEAVE: on_leave(roster, m, event, out); break;
    case ROSTER_PEER_DOWN:
        if (m && m->state != MEMBER_OUT)
            roster_lose(roster, m, "dead", out);
        break;
    case ROSTER_HEARTBEAT: on_heartbeat(roster, event, out); break;
    case ROSTER_LANE_AT: roster_lane_at(roster, event, out); break;
    case ROSTER_LOST: roster_lost_link(roster, event); break;
    case ROSTER_DONOR_READY: roster_donor_ready(roster, event, out); break;
    case ROSTER_JOIN_COMPLETE: roster_join_complete(roster, m, event, out); break;
    case ROSTER_WANT: roster_want(roster, event->other, out); break;
    case ROSTER_LINK_CHECK: roster_check_links(roster, event, out); break;
    case ROSTER_LINK_REPORT: roster_on_link(roster, event, out); break;
    case ROSTER_CHECK_ENDS: roster_end_check(roster, event->now, out); break;
    case ROSTER_LEAF_READY: roster_leaf_ready(roster, event, out); break;
    case ROSTER_TICK: on_tick(roster, event, out); break;
    }
}
