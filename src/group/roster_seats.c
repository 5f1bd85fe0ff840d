/* Seats: where a model is in slices, each member of a view has a seat, one slice of one replica. A
 * replica trains only as a whole. So when a member is lost, the others of its replica lose their
 * seats and wait as leaves. As soon as joiners and such members are enough for a replica, they
 * become one, and each receives the state of its slice from a peer: the member of another replica
 * that has the same slice. No peer is asked first, since a view in which a replica has changed
 * begins with the repetition of the step under way (strategy/sliced_worker.c). */
#include "base/fault.h"
#include "group/roster_internal.h"

bool roster_has_seats(const struct roster *roster)
{
    return roster->options.slices > 1;
}

static const struct roster_member *in_seat(const struct roster *roster, uint32_t seat)
{
    for (size_t i = 0; i < roster->count; i++)
        if (roster_is_in(&roster->member[i]) && roster->member[i].seat == seat)
            return &roster->member[i];
    return NULL;
}

void roster_sit_first(const struct roster *roster, struct roster_member *m)
{
    uint32_t seat = m->node < roster->options.workers && !in_seat(roster, m->node) ? m->node : 0;
    while (in_seat(roster, seat))
        seat++;
    m->seat = seat;
    m->slice = seat % roster->options.slices;
}

/* How many of the replica's members are there, in the given state or a later one? */
static uint32_t seated_in(const struct roster *roster, uint32_t replica, enum member_state least)
{
    uint32_t slices = roster->options.slices, n = 0;
    for (uint32_t f = 0; f < slices; f++) {
        const struct roster_member *m = in_seat(roster, replica * slices + f);
        n += m && m->state >= least;
    }
    return n;
}

static uint32_t replicas_max(const struct roster *roster)
{
    const struct roster_options *o = &roster->options;
    return (o->workers_max > o->workers ? o->workers_max : o->workers) / o->slices;
}

/* A replica all of whose members have the state of their slices: another one than `but`. */
static bool has_whole_replica(const struct roster *roster, uint32_t but)
{
    for (uint32_t r = 0; r < replicas_max(roster); r++)
        if (r != but && seated_in(roster, r, MEMBER_IN) == roster->options.slices)
            return true;
    return false;
}

void roster_unseat(struct roster *roster, struct roster_member *left, struct roster_orders *out)
{
    uint32_t slices = roster->options.slices, replica = left->seat / slices;
    bool had_seat = left->seat != VIEW_NO_SEAT;
    left->seat = VIEW_NO_SEAT;
    if (!had_seat || roster->view.number == 0 || !has_whole_replica(roster, replica))
        return;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!roster_is_in(m) || m->seat == VIEW_NO_SEAT || m->seat / slices != replica)
            continue;
        m->seat = VIEW_NO_SEAT;
        m->leaf = true;
        if (m->state == MEMBER_JOINING)
            roster_set_state(m, MEMBER_IN);
        roster_report_member(out, m->node, "unseated");
    }
}

/* ---- a recovered driver ---- */

static uint32_t returned_to(const struct roster *roster, const struct members *nodes, uint32_t seat)
{
    MEMBERS_EACH (node, nodes)
        if (roster->recovery.seating.seated[node] == seat + 1)
            return node;
    return VIEW_MEMBERS_MAX;
}

bool roster_returns_whole(const struct roster *roster, const struct members *nodes)
{
    uint32_t slices = roster->options.slices;
    for (uint32_t r = 0; r < replicas_max(roster); r++) {
        uint32_t here = 0;
        for (uint32_t f = 0; f < slices; f++)
            here += returned_to(roster, nodes, r * slices + f) < VIEW_MEMBERS_MAX;
        if (here == slices)
            return true;
    }
    return false;
}

/* A member that lacks the state of its slice has no seat either, and will get one again. */
void roster_sit_again(struct roster *roster, struct roster_orders *out)
{
    uint32_t slices = roster->options.slices;
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        uint32_t seated = roster->recovery.seating.seated[m->node];
        m->seat = VIEW_NO_SEAT;
        if (!roster_is_in(m) || seated == 0 || in_seat(roster, seated - 1))
            continue;
        m->seat = seated - 1;
        m->slice = m->seat % slices;
    }
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        m->leaf = roster_is_in(m) && (m->seat == VIEW_NO_SEAT ||
                                      seated_in(roster, m->seat / slices, MEMBER_IN) < slices);
    }
    for (size_t i = 0; i < roster->count; i++) {
        struct roster_member *m = &roster->member[i];
        if (!m->leaf)
            continue;
        m->seat = VIEW_NO_SEAT;
        roster_report_member(out, m->node, "unseated");
    }
}

/* ---- replicas that are made again ---- */

/* Members without a seat come before joiners: they have opened their data. */
static bool may_sit(const struct roster_member *m, bool is_member)
{
    return is_member ? m->state == MEMBER_IN && m->seat == VIEW_NO_SEAT : m->state == MEMBER_WAITS;
}

/* The next one who may sit: for that slice if possible, whose net it has planned. NULL: nobody */
static struct roster_member *next_to_sit(struct roster *roster, uint32_t slice, bool any_slice)
{
    for (int is_member = 1; is_member >= 0; is_member--)
        for (size_t i = 0; i < roster->count; i++) {
            struct roster_member *m = &roster->member[i];
            if (may_sit(m, is_member) && (any_slice || m->slice == slice))
                return m;
        }
    return NULL;
}

static void sit_down(const struct roster *roster, struct roster_member *m, uint32_t seat,
                     uint32_t slice, struct roster_orders *out)
{
    roster_report_member(out, m->node, m->state == MEMBER_WAITS ? "join" : "seated");
    roster_set_state(m, MEMBER_JOINING);
    m->joins_in = roster->view.number + 1;
    m->seat = seat;
    m->slice = slice;
    m->leaf = false;
}

static void seat_replica(struct roster *roster, uint32_t replica, struct roster_orders *out)
{
    uint32_t slices = roster->options.slices;
    for (int any = 0; any <= 1; any++)
        for (uint32_t f = 0; f < slices; f++) {
            uint32_t seat = replica * slices + f;
            struct roster_member *m =
                in_seat(roster, seat) ? NULL : next_to_sit(roster, f, any == 1);
            if (m)
                sit_down(roster, m, seat, f, out);
        }
    PL_ASSERT(seated_in(roster, replica, MEMBER_JOINING) == slices);
}

static uint32_t count_to_sit(const struct roster *roster)
{
    uint32_t n = 0;
    for (size_t i = 0; i < roster->count; i++)
        n += may_sit(&roster->member[i], true) || may_sit(&roster->member[i], false);
    return n;
}

void roster_seat_replicas(struct roster *roster, struct roster_orders *out)
{
    bool seated = false;
    if (roster->view.number == 0 || roster->options.workers_max == 0 ||
        !has_whole_replica(roster, UINT32_MAX))
        return;
    for (uint32_t r = 0; r < replicas_max(roster); r++)
        if (seated_in(roster, r, MEMBER_JOINING) == 0 &&
            count_to_sit(roster) >= roster->options.slices) {
            seat_replica(roster, r, out);
            seated = true;
        }
    if (seated)
        roster_make_view(roster, out);
}
