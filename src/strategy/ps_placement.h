/* Which node serves each shard of a parameter server. */
#ifndef PL_STRATEGY_PS_PLACEMENT_H
#define PL_STRATEGY_PS_PLACEMENT_H

#include "strategy/strategy.h"

/* Shard i is on the i-th of the workers that began the run; if that one is lost, on the next
 * remaining one; if all of these are lost, on the first joiner. Or one shard is on the driver. */
struct ps_placement {
    size_t shards;
    bool on_workers;
    struct members first;   /* the workers that began the run */
    const struct view *now; /* valid until the group's end */
};

enum { PS_SHARDS_MAX = 250 }; /* each has a lane of transfers; jobs with more are refused */

/* The node that serves a shard; WORLD_ANY: no worker is left. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard);

/* The job's placement: on the driver, on `servers` workers, or on all that begin the run. `join`: a
 * joiner's words of ps_placement_export; NULL: this node began the run itself. */
struct ps_placement ps_placement_of(const struct group *group, uint32_t servers, bool colocated,
                                    const struct join_state *join);

/* The part of the join state that a donor sends a joiner; returns the number of words. */
size_t ps_placement_export(const struct ps_placement *placement, uint64_t word[JOIN_STATE_WORDS]);

#endif
