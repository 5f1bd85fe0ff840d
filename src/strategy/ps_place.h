/* Where a parameter server's shards are: which node serves what. */
#ifndef PL_STRATEGY_PS_PLACE_H
#define PL_STRATEGY_PS_PLACE_H

#include "group/group.h"

/* Where a model is served: shard i on the run's ith worker, and when that is gone on the next that
 * is not; or one, on the driver. */
struct ps_place {
    size_t shards;
    bool on_workers;
    const struct view *first, *now; /* valid until the group's end */
};

enum { PS_SHARDS_MAX = 250 }; /* each has a lane of parcels; jobs with more are refused */

/* The node that serves a shard; WORLD_ANY: nobody is left. */
uint32_t ps_place_host(const struct ps_place *place, size_t shard);

/* Where the job wants the model served: on one driver, or on `servers` workers, or all. */
struct ps_place ps_place_of(const struct group *group, uint32_t servers, bool colocated);

#endif
