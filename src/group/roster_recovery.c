/* Workers that reconnect to a recovered driver. */
#include "base/fault.h"
#include "group/roster_internal.h"

#include <stdio.h>
#include <string.h>

#define GRACE_MAX INT64_C(5000000000) /* ns */

/* Request as many workers as lack for training and for standby. */
static void request_missing(const struct roster *roster, struct roster_orders *out)
{
    const struct roster_options *o = &roster->options;
    uint32_t most = o->workers_max > o->workers ? o->workers_max : o->workers, here = 0;
    for (size_t i = 0; i < roster->count; i++)
        here += roster_is_in(&roster->member[i]) || roster->member[i].state == MEMBER_WAITS;
    if (here < most + o->standby)
        roster_order(out, ORDER_WANT)->other = most + o->standby - here;
}

static bool is_expected(const struct roster *roster, const struct roster_member *m)
{
    return m->state == MEMBER_RETURNED && members_has(&roster->recovery.members, m->node);
}

/* Do those that have returned suffice to continue with? Of a model in slices each slice is needed,
 * with the others of its replica. */
static bool can_continue(const struct roster *roster)
{
    struct members back = {{0}};
    for (size_t i = 0; i < roster->count; i++)
        if (is_expected(roster, &roster->member[i]))
            members_add(&back, roster->member[i].node);
    return roster_has_seats(roster) ? roster_returns_whole(roster, &back) : !members_empty(&back);
}

static size_t count_reconnected(const struct roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += is_expected(roster, &roster->member[i]);
    return n;
}

/* Members of the newest view that have reconnected form the next view; others must rejoin, because
 * the run may have continued without them and their state may differ. */
static void form_recovered_view(struct roster *roster, struct roster_orders *out)
{
    struct roster_recovery *r = &roster->recovery;
    struct members missing = r->members;
    PL_ASSERT(roster->view.number == 0); /* R2: this driver has made no view yet */
    r->on = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (is_expected(roster, m)) {
            roster_set_state(m, MEMBER_IN);
            members_remove(&missing, m->node);
            roster_report_member(out, m->node, "back");
        } else if (m->state == MEMBER_RETURNED) {
            roster_set_state(m, MEMBER_OUT);
            roster_order(out, ORDER_REJOIN)->node = m->node;
        }
    }
    MEMBERS_EACH (node, &missing)
        roster_report_member(out, node, "dead");
    if (roster_has_seats(roster))
        roster_sit_again(roster, out);
    if (roster->options.workers_max > 0) /* the run admits joiners */
        request_missing(roster, out);
    roster->view.elders = r->seating.elders;
    roster->view.number = r->highest; /* members take a view only if its number is higher */
    roster_make_view(roster, out);
    PL_ASSERT(roster->view.number > r->highest); /* R2 */
    roster_seek_donor(roster, out);
}

/* Those that have returned cannot continue: the run resumes from the driver's own state, with other
 * workers. */
static void forget_recovery(struct roster *roster, struct roster_orders *out)
{
    roster->recovery.on = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->state != MEMBER_RETURNED)
            continue;
        roster_set_state(m, MEMBER_OUT);
        roster_order(out, ORDER_REJOIN)->node = m->node;
    }
    for (size_t i = 0; i < roster->count && roster->view.number == 0; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->state != MEMBER_WAITS)
            continue;
        m->seat = VIEW_NO_SEAT;
        roster_set_state(m, MEMBER_IN);
        if (roster_has_seats(roster))
            roster_sit_first(roster, m);
        roster_report_member(out, m->node, "join");
        if (roster_count_in(roster) == roster->options.workers)
            roster_make_view(roster, out);
    }
    request_missing(roster, out);
    roster_seek_donor(roster, out);
}

static bool is_newer(const struct roster_recovery *r, const struct roster_event *event)
{
    return event->incarnation > r->incarnation ||
           (event->incarnation == r->incarnation && event->view > r->view);
}

/* Members of one view know the same elders and seats. Each knows best whether it has its own
 * slice's state. */
