/* Declarations that the files of a parameter server share: ps_server.c receives messages,
 * ps_order.c decides and applies, ps_recovery.c continues when a server is gone. */
#ifndef PL_STRATEGY_PS_SERVER_INTERNAL_H
#define PL_STRATEGY_PS_SERVER_INTERNAL_H

#include "strategy/ps_server.h"

/* ps_server.c: take in the next push of a worker (its note, taken), the one before being decided.
 */
int ps_take_push(struct ps_server *server, struct message *message);

/* ps_server.c: send their parts to those whose fetches have waited for what is there now. */
int ps_reply_all(struct ps_server *server);

/* ps_server.c: the joint model has changed. Returns the status of the driver part's hook */
int ps_changed(struct ps_server *server);

/* ps_server.c: is there a new view? Then take note of it. */
int ps_look_at_view(struct ps_server *server);

/* ps_server.c: somebody has seen the view of that number: so do we, as soon as it is here. */
int ps_see_view(struct ps_server *server, uint32_t number);

/* ps_server.c: tell the clock that a push is here. */
int ps_have(struct ps_server *server, uint32_t node);

/* ps_server.c: a note to the server of a shard. */
int ps_report_shard(struct ps_server *server, size_t shard, const struct ps_message *message);

/* ps_recovery.c: there is a new view, the one before being seen; a note about it has come in, or a
 * copy; an order has been carried out. */
int ps_take_stock(struct ps_server *server);
int ps_on_stock(struct ps_server *server, struct message *m, const struct ps_message *message);
int ps_on_copied(struct ps_server *server);
int ps_report_state(struct ps_server *server);

/* ps_order.c: an order of the clock has come in. ERR_PROTOCOL */
int ps_on_order(struct ps_server *server, const struct ps_message *message);

/* ps_order.c, of the clock: decide what is ready; let those continue whom it says. */
int ps_decide(struct ps_server *server);
int ps_send_oks(struct ps_server *server, const struct ps_decision *decision, int64_t now);

#endif
