/* Workers of parameter servers, each at its own pace (ps, downpour, and easgd with mode: async), as
 * a timeline of all messages. The server is the driver, or several are on workers: then a copy
 * waits behind the pushes that its node sends the same way. Part of plan/round. */
#ifndef PL_PLAN_SERVER_ROUND_H
#define PL_PLAN_SERVER_ROUND_H

#include "plan/round.h"

/* Fill in the pace of each worker and its bytes. ERR_NOMEM */
int server_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_node *node);

#endif
