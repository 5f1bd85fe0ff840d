#include "strategy/ps_place.h"

#include "base/fault.h"

#include <string.h>

_Static_assert((int)MEMBER_WORDS <= (int)ADMISSION_WORDS, "a sponsor can tell who began");

static struct members first_of(const struct group *group, const struct admission *told)
{
    struct members out = {{0}};
    const struct view *view = group_first_view(group);
    if (told) {
        memcpy(out.word, told->word, sizeof out.word);
        return out;
    }
    for (size_t i = 0; i < view->count; i++)
        members_add(&out, view->node[i]);
    return out;
}

struct ps_place ps_place_of(const struct group *group, uint32_t servers, bool colocated,
                            const struct admission *told)
{
    struct ps_place place = {
        .on_workers = colocated || servers > 1,
        .first = first_of(group, told),
        .now = told ? group_view(group) : group_first_view(group),
    };
    place.shards = colocated ? members_count(&place.first) : servers;
    PL_ASSERT(place.shards > 0 && place.shards <= PS_SHARDS_MAX);
    return place;
}

size_t ps_place_tell(const struct ps_place *place, uint64_t word[ADMISSION_WORDS])
{
    memcpy(word, place->first.word, sizeof place->first.word);
    return MEMBER_WORDS;
}

/* The first of `set` from the one of that rank on, round, that is in the view; WORLD_ANY: none. */
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

/* A shard moves when its server is gone, and only then: who comes has a higher number than all. */
uint32_t ps_place_host(const struct ps_place *place, size_t shard)
{
    const struct view *now = place->now;
    if (!place->on_workers)
        return WORLD_DRIVER;
    uint32_t node = next_alive(&place->first, shard % members_count(&place->first), now);
    return node != WORLD_ANY || now->count == 0 ? node : now->node[0];
}
