/* Who returns to a driver that has come back. */
#include "group/roster_parts.h"

#include <stdio.h>

#define GRACE_MAX INT64_C(5000000000) /* ns */

/* Of those who are to train, and of those who are to stand by. */
static void want_missing(const struct roster *roster, struct roster_orders *out)
{
    const struct roster_options *o = &roster->options;
    uint32_t most = o->workers_max > o->workers ? o->workers_max : o->workers, here = 0;
    for (size_t i = 0; i < roster->count; i++)
        here += roster->member[i].in || roster->member[i].waits;
    if (here < most + o->standby)
        roster_order(out, ORDER_WANT)->other = most + o->standby - here;
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
            roster_tell(out, m->node, "back");
        } else if (m->back) {
            roster_order(out, ORDER_AFRESH)->node = m->node;
        }
        m->back = false;
    }
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(&missing, node))
            roster_tell(out, node, "dead");
    if (roster->options.workers_max > 0) /* else nobody can come in any more */
        want_missing(roster, out);
    roster->view.number = r->highest;
    roster_make_view(roster, out);
    roster_seek_sponsor(roster, out);
}

/* Nobody is left of those who trained: the run goes on from what the driver has, with others. */
static void begin_anew(struct roster *roster, struct roster_orders *out)
{
    roster->reforming.on = false;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (m->back) /* of a view that was left behind */
            roster_order(out, ORDER_AFRESH)->node = m->node;
        m->back = false;
    }
    for (size_t i = 0; i < roster->count && roster->view.number == 0; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->waits)
            continue;
        m->waits = false;
        m->in = true;
        roster_tell(out, m->node, "join");
        if (roster_count_in(roster) == roster->options.workers)
            roster_make_view(roster, out);
    }
    want_missing(roster, out);
    roster_seek_sponsor(roster, out);
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

void roster_come_back(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out)
{
    struct reforming *r = &roster->reforming;
    struct roster_member *m = roster_find(roster, event->node);
    if (!roster->options.reforms || roster->view.number > 0 || makes_no_sense(event) ||
        event->incarnation >= roster->options.incarnation || (m && (m->in || m->waits))) {
        roster_order(out, ORDER_AFRESH)->node = event->node;
        return;
    }
    if (!m)
        m = roster_add(roster, event);
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
void roster_tick_reforming(struct roster *roster, const struct roster_event *event,
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
