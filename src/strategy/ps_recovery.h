/* Recovery of a parameter server from the loss of a worker that served a shard, or of the driver:
 * PROTOCOL.md has the steps, 1 to 4. */
#ifndef PL_STRATEGY_PS_RECOVERY_H
#define PL_STRATEGY_PS_RECOVERY_H

#include "strategy/ps_order.h"

/* Step 1 of this view, or step 2 for a server that has weights. */
int ps_take_stock(struct ps_server *server);

/* A message of the recovery, of this view, has arrived, which is consumed; then a copy. */
int ps_on_stock(struct ps_server *server, struct message *m, const struct ps_message *message);
int ps_on_copied(struct ps_server *server);

/* Report this shard's last order to the clock. */
int ps_report_state(struct ps_server *server);

/* Does a recovered driver wait for pushes that its workers send again? */
bool ps_lacks_pushes(const struct ps_server *server);

#endif
