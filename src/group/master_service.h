/* The common part of services with a master: the key-value store and the shared variables
 * (Elastic §4.2, §5.3: the "master process").
 *
 * The master is a task on the driver's node. It passes its service the requests of the nodes and
 * the members of each view. The service decides with a table, a pure step function, and replies.
 * A node's side is a task as well. Other tasks of the node pass it their calls by an inbox, and
 * wait for the end of a call with group_wait. */
#ifndef PL_GROUP_MASTER_SERVICE_H
#define PL_GROUP_MASTER_SERVICE_H

#include "group/group.h"
#include "wire/wire_send.h"

/* ---- the master ---- */

enum { MASTER_SOURCES = 2 };

struct master_ops {
    const char *task;  /* its name */
    const char *title; /* in the log: the subject of "cannot continue" */
    /* The view has changed. Called before any message that arrives after the view. */
    int (*on_members)(void *service, const struct members *in);
    /* The kinds of messages that the master handles. An error of a handler ends the master. */
    struct {
        uint32_t from; /* a node, or WORLD_ANY */
        enum wire_kind kind;
        int (*on_message)(void *service, const struct message *m); /* NULL: not used */
    } source[MASTER_SOURCES];
    void (*on_failure)(void *service); /* (optional) the master has ended by an error */
};

struct master {
    struct group *group;
    struct task *task;
    const struct view *view; /* that the service knows; NULL: none yet */
    const struct master_ops *ops;
    void *service; /* of ops */
};

/* Start the master on the node of the group's driver. ERR_NOMEM */
int master_start(struct master *master, struct group *group, const struct master_ops *ops,
                 void *service);
/* End the task; without effect on a master that was not started. */
void master_stop(struct master *master);

/* Send a reply. The loss of the node is no error: the next view excludes it.
 * ERR_NOMEM, ERR_CANCELLED */
int master_reply(struct master *master, uint32_t node, enum wire_kind kind,
                 const struct buf *bytes);

/* ---- a node ---- */

/* The first member of an item that an inbox passes on. */
struct inbox_item {
    void *next; /* item that arrived next; NULL: none */
};

struct inbox {
    _Atomic(void *) newest;
};

/* Any task may push; one task takes all, the oldest first. */
void inbox_push(struct inbox *inbox, struct inbox_item *item);
void *inbox_take(struct inbox *inbox);

#endif
