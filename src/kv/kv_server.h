/* The master of the key-value store, on the driver's node: connects its table (kv_table.h) to the
 * mailbox. It keeps metadata only, some 250 bytes a version; the values are on the nodes. The
 * entries of lost members are removed. */
#ifndef PL_KV_KV_SERVER_H
#define PL_KV_KV_SERVER_H

#include "group/master_service.h"
#include "kv/kv_table.h"

struct kv_server {
    struct master master;
    struct kv_table table;
    struct kv_orders orders;
};

/* Start to serve the nodes of the group, whose driver this node is. `server` is large. ERR_NOMEM */
int kv_server_start(struct kv_server *server, struct group *group);
void kv_server_stop(struct kv_server *server);

#endif
