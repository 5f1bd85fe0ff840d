#include "strategy/ps_state.h"

#include "base/fault.h"

#include <string.h>

enum { NUMBER = sizeof(uint64_t) / sizeof(float) }; /* floats of a number, whose bits they hold */

size_t ps_state_length(const struct ps_state_layout *layout, size_t workers)
{
    PL_ASSERT(workers <= VIEW_MEMBERS_MAX);
    return layout->model + layout->optimizer + NUMBER * workers;
}

/* The optimizer's vectors of the layout: each is as long as x̃. */
static size_t vectors_of(const struct ps_state_layout *layout, const struct shard *shard)
{
    PL_ASSERT(layout->model == shard->both.n);
    return shard->x.n > 0 ? layout->optimizer / shard->x.n : 0;
}

void ps_state_export(const struct ps_state_layout *layout, const struct shard *shard, float *at)
{
    size_t vectors = vectors_of(layout, shard);
    vec_export(&shard->both, vec_all(&shard->both), at);
    for (size_t i = 0; i < vectors; i++)
        vec_export(&shard->optim.state[i], vec_all(&shard->x), at + layout->model + i * shard->x.n);
}

void ps_state_import(const struct ps_state_layout *layout, struct shard *shard, const float *at)
{
    size_t vectors = vectors_of(layout, shard);
    vec_import(&shard->both, vec_all(&shard->both), at);
    for (size_t i = 0; i < vectors; i++)
        vec_import(&shard->optim.state[i], vec_all(&shard->x), at + layout->model + i * shard->x.n);
}

static float *place_of(const struct ps_state_layout *layout, const float *at, size_t worker)
{
    return (float *)at + ps_state_length(layout, worker);
}

void ps_state_put_push(const struct ps_state_layout *layout, float *at, size_t worker,
                       uint64_t number)
{
    memcpy(place_of(layout, at, worker), &number, sizeof number);
}

uint64_t ps_state_push(const struct ps_state_layout *layout, const float *at, size_t worker)
{
    uint64_t number;
    memcpy(&number, place_of(layout, at, worker), sizeof number);
    return number;
}
