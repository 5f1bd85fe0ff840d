/* Decides which members are leaves: members whose network would hold up the exchanges of all.
 *
 * A member asks for a check when a tick is overdue, and now and then. All participants are asked
 * for the rate of the link from their predecessor. A participant that does not reply in time stands
 * still, or cannot be reached, and becomes a leaf. If all reply and links of one are much slower
 * than those of most, it becomes a leaf. A leaf that keeps pace with the others participates again;
 * each time that it fails, it must keep pace for twice as long. */
#include "group/roster_internal.h"

enum {
    SLOW_FACTOR = 3,     /* a link is slow below this fraction of the others' rate */
    BLAMED_MIN = 2,      /* slow links of a member, of one check or of several */
    LEAF_TIMES_MAX = 10, /* doublings */
};

void roster_settle_leaves(struct roster *roster)
{
    bool all = !roster_has_seats(roster); /* else leaves are those without a seat */
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        m->leaf &= roster_is_in(m);
        all &= m->leaf || !roster_is_in(m);
    }
    for (size_t i = 0; i < roster->count && all; i++)
        roster->member[i].leaf = false;
}

static void end_leaves(struct roster *roster, struct roster_orders *out)
{
    for (size_t i = 0; i < roster->count; i++)
        roster->member[i].leaf = false;
    roster_make_view(roster, out);
}

/* The time is over for a leaf that was asked: it could not be reached, or held up the others. It is
 * lost as if it had died. One in a view: the next view decides again. */
static void give_up_leaf(struct roster *roster, struct roster_orders *out)
{
    uint32_t node = members_next(&roster->view.leaves, 0);
    roster_lose(roster, roster_find(roster, node), "cut", out);
}

void roster_ask_leaves(struct roster *roster, uint32_t lane, bool may_continue, int64_t now,
                       struct roster_orders *out)
{
    int64_t *until = &roster->asked_until[lane];
    if (*until > 0 && now >= *until && may_continue) {
        give_up_leaf(roster, out);
        return;
    }
    if (now >= *until)
        *until = now + roster->options.silence_max;
    if (*until > roster->no_leaf_until)
        roster->no_leaf_until = *until;
    end_leaves(roster, out);
}

void roster_check_links(struct roster *roster, const struct roster_event *event,
                        struct roster_orders *out)
{
    struct roster_check *check = &roster->check;
    const struct members participants = view_participants(&roster->view);
    if (check->on || event->view != roster->view.number || members_count(&participants) < 2)
        return;
    *check = (struct roster_check){
        .on = true,
        .number = check->number + 1,
        .until = event->now + event->grace,
        .grace = event->grace,
    };
    roster_order(out, ORDER_LINK_CHECK)->other = check->number;
}

/* ---- slow links ---- */

static double rate_of(const struct roster_link *link)
{
    return link->ns > 0 ? (double)link->bytes / (double)link->ns : 0;
}

/* Both ends participate, and bytes have arrived. */
static bool is_measured(const struct roster *roster, const struct members *participants, size_t i)
{
    const struct roster_member *m = &roster->member[i];
    return members_has(participants, m->node) && members_has(participants, m->link.from) &&
           m->link.bytes > 0 && m->link.ns > 0;
}

/* The rate that a link ought to have: that of the slowest after a quarter of the members, at least
 * one, which may be slow and have two links each, was left out. 0: too few links are measured. */
static double usual_rate(const struct roster *roster, const struct members *participants)
{
    size_t count = 0, slow = members_count(participants) / 4;
    double usual = 0;
    for (size_t i = 0; i < roster->count; i++)
        count += is_measured(roster, participants, i);
    slow = 2 * (slow > 1 ? slow : 1);
    for (size_t i = 0; i < roster->count && count > slow; i++) {
        double rate = rate_of(&roster->member[i].link);
        size_t slower = 0;
        if (!is_measured(roster, participants, i))
            continue;
        for (size_t k = 0; k < roster->count; k++)
            slower +=
                is_measured(roster, participants, k) && rate_of(&roster->member[k].link) < rate;
        if (slower <= slow && rate > usual)
            usual = rate;
    }
    return usual;
}

