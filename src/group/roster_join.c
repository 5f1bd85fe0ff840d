/* Joining a run: which waiting worker gets which donor, when it becomes a member, and how many
 * members there are to be. */
#include "group/roster_internal.h"

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
void roster_want(struct roster *roster, uint32_t n, struct roster_orders *out)
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
void roster_donor_ready(struct roster *roster, const struct roster_event *event,
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

/* A worker has connected. Before the first view it is a member at once, and the view is made when
 * all that the run needs are there. Later it waits for a donor, since it lacks the run's state. */
void roster_join(struct roster *roster, const struct roster_event *event, struct roster_orders *out)
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

/* The state of an earlier seat is not that of this one. */
void roster_join_complete(struct roster *roster, struct roster_member *m,
                          const struct roster_event *event, struct roster_orders *out)
{
    if (!m || m->state != MEMBER_JOINING || event->view < m->joins_in)
        return;
    roster_set_state(m, MEMBER_IN);
    roster_let_leave(roster, event->now, out);
    release_surplus(roster, out);
    roster_seek_donor(roster, out); /* it may be one */
}

void roster_replace_donor(struct roster *roster, const struct roster_member *paused,
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
