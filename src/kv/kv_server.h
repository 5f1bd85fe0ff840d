/* The master of the key-value store: a mailbox around its book (kv_table.h), on the driver's node.
 * It keeps metadata alone, some 250 bytes a version; values live on nodes. Members that the group
 * loses lose what they held. */
#ifndef PL_KV_KV_SERVER_H
#define PL_KV_KV_SERVER_H

#include "group/group.h"
#include "kv/kv_table.h"

struct kv_server {
    struct group *group;
    struct task *task;
    const struct view *view; /* that the book has heard of */
    struct kv_table table;
    struct kv_orders orders;
};

/* Begin to serve the nodes of the group, whose views come from this node. `server` is large.
 * ERR_NOMEM */
int kv_server_start(struct kv_server *server, struct group *group);
void kv_server_stop(struct kv_server *server);

#endif
