/* Servers after a change of the view. If a shard has moved, or the driver has recovered, all shards
 * take the newest state that a worker has: PROTOCOL.md has the steps, 1 to 4. */
#ifndef PL_STRATEGY_PS_RECOVERY_H
#define PL_STRATEGY_PS_RECOVERY_H

#include "strategy/ps_order.h"

/* Step 1 of this view. */
int ps_take_stock(struct ps_server *server);

/* A message of this view has arrived, which is consumed; then a state. */
int ps_on_stock(struct ps_server *server, struct message *m, const struct ps_message *message);
int ps_on_given(struct ps_server *server);

/* Does a clock that has recovered wait for pushes that its workers send again? */
bool ps_lacks_pushes(const struct ps_server *server);

#endif