static void take_seating(struct roster_recovery *r, const struct roster_event *event)
{
    struct roster_seating *s = &r->seating;
    bool newer = event->incarnation > s->incarnation ||
                 (event->incarnation == s->incarnation && event->view > s->view);
    if (newer) {
        *s = (struct roster_seating){
            .view = event->view, .incarnation = event->incarnation, .elders = *event->elders};
        if (event->seated)
            memcpy(s->seated, event->seated, sizeof s->seated);
    } else if (event->seated && event->incarnation == s->incarnation && event->view == s->view) {
        s->seated[event->node] = event->seated[event->node];
    }
}

/* ns for which the driver waits for members: as long as it takes to detect a death, or a member to
 * call all of its addresses; 5 s at most. */
static int64_t recovery_wait(const struct roster *roster)
{
    int64_t wait = roster->options.silence_max;
    if (wait < roster->recovery.round)
        wait = roster->recovery.round;
    return wait < GRACE_MAX ? wait : GRACE_MAX;
}

/* Reports a view that no driver can have made: number 0, beyond half of the numbers, or without a
 * participant. */
static bool makes_no_sense(const struct roster_event *event)
{
    return event->node >= VIEW_MEMBERS_MAX || event->view == 0 || event->view >= UINT32_MAX / 2 ||
           members_empty(event->members);
}

/* The members that a worker reports are the participants of its view: a leaf is none of them. Its
 * state is that of its proxy, so it must rejoin; but its view may be the newest (R2). */
static bool is_leaf_report(const struct roster_event *event)
{
    return !members_has(event->members, event->node);
}

/* A worker of an earlier driver reconnects and reports its last view. The newest reported view
 * decides whom the driver waits for: later views may have removed members of older ones. */
void roster_reconnect(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out)
{
    struct roster_recovery *r = &roster->recovery;
    struct roster_member *m = roster_find(roster, event->node);
    if (!roster->options.recovers || roster->view.number > 0 || makes_no_sense(event) ||
        event->incarnation >= roster->options.incarnation ||
        (m && (roster_is_in(m) || m->state == MEMBER_WAITS))) {
        roster_order(out, ORDER_REJOIN)->node = event->node;
        return;
    }
    r->highest = event->view > r->highest ? event->view : r->highest;
    r->round = event->round > r->round ? event->round : r->round;
    if (is_leaf_report(event)) {
        roster_order(out, ORDER_REJOIN)->node = event->node;
        return;
    }
    if (!m)
        m = roster_add(roster, event);
    /* Workers that joined for a first view wait: the view of the returned members comes first. */
    for (size_t i = 0; i < roster->count && !r->on; i++)
        if (roster_is_in(&roster->member[i]))
            roster_set_state(&roster->member[i], MEMBER_WAITS);
    bool first = count_reconnected(roster) == 0;
    r->on = true;
    roster_set_state(m, MEMBER_RETURNED);
    m->last_beat = m->last_progress = event->now;
    snprintf(m->address, sizeof m->address, "%s", event->address);
    if (is_newer(r, event)) {
        r->view = event->view;
        r->incarnation = event->incarnation;
        r->members = *event->members;
    }
    take_seating(r, event);
    if (first && is_expected(roster, m))
        r->until = event->now + recovery_wait(roster);
    if (count_reconnected(roster) == members_count(&r->members) && can_continue(roster))
        form_recovered_view(roster, out);
}

/* The driver waits for recovery_wait after the first member. For the first one it waits twice that,
 * and 5 s at least: it does not know yet how many addresses members call. */
void roster_tick_recovery(struct roster *roster, const struct roster_event *event,
                          struct roster_orders *out)
{
    struct roster_recovery *r = &roster->recovery;
    if (r->until == 0) {
        int64_t wait = 2 * recovery_wait(roster);
        r->until = event->now + (wait > GRACE_MAX ? wait : GRACE_MAX);
    }
    r->until += event->pause;
    if (event->now < r->until)
        return;
    if (can_continue(roster))
        form_recovered_view(roster, out);
    else
        forget_recovery(roster, out);
}
