/* The round of a model in slices: meetings of the slices of a replica during each step, sums of the
 * peers at its end, and the exchange of all members at the commit point. Part of plan/round. */
#ifndef PL_PLAN_SLICED_ROUND_H
#define PL_PLAN_SLICED_ROUND_H

#include "plan/round.h"

/* cost->step is the whole net's, and becomes a slice's. At most COST_TIMELINE_RANKS_MAX workers.
 * ERR_NOMEM */
int sliced_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node);

#endif
