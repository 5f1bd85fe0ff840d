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

/* ---- joining a run ---- */

/* The waiting joiner with the lowest number, or NULL. *admitted: one of them has a donor. */
static struct roster_member *first_waiting(struct roster *roster, bool *admitted)
{
    struct roster_member *first = NULL;
    *admitted = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->state != MEMBER_WAITS)
            continue;
        *admitted |= m->donor != ROSTER_NO_NODE;
        if (!first || m->node < first->node)
            first = m;
    }
    return first;
}

/* Members that the driver has asked to leave and that are still in. */
static uint32_t count_leaving(struct roster *roster)
{
    uint32_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += roster->member[i].state == MEMBER_LEAVING;
    return n;
}

static uint32_t members_wanted_max(const struct roster *roster)
{
    return roster->wanted > 0 ? roster->wanted : roster->options.workers_max;
}

static bool has_room(struct roster *roster)
{
    size_t in = roster_count_in(roster);
    return in < roster->options.workers_max &&
           in - count_leaving(roster) < members_wanted_max(roster);
}

static bool may_be_donor(const struct roster_member *m)
{
    return m->state == MEMBER_IN && !m->leaf && !m->wants_leave;
}

void roster_seek_donor(struct roster *roster, struct roster_orders *out)
{
    bool admitted;
    if (roster_has_seats(roster)) {
        roster_seat_replicas(roster, out);
        return;
    }
    struct roster_member *m = first_waiting(roster, &admitted);
    const struct view *view = &roster->view;
    if (!m || admitted || !has_room(roster))
        return;
    if (roster->options.driver_admits) {
        m->donor = ROSTER_DRIVER;
        roster_order_pair(out, ORDER_ADMIT_JOINER, m->donor, m->node);
        return;
    }
    for (size_t i = 0; i < view->count; i++) {
        if (!may_be_donor(roster_find(roster, view->node[i])))
            continue;
        m->donor = view->node[i];
        roster_order_pair(out, ORDER_ADMIT_JOINER, m->donor, m->node);
        return;
    }
}

static bool is_donor(const struct roster *roster, uint32_t node)
{
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *m = &roster->member[i];
        if ((m->state == MEMBER_WAITS || m->state == MEMBER_JOINING) && m->donor == node)
            return true;
    }
    return false;
}

/* Release members above the target, the latest first. A donor stays, because its joiner depends on
 * it; a joining member stays, because its donor has just paid for it; the last member stays. */
static void release_surplus(struct roster *roster, struct roster_orders *out)
{
    if (roster->wanted == 0)
        return; /* no target is set */
    const struct view *view = &roster->view;
    uint32_t stay = (uint32_t)view->count - count_leaving(roster);
    for (size_t i = view->count; i-- > 0 && stay > members_wanted_max(roster) && stay > 1;) {
        struct roster_member *m = roster_find(roster, view->node[i]);
        if (m->state != MEMBER_IN || is_donor(roster, m->node))
            continue;
        roster_set_state(m, MEMBER_LEAVING);
        roster_order(out, ORDER_RELEASE_MEMBER)->node = m->node;
        stay--;
    }
}

/* The requested number of workers has changed: release members above it at once. For more, waiting
 * workers join one at a time, because each join needs a donor. */
static void on_want(struct roster *roster, uint32_t n, struct roster_orders *out)
{
    if (roster->options.workers_max == 0)
        return; /* the run admits no joiners, so a released worker could not return */
    roster->wanted = n < 1 ? 1 : n > roster->options.workers_max ? roster->options.workers_max : n;
    release_surplus(roster, out);
    roster_seek_donor(roster, out);
}

/* The driver is ready: all that wait and find room are in the next view, because none needs a donor
 * of its own. */
static void admit_all(struct roster *roster, int64_t now, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count && has_room(roster); i++) {
        struct roster_member *m = &roster->member[i];
        if (m->state != MEMBER_WAITS)
            continue;
        roster_set_state(m, MEMBER_IN);
        m->last_progress = now;
        roster_report_member(out, m->node, "join");
    }
}

/* A donor is at a commit point and has kept its state for the joiner: the joiner becomes a member
 * in the next view. If the joiner is lost or has another donor by now, the donor is told to drop
 * that state. A joiner that the driver admits lacks no state. */
