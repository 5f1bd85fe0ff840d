/* Where a parameter server's shards are: which node serves what. */
#ifndef PL_STRATEGY_PS_PLACEMENT_H
#define PL_STRATEGY_PS_PLACEMENT_H

#include "strategy/strategy.h"

/* Where a model is served: shard i on the ith of the workers that began the run, and when that is
 * continued the next that is not; when all of those are, on the first of who have come since. Or
 * one shard, on the driver. */
struct ps_placement {
    size_t shards;
    bool on_workers;
    struct members first;   /* who began the run */
    const struct view *now; /* valid until the group's end */
};

enum { PS_SHARDS_MAX = 250 }; /* each has a lane of transfers; jobs with more are refused */

/* The node that serves a shard; WORLD_ANY: nobody is left. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard);

/* Where the job wants the model served: on one driver, or on `servers` workers, or all that begin
 * the run. `told`: what a joiner has of ps_placement_export; NULL: this node began the run
 * itself. */
struct ps_placement ps_placement_of(const struct group *group, uint32_t servers, bool colocated,
                                    const struct join_state *join);

/* The part of the join state that a donor sends a joiner; returns the number of words. */
size_t ps_placement_export(const struct ps_placement *placement, uint64_t word[JOIN_STATE_WORDS]);

#endif
