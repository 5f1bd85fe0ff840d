/* Functions that the roster's files share. roster.c keeps the membership, roster_join.c admits
 * joiners, roster_recovery.c handles members that reconnect to a recovered driver, roster_lane.c
 * decides which result of a lane counts in a new view, roster_leaf.c which members are leaves,
 * roster_links.c which broken connections lose one, and roster_seats.c has the slices of members.
 */
#ifndef PL_GROUP_ROSTER_INTERNAL_H
#define PL_GROUP_ROSTER_INTERNAL_H

#include "group/roster.h"

/* Append an order, for the caller to fill in; and shorthands for two frequent kinds. */
struct roster_order *roster_order(struct roster_orders *out, enum roster_order_kind kind);
void roster_order_pair(struct roster_orders *out, enum roster_order_kind kind, uint32_t node,
                       uint32_t other);
void roster_report_member(struct roster_orders *out, uint32_t node, const char *what);

/* Asserts that the transition is one of the table. */
void roster_set_state(struct roster_member *m, enum member_state state);

/* NULL: the roster does not have the node. */
struct roster_member *roster_find(struct roster *roster, uint32_t node);
struct roster_member *roster_add(struct roster *roster, const struct roster_event *event);
size_t roster_count_in(const struct roster *roster);

/* Make the next view of all members that are in. Lane reports of older views are discarded. */
void roster_make_view(struct roster *roster, struct roster_orders *out);

/* If there is room, choose a donor for the next waiting joiner: the member with the lowest number
 * that is neither joining nor leaving, since it has all of the state. One joiner at a time. */
void roster_seek_donor(struct roster *roster, struct roster_orders *out);

/* Remove a member, or a waiting joiner: `what` names the cause. */
void roster_lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out);

/* Members that waited for a joiner's report leave when it is there, or wait no longer. */
void roster_let_leave(struct roster *roster, int64_t now, struct roster_orders *out);

/* In a pause the donor may wait in an exchange that the paused members do not enter, and reach no
 * commit point. A paused member takes its place. */
void roster_replace_donor(struct roster *roster, const struct roster_member *paused,
                          struct roster_orders *out);

/* Two members have lost their connection. And: decide on a member's broken connections that have
 * lasted too long. */
void roster_lost_link(struct roster *roster, const struct roster_event *event);
void roster_tick_links(struct roster *roster, struct roster_member *m, int64_t now,
                       struct roster_orders *out);

/* Where a model is in slices. The seat of a worker of the first view: that of its number, or the
 * lowest free one. */
bool roster_has_seats(const struct roster *roster);
void roster_sit_first(const struct roster *roster, struct roster_member *m);

/* A member has left its seat: those of the same replica lose theirs, unless no other replica is
 * whole. */
void roster_unseat(struct roster *roster, struct roster_member *left, struct roster_orders *out);

/* Members that return to a recovered driver keep the seats of their newest view. Is a replica
 * whole that only nodes of this set make? And: those of other replicas lose their seats. */
bool roster_returns_whole(const struct roster *roster, const struct members *nodes);
void roster_sit_again(struct roster *roster, struct roster_orders *out);

/* Make replicas of joiners and of members without a seat, as many as there is room for, in one new
 * view. */
void roster_seat_replicas(struct roster *roster, struct roster_orders *out);

/* Members of the next view that are leaves. If all would be, none is. */
void roster_settle_leaves(struct roster *roster);

/* No participant holds the result of a lane for sure, and a leaf may have the newest one. All
 * leaves participate, and no member becomes a leaf for as long as a member may be silent, so that
 * they can report. One that is a leaf again after that is given up, if the participants may
 * continue without it, since a former leaf has a result. */
void roster_ask_leaves(struct roster *roster, uint32_t lane, bool may_continue, int64_t now,
                       struct roster_orders *out);

/* Events. */
void roster_join(struct roster *roster, const struct roster_event *event,
                 struct roster_orders *out);
void roster_donor_ready(struct roster *roster, const struct roster_event *event,
                        struct roster_orders *out);
void roster_join_complete(struct roster *roster, struct roster_member *m,
                          const struct roster_event *event, struct roster_orders *out);
void roster_want(struct roster *roster, uint32_t n, struct roster_orders *out);
void roster_check_links(struct roster *roster, const struct roster_event *event,
                        struct roster_orders *out);
void roster_on_link(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out);
void roster_end_check(struct roster *roster, int64_t now, struct roster_orders *out);
void roster_leaf_ready(struct roster *roster, const struct roster_event *event,
                       struct roster_orders *out);
void roster_reconnect(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out);
void roster_tick_recovery(struct roster *roster, const struct roster_event *event,
                          struct roster_orders *out);
void roster_lane_at(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out);

#endif
