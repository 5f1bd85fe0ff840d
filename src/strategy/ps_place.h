/* Where a parameter server's shards are: which node serves what. */
#ifndef PL_STRATEGY_PS_PLACE_H
#define PL_STRATEGY_PS_PLACE_H

#include "strategy/strategy.h"

/* Where a model is served: shard i on the ith of the workers that began the run, and when that is
 * gone on the next that is not; when all of those are, on the first of who have come since. Or one
 * shard, on the driver. */
struct ps_place {
    size_t shards;
    bool on_workers;
    struct members first;   /* who began the run */
    const struct view *now; /* valid until the group's end */
};

enum { PS_SHARDS_MAX = 250 }; /* each has a lane of parcels; jobs with more are refused */

/* The node that serves a shard; WORLD_ANY: nobody is left. */
uint32_t ps_place_host(const struct ps_place *place, size_t shard);

/* Where the job wants the model served: on one driver, or on `servers` workers, or all that begin
 * the run. `told`: what a newcomer has of ps_place_tell; NULL: this node began the run itself. */
struct ps_place ps_place_of(const struct group *group, uint32_t servers, bool colocated,
                            const struct admission *told);

/* What a sponsor tells a newcomer of it; how many words. */
size_t ps_place_tell(const struct ps_place *place, uint64_t word[ADMISSION_WORDS]);

#endif