/* The link is slow, and carries bytes most of the time, so that others wait for it. */
static bool is_slow(const struct roster_link *link, double usual)
{
    return rate_of(link) * SLOW_FACTOR < usual && link->ns > link->span / 2;
}

/* The member that most slow links have in common, at least two, those of earlier checks included: a
 * link may be slow because of either end. NULL: no such member. */
static struct roster_member *find_slow(struct roster *roster, const struct members *participants)
{
    double usual = usual_rate(roster, participants);
    struct roster_member *worst = NULL;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!is_measured(roster, participants, i) || !is_slow(&m->link, usual))
            continue;
        m->blamed++;
        roster_find(roster, m->link.from)->blamed++;
    }
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!is_measured(roster, participants, i) || !is_slow(&m->link, usual))
            continue;
        struct roster_member *from = roster_find(roster, m->link.from);
        if (!worst || from->blamed > worst->blamed)
            worst = from;
        if (m->blamed > worst->blamed)
            worst = m;
    }
    for (size_t i = 0; i < roster->count && !worst; i++)
        roster->member[i].blamed = 0; /* all links are fast again */
    return worst && worst->blamed >= BLAMED_MIN ? worst : NULL;
}

/* ---- decisions ---- */

/* A joiner gets a donor that participates, as a leaf may stand still. */
static void make_leaf(struct roster *roster, struct roster_member *m, struct roster_orders *out)
{
    m->leaf = true;
    m->leaf_times += m->leaf_times < LEAF_TIMES_MAX;
    m->leaf_rounds = 0;
    m->blamed = 0;
    roster_report_member(out, m->node, "leaf");
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *joiner = &roster->member[i];
        if (joiner->state != MEMBER_WAITS || joiner->donor != m->node)
            continue;
        joiner->donor = ROSTER_NO_NODE;
        roster_order_pair(out, ORDER_CANCEL_JOIN, m->node, joiner->node);
    }
}

/* A joiner may lack state that it gets as a participant only. */
static bool may_be_leaf(const struct roster_member *m)
{
    return m && m->state != MEMBER_JOINING && !m->leaf;
}

/* The time is over, or all have replied. If most have not, the driver's own network is slow. */
void roster_end_check(struct roster *roster, int64_t now, struct roster_orders *out)
{
    struct roster_check *check = &roster->check;
    const struct members participants = view_participants(&roster->view),
                         silent = members_without(&participants, &check->reported);
    if (!check->on)
        return;
    if (now < roster->no_leaf_until) {
        check->on = false;
        return;
    }
    bool changed = false, most = members_count(&silent) > members_count(&participants) / 2;
    check->on = false;
    MEMBERS_EACH (node, &silent) {
        struct roster_member *m = roster_find(roster, node);
        if (most || !may_be_leaf(m))
            continue;
        make_leaf(roster, m, out);
        changed = true;
    }
    if (members_empty(&silent) && members_count(&participants) > 2) {
        struct roster_member *m = find_slow(roster, &participants);
        changed = may_be_leaf(m);
        if (changed)
            make_leaf(roster, m, out);
    }
    if (!changed)
        return;
    roster_make_view(roster, out);
    roster_seek_donor(roster, out);
}

void roster_on_link(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out)
{
    struct roster_check *check = &roster->check;
    struct roster_member *m = roster_find(roster, event->node);
    const struct members participants = view_participants(&roster->view);
    if (!check->on || event->check != check->number || !members_has(&participants, event->node))
        return;
    m->link = event->link;
    members_add(&check->reported, event->node);
    if (members_within(&participants, &check->reported))
        roster_end_check(roster, event->now, out);
}

void roster_leaf_ready(struct roster *roster, const struct roster_event *event,
                       struct roster_orders *out)
{
    struct roster_member *m = roster_find(roster, event->node);
    if (!m || !roster_is_in(m) || !m->leaf || ++m->leaf_rounds < UINT64_C(1) << (m->leaf_times - 1))
        return;
    m->leaf = false;
    roster_report_member(out, m->node, "participates");
    roster_make_view(roster, out);
    roster_seek_donor(roster, out);
}
