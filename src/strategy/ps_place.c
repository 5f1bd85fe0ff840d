#include "strategy/ps_place.h"

#include "base/fault.h"

struct ps_place ps_place_of(const struct group *group, uint32_t servers, bool colocated)
{
    const struct view *first = group_first_view(group);
    PL_ASSERT(servers <= PS_SHARDS_MAX && (!colocated || first->count <= PS_SHARDS_MAX));
    return (struct ps_place){
        .shards = colocated ? first->count : servers,
        .on_workers = colocated || servers > 1,
        .first = first,
        .now = first,
    };
}

uint32_t ps_place_host(const struct ps_place *place, size_t shard)
{
    if (!place->on_workers)
        return WORLD_DRIVER;
    for (size_t i = 0; i < place->first->count; i++) {
        uint32_t node = place->first->node[(shard + i) % place->first->count];
        if (view_rank(place->now, node) >= 0)
            return node;
    }
    return WORLD_ANY;
}
