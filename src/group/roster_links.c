/* Connections between members that have broken. Members that cannot reach each other cannot
 * exchange: unless they reconnect in time, one of them is lost. */
#include "group/roster_internal.h"

/* Two members have lost their connection, while the driver reaches both. They cannot exchange, so
 * roster_tick_links drops one of them unless they reconnect. */
void roster_lost_link(struct roster *roster, const struct roster_event *event)
{
    struct roster_member *m = roster_find(roster, event->node);
    const struct roster_member *other = roster_find(roster, event->other);
    if (!m || !roster_is_in(m) || !other || !roster_is_in(other))
        return;
    if (members_empty(&m->lost)) {
        m->lost_at = event->now;
        members_add(&m->lost, event->other);
    } else if (!members_has(&m->lost, event->other)) {
        members_add(&m->lost_later, event->other);
    }
}

static bool has_lost(const struct roster_member *m, uint32_t node)
{
    return roster_is_in(m) && (members_has(&m->lost, node) || members_has(&m->lost_later, node));
}

/* Number of the member's links that it or the other end has reported as broken. */
static size_t broken_links(const struct roster *roster, const struct roster_member *m)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *other = &roster->member[i];
        n += has_lost(other, m->node) || (roster_is_in(other) && has_lost(m, other->node));
    }
    return n;
}

/* The member with more broken links leaves, or else the one with the higher number. */
static void part_with_one(struct roster *roster, struct roster_member *m,
                          struct roster_member *other, struct roster_orders *out)
{
    size_t mine = broken_links(roster, m), others = broken_links(roster, other);
    bool leaves = others > mine || (others == mine && other->node > m->node);
    roster_lose(roster, leaves ? other : m, "cut", out);
}

/* Decide on broken links that outlast the time in which a death is noticed. The links that broke
 * meanwhile have as much time from then on. */
void roster_tick_links(struct roster *roster, struct roster_member *m, int64_t now,
                       struct roster_orders *out)
{
    if (members_empty(&m->lost) || now - m->lost_at <= roster->options.silence_max)
        return;
    const struct members due = m->lost;
    MEMBERS_EACH (node, &due) {
        struct roster_member *other = roster_find(roster, node);
        if (roster_is_in(m) && other && roster_is_in(other))
            part_with_one(roster, m, other, out);
        members_remove(&m->lost, node);
    }
    m->lost = m->lost_later;
    m->lost_later = (struct members){{0}};
    m->lost_at = now;
}