static void on_donor_ready(struct roster *roster, const struct roster_event *event,
                           struct roster_orders *out)
{
    const struct roster_member *donor = roster_find(roster, event->node);
    struct roster_member *m = roster_find(roster, event->other);
    bool by_driver = roster->options.driver_admits && event->node == ROSTER_DRIVER;
    if (!by_driver && (!donor || !roster_is_in(donor)))
        return;
    if (!m || m->state != MEMBER_WAITS || m->donor != event->node) {
        roster_order_pair(out, ORDER_CANCEL_JOIN, event->node, event->other);
        return;
    }
    roster_set_state(m, by_driver ? MEMBER_IN : MEMBER_JOINING);
    m->joins_in = roster->view.number + 1;
    m->last_progress = event->now;
    if (by_driver)
        admit_all(roster, event->now, out);
    roster_report_member(out, m->node, "join");
    roster_make_view(roster, out);
    release_surplus(roster, out);
    roster_seek_donor(roster, out);
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

/* A worker has connected. Before the first view it is a member at once, and the view is made when
 * all that the run needs are there. Later it waits for a donor, since it lacks the run's state. */
static void on_join(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out)
{
    bool begun = roster->view.number > 0 || roster->recovery.on;
    if (roster_find(roster, event->node) || event->node >= VIEW_MEMBERS_MAX ||
        (roster->view.number > 0 && roster->options.workers_max == 0)) {
        roster_order(out, ORDER_DROP)->node = event->node;
        return;
    }
    struct roster_member *m = roster_add(roster, event);
    roster_set_state(m, begun ? MEMBER_WAITS : MEMBER_IN);
    if (begun) {
        roster_seek_donor(roster, out);
        return;
    }
    if (roster_has_seats(roster))
        roster_sit_first(roster, m);
    roster_report_member(out, event->node, "join");
    if (roster_count_in(roster) == roster->options.workers)
        roster_make_view(roster, out);
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

/* Members that waited for a joiner's report leave when it is there, or wait no longer. */
static void let_leave(struct roster *roster, int64_t now, struct roster_orders *out)
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

/* The state of an earlier seat is not that of this one. */
static void on_join_complete(struct roster *roster, struct roster_member *m,
                             const struct roster_event *event, struct roster_orders *out)
{
    if (!m || m->state != MEMBER_JOINING || event->view < m->joins_in)
        return;
    roster_set_state(m, MEMBER_IN);
    let_leave(roster, event->now, out);
    release_surplus(roster, out);
    roster_seek_donor(roster, out); /* it may be one */
}

/* In a pause the donor may wait in an exchange that the paused members do not enter, and reach no
 * commit point. A paused member takes its place. */
static void replace_donor(struct roster *roster, const struct roster_member *paused,
                          struct roster_orders *out)
{
    bool admitted;
    struct roster_member *joiner = first_waiting(roster, &admitted);
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].state == MEMBER_WAITS && roster->member[i].donor != ROSTER_NO_NODE)
            joiner = &roster->member[i];
    if (!admitted || joiner->donor == paused->node || joiner->donor == ROSTER_DRIVER ||
        roster_find(roster, joiner->donor)->paused || !may_be_donor(paused))
        return;
    roster_order_pair(out, ORDER_CANCEL_JOIN, joiner->donor, joiner->node);
    joiner->donor = paused->node;
    roster_order_pair(out, ORDER_ADMIT_JOINER, joiner->donor, joiner->node);
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
        replace_donor(roster, m, out);
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
    let_leave(roster, event->now, out);
}

void roster_step(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
{
    out->count = 0;
    struct roster_member *m = roster_find(roster, event->node);
    switch (event->kind) {
    case ROSTER_JOIN: on_join(roster, event, out); break;
    case ROSTER_RECONNECT: roster_reconnect(roster, event, out); break;
    case ROSTER_LEAVE: on_leave(roster, m, event, out); break;
    case ROSTER_PEER_DOWN:
        if (m && m->state != MEMBER_OUT)
            roster_lose(roster, m, "dead", out);
        break;
    case ROSTER_HEARTBEAT: on_heartbeat(roster, event, out); break;
    case ROSTER_LANE_AT: roster_lane_at(roster, event, out); break;
    case ROSTER_LOST: roster_lost_link(roster, event); break;
    case ROSTER_DONOR_READY: on_donor_ready(roster, event, out); break;
    case ROSTER_JOIN_COMPLETE: on_join_complete(roster, m, event, out); break;
    case ROSTER_WANT: on_want(roster, event->other, out); break;
    case ROSTER_LINK_CHECK: roster_check_links(roster, event, out); break;
    case ROSTER_LINK_REPORT: roster_on_link(roster, event, out); break;
    case ROSTER_CHECK_ENDS: roster_end_check(roster, event->now, out); break;
    case ROSTER_LEAF_READY: roster_leaf_ready(roster, event, out); break;
    case ROSTER_TICK: on_tick(roster, event, out); break;
    }
}
