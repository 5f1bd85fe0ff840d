/* A worker's ear (group.h), and what it shares with group.c. */
#ifndef PL_GROUP_LISTENER_H
#define PL_GROUP_LISTENER_H

#include "group/group.h"
#include "wire/catalogue.h"

/* The listener's task. `arg`: the group. */
int group_listener(void *arg);

/* Wake the tasks that wait for the group. */
void group_changed(struct group *group);
void group_end(struct group *group);

/* A control message to the driver that names a node. ERR_DRIVER, ERR_NOMEM, ERR_CANCELLED */
int group_send_node(struct group *group, enum wire_kind kind, uint32_t node);

/* Report this member's link to the driver, for its check `number`. ERR_NOMEM */
int group_report_link(struct group *group, uint32_t number);

/* The newest recovery report of this member. false: there is none yet */
bool group_read_report(const struct group *group, uint64_t report[GROUP_REPORT]);

#endif
