/* Declarations that the files of a parameter server share: ps_server.c receives messages,
 * ps_order.c decides and applies, ps_recovery.c continues when a server is lost. */
#ifndef PL_STRATEGY_PS_SERVER_INTERNAL_H
#define PL_STRATEGY_PS_SERVER_INTERNAL_H

#include "strategy/ps_server.h"

/* ps_server.c: assert that the transition is one of the table. */
void ps_enter(struct ps_server *server, enum ps_server_stage stage);
void ps_set_use(struct ps_server_client *client, enum ps_use use);

/* ps_server.c: accept the worker's waiting push, if there is one and its vector is free. */
int ps_take_next(struct ps_server *server, uint32_t node);

/* ps_server.c: send parts for fetches that can be served now. */
int ps_reply_all(struct ps_server *server);

/* ps_server.c: the global model has changed. Returns the status of the driver part's hook */
int ps_changed(struct ps_server *server);

/* ps_server.c: follow a new view, if there is one. */
int ps_look_at_view(struct ps_server *server);

/* ps_server.c: another node has seen the view of that number: wait for it, and follow it. */
int ps_see_view(struct ps_server *server, uint32_t number);

/* ps_server.c: report to the clock that a push has arrived. */
int ps_have(struct ps_server *server, uint32_t node);

/* ps_server.c: send a message to the server of a shard. */
int ps_report_shard(struct ps_server *server, size_t shard, const struct ps_message *message);

/* ps_recovery.c: a new view was followed; a message of the recovery has arrived, or a copy; an
 * order has been applied. */
int ps_take_stock(struct ps_server *server);
int ps_on_stock(struct ps_server *server, struct message *m, const struct ps_message *message);
int ps_on_copied(struct ps_server *server);
int ps_report_state(struct ps_server *server);

/* Show the observer an order that was carried out, or a recovery. */
static inline void ps_observe(const struct ps_server *server, bool recovered)
{
    const struct group_observer *observer = server->group->observer;
    if (observer && observer->served)
        observer->served(observer->user, server, recovered);
}

/* ps_recovery.c: does a recovered driver wait for pushes that its workers send again? */
bool ps_lacks_pushes(const struct ps_server *server);

/* ps_order.c: an order of the clock has arrived. ERR_PROTOCOL */
int ps_on_order(struct ps_server *server, const struct ps_message *message);

/* ps_order.c, of the clock: decide ready pushes; send OK to the workers that may continue. */
int ps_decide(struct ps_server *server);
int ps_send_oks(struct ps_server *server, const struct ps_decision *decision, int64_t now);

#endif
