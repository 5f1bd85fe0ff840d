/* The driver's side of the group at work: a mailbox around the roster (roster.h). It takes joins,
 * heartbeats, lost connections and reports of lanes, and carries out what the roster orders. And it
 * beats itself: who does not hear its driver any more looks for another one. */
#ifndef PL_GROUP_GROUP_SERVER_H
#define PL_GROUP_GROUP_SERVER_H

#include "group/group.h"

struct server_hooks {
    /* A node has connected: the time to welcome it. */
    void (*arrived)(void *user, uint32_t node);
    /* (optional) A node's connection has ended. */
    void (*on_disconnect)(void *user, uint32_t node);
    /* (optional) What a worker was told that was turned away. */
    void (*refused)(void *user, uint32_t node, const struct err *why);
    /* A worker wants in and said this in its hello. OK puts the address it listens at in `address`
     * (NODE_ADDRESS_MAX); anything else turns it away, with err's message sent to it. */
    int (*admit)(void *user, uint32_t node, const void *hello, size_t len, char *address,
                 struct err *err);
    /* `node` join, back, leave, dead, hung or cut; `view` is the number of the view that follows.
     */
    void (*member)(void *user, uint32_t node, const char *what, uint32_t view);
    /* (optional) A worker returns to this driver, which has returned. As admit; and this is what it
     * has noted (group_set_recovery_report). */
    int (*returned)(void *user, uint32_t node, const void *hello, size_t len, const uint64_t *note,
                    char *address, struct err *err);
    /* (optional) That view is about to be told to its members. */
    void (*formed)(void *user, const struct view *view);
    /* (optional) Time has passed: several times in what a silence may last. */
    void (*tick)(void *user);
    /* (optional) So many workers of those who were there have not return. */
    void (*want)(void *user, uint32_t workers);
    void *user;
};

struct server {
    struct group *group; /* the driver's own; takes each view first */
    struct server_hooks hooks;
    struct roster roster;
    struct roster_orders orders;
    struct task *task;
    _Atomic uint32_t want; /* members there are to be; 0: nobody has said */
    uint32_t reported;
    _Atomic uint32_t standing;                /* who stands by */
    _Atomic uint64_t steps[VIEW_MEMBERS_MAX]; /* that each has taken, by its heartbeats, */
    _Atomic double
        local_loss[VIEW_MEMBERS_MAX];          /* and their mean loss since its last commit point */
    _Atomic int64_t beat_at[VIEW_MEMBERS_MAX]; /* when each last sent one; 0: never, */
    _Atomic int64_t silent[VIEW_MEMBERS_MAX];  /* and the longest time between two, in ns, since
                                                  that was asked for */
    int64_t next_beat;
    _Atomic uint64_t departed_totals[GROUP_TOTALS]; /* goes with every beat */
};

/* So many members there are to be, from now on: more are let in, or the latest are asked to leave.
 * From any task. */
void server_want(struct server *server, uint32_t members);

/* Start serving. `server` is large: not on a task's stack. ERR_NOMEM */
int server_start(struct server *server, struct group *group, const struct roster_options *options,
                 const struct server_hooks *hooks);
void server_stop(struct server *server);

/* Seconds since the member's last heartbeat; and the longest time between two since the last call.
 * From any task; 0: it has sent none. */
double server_silence(const struct server *server, uint32_t node, int64_t now);
double server_longest_silence(struct server *server, uint32_t node, int64_t now);

#endif
