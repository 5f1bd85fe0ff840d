/* A view: a numbered membership of the group (D5). Immutable once made; members learn of a new one
 * by message and keep every view of the run, so that a task may hold on to one without counting. */
#ifndef PL_GROUP_VIEW_H
#define PL_GROUP_VIEW_H

#include "base/err.h"
#include "group/members.h"

#define VIEW_NO_SEAT UINT32_MAX

struct view {
    uint32_t number;      /* from 1 */
    uint32_t incarnation; /* of the driver that made it */
    size_t count;
    /* Members whose network is too slow for the others: they take no part in exchanges. Each has a
     * proxy, a member that hands contributions and results on. Not all members are leaves. */
    struct members leaves;
    /* Where a model is in slices: the seat of each member, replica · slices + slice. A member
     * without a seat is a leaf. Those of `fresh` lack the state of their slice, which a peer of
     * theirs sends. Elsewhere nobody has a seat. */
    struct members fresh;
    /* The members since the time when all of the set before had gone; at first, those that began
     * the run. Some member is one. A later member is none before all of them have gone. */
    struct members elders;
    uint32_t node[VIEW_MEMBERS_MAX]; /* workers, ascending, < VIEW_MEMBERS_MAX; rank is the index */
    uint32_t seated[VIEW_MEMBERS_MAX]; /* 0: no seat; else 1 more than the seat (view_seat) */
    char address[VIEW_MEMBERS_MAX][NODE_ADDRESS_MAX]; /* last: a kept copy ends with them */
};

/* Rank of a node, or -1 when it is no member. */
int view_rank(const struct view *view, uint32_t node);

/* Seat of a node, or VIEW_NO_SEAT. */
uint32_t view_seat(const struct view *view, uint32_t node);

/* The member with that seat, or VIEW_MEMBERS_MAX. */
uint32_t view_seated(const struct view *view, uint32_t seat);

struct members view_members(const struct view *view);

/* Its members without the leaves: those that take part in exchanges. */
struct members view_participants(const struct view *view);

/* The proxy of a leaf: leaves take the participants in turns, in ascending order. */
uint32_t view_proxy(const struct view *view, uint32_t leaf);

/* Of its elders those stay that are members; if none is, all members are the elders. */
void view_settle_elders(struct view *view);

/* The member after `node`, in turns: participants in ascending order, then leaves. If `node` is no
 * member: the first participant. The view has members. */
uint32_t view_after(const struct view *view, uint32_t node);

void view_encode(const struct view *view, struct buf *out);
/* ERR_PROTOCOL */
int view_decode(struct byte_reader *in, struct view *out);

#endif
