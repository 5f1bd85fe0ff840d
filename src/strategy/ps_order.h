/* The order of a parameter server: pushes arrive, the clock decides them for all shards, each shard
 * carries out the decisions, and copies go out. ps_recovery.c uses it, and ps_server.c both. */
#ifndef PL_STRATEGY_PS_ORDER_H
#define PL_STRATEGY_PS_ORDER_H

#include "strategy/ps_server.h"

/* Assert that the transition is one of the table. */
void ps_enter(struct ps_server *server, enum ps_server_stage stage);
void ps_set_use(struct ps_server_client *client, enum ps_use use);

/* Send a message to the server of a shard, with the number of the view. */
int ps_report_shard(struct ps_server *server, size_t shard, const struct ps_message *message);

/* Report to the clock that the worker's push has arrived. */
int ps_have(struct ps_server *server, uint32_t node);

/* The header of a push has arrived; its transfer has ended. */
int ps_on_push(struct ps_server *server, struct message *m);
int ps_on_push_ended(struct ps_server *server, struct ps_server_client *client);

/* Accept the worker's waiting push, if there is one and its vector is free. */
int ps_take_next(struct ps_server *server, uint32_t node);

/* Send the copy that the worker requests, if it can be served now; and all such copies. */
int ps_reply(struct ps_server *server, uint32_t node);
int ps_reply_all(struct ps_server *server);

/* An order of the clock has arrived. ERR_PROTOCOL */
int ps_on_order(struct ps_server *server, const struct ps_message *message);

/* The clock's: decide ready pushes; send OK to the workers that may continue. */
int ps_decide(struct ps_server *server);
int ps_send_oks(struct ps_server *server, const struct ps_decision *decision, int64_t now);

/* Show the observer an order that was carried out, or a recovery. */
static inline void ps_observe(const struct ps_server *server, bool recovered)
{
    const struct group_observer *observer = server->group->observer;
    if (observer && observer->served)
        observer->served(observer->user, server, recovered);
}

#endif
