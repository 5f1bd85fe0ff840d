/* Parameter servers on workers (ps and downpour with `servers` or `colocated`), as a timeline of
 * all messages: a server's copies wait behind the pushes that its node sends the same way. Part of
 * plan/round. */
#ifndef PL_PLAN_WORKER_SERVERS_H
#define PL_PLAN_WORKER_SERVERS_H

#include "plan/round.h"

/* Fill in the pace of each worker and its bytes. ERR_NOMEM */
int worker_servers_predict(const struct round_config *config, const struct round_cluster *cluster,
                           const struct round_model *model, struct round_node *node);

#endif
