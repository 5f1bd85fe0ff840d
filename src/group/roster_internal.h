/* The roster, as its files share it: roster.c knows who is in and who is not, roster_recovery.c who
 * returns to a driver that has returned, roster_lane.c decides what a new view does in a lane. */
#ifndef PL_GROUP_ROSTER_INTERNAL_H
#define PL_GROUP_ROSTER_INTERNAL_H

#include "group/roster.h"

/* The next order, for the caller to fill in; and those that are often given. */
struct roster_order *roster_order(struct roster_orders *out, enum roster_order_kind kind);
void roster_order_pair(struct roster_orders *out, enum roster_order_kind kind, uint32_t node,
                       uint32_t other);
void roster_report_member(struct roster_orders *out, uint32_t node, const char *what);

/* NULL: there is none. */
struct roster_member *roster_find(struct roster *roster, uint32_t node);
struct roster_member *roster_add(struct roster *roster, const struct roster_event *event);
size_t roster_count_in(const struct roster *roster);

/* The next view holds those who are in; reports of older views are forgotten. */
void roster_make_view(struct roster *roster, struct roster_orders *out);

/* If there is room, the next that waits gets a donor: who has been in for longest, for it has all
 * that is to be handed on. One comes in at a time. */
void roster_seek_donor(struct roster *roster, struct roster_orders *out);

/* A member, or one that waits, is there no more. */
void roster_lose(struct roster *roster, struct roster_member *m, const char *what,
                 struct roster_orders *out);

/* Events. */
void roster_reconnect(struct roster *roster, const struct roster_event *event,
                      struct roster_orders *out);
void roster_tick_recovery(struct roster *roster, const struct roster_event *event,
                          struct roster_orders *out);
void roster_lane_at(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out);

#endif
