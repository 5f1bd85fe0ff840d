/* The cycle in which `mpca` and `pace` exchange each shard once, while training waits for nothing.
 * Part of plan/round. */
#ifndef PL_PLAN_PHASED_ROUND_H
#define PL_PLAN_PHASED_ROUND_H

#include "plan/round.h"

/* cost->step is known. At most COST_TIMELINE_RANKS_MAX ranks. ERR_NOMEM */
int phased_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node);

#endif
