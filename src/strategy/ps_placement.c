#include "strategy/ps_placement.h"

#include "base/fault.h"

#include <string.h>

_Static_assert((int)MEMBER_WORDS <= (int)JOIN_STATE_WORDS, "a donor knows the first members");

static struct members first_of(const struct group *group, const struct join_state *join)
{
    struct members out = {{0}};
    const struct view *view = group_first_view(group);
    if (join) {
        memcpy(out.word, join->word, sizeof out.word);
        return out;
    }
    return view_members(view);
}

struct ps_placement ps_placement_of(const struct group *group, uint32_t servers, bool colocated,
                                    const struct join_state *join)
{
    struct ps_placement placement = {
        .on_workers = colocated || servers > 1,
        .first = first_of(group, join),
        .now = join ? group_view(group) : group_first_view(group),
    };
    placement.shards = colocated ? members_count(&placement.first) : servers;
    PL_ASSERT(placement.shards > 0 && placement.shards <= PS_SHARDS_MAX);
    return placement;
}

size_t ps_placement_export(const struct ps_placement *placement, uint64_t word[JOIN_STATE_WORDS])
{
    memcpy(word, placement->first.word, sizeof placement->first.word);
    return MEMBER_WORDS;
}

/* The first member of `set`, cyclically from that rank on, that is in the view; WORLD_ANY: none. */
static uint32_t next_alive(const struct members *set, size_t rank, const struct view *now)
{
    uint32_t least = WORLD_ANY;
    for (size_t i = 0; i < now->count; i++) {
        uint32_t node = now->node[i];
        if (!members_has(set, node))
            continue;
        if (members_rank(set, node) >= rank)
            return node;
        if (least == WORLD_ANY)
            least = node;
    }
    return least;
}

/* A shard moves only when its server is lost: a joiner has a higher number than all members. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard)
{
    const struct view *now = placement->now;
    if (!placement->on_workers)
        return WORLD_DRIVER;
    uint32_t node = next_alive(&placement->first, shard % members_count(&placement->first), now);
    return node != WORLD_ANY || now->count == 0 ? node : now->node[0];
}
