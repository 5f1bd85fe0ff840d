/* One turn of a worker's side of the parameter servers: it handles a message of a server, a
 * transfer that has ended, or a new view. ps_client.c waits by turns. */
#ifndef PL_STRATEGY_PS_CLIENT_TURN_H
#define PL_STRATEGY_PS_CLIENT_TURN_H

#include "strategy/ps_client.h"

/* Wait once and handle one event, if `holds` is still true (NULL: always). While data moves,
 * `patience` is the time for the next piece. */
int ps_take_turn(struct ps_client *c, bool (*holds)(const struct ps_client *), int64_t patience);

/* Begin to fetch the model, after all pushes of this worker and the newest OK. */
int ps_request_copies(struct ps_client *c);

/* Is the whole model here, and none of it on its way? */
bool ps_holds_all(const struct ps_client *c);

/* Ask the next worker, after `successor`, to fetch a state with this worker's pushes; without
 * another one `successor` becomes WORLD_ANY. */
int ps_ask_successor(struct ps_client *c);

/* Send the push `sending`. */
void ps_send_push(struct ps_client *c);

/* Tell the clock that this worker's loop has ended. */
int ps_report_leave(struct ps_client *c);

/* Show the observer this client. */
void ps_observe_client(const struct ps_client *c);

/* Start a shard's server on this node, at the beginning or because it has moved here. ERR_NOMEM */
int ps_client_serve(struct ps_client *c, size_t shard, bool moved);

#endif
