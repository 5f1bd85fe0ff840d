#include "coll/stages.h"

#include "base/fault.h"

static uint64_t tick_of(const struct stages *s, uint32_t lane, uint64_t completed)
{
    return completed * s->lanes + lane;
}

void stages_init(struct stages *s, struct world *world, uint32_t signal, uint32_t lanes,
                 uint32_t phases, uint64_t completed)
{
    PL_ASSERT(lanes > 0 && lanes <= ROSTER_LANES_MAX && phases > 0 && phases <= STAGES);
    *s = (struct stages){.world = world, .signal = signal, .lanes = lanes, .phases = phases};
    for (uint32_t lane = 0; lane < lanes; lane++)
        atomic_store(&s->at[lane], tick_of(s, lane, completed) * STAGES);
}

uint64_t stages_tick(const struct stages *s, uint32_t lane)
{
    return atomic_load(&s->at[lane]) / STAGES;
}

/* Stages that those ahead must have passed. */
static uint32_t stages_needed(const struct stages *s, enum stage stage)
{
    if (s->phases == 1)
        return STAGES;
    return s->phases == 2 && stage == STAGE_REDUCE ? STAGE_PREPARE + 1 : stage + 1;
}

bool stages_clear(const struct stages *s, uint32_t lane, enum stage stage)
{
    uint64_t tick = stages_tick(s, lane);
    for (uint32_t q = 0; q < s->lanes; q++) {
        uint64_t at = atomic_load(&s->at[q]);
        if (at / STAGES < tick && at % STAGES < stages_needed(s, stage))
            return false;
    }
    return true;
}

/* Wake the lanes behind a tick that may enter their next stage. If another lane advances at the
 * same moment, the later of the two sees both. */
static void wake_followers(const struct stages *s, uint64_t tick)
{
    for (uint32_t q = 0; q < s->lanes; q++) {
        uint64_t at = atomic_load(&s->at[q]);
        if (at / STAGES > tick && stages_clear(s, q, (enum stage)(at % STAGES)))
            world_raise(s->world, s->signal + q);
    }
}

void stages_set(struct stages *s, uint32_t lane, uint64_t completed, uint32_t passed)
{
    PL_ASSERT(passed < STAGES);
    uint64_t at = tick_of(s, lane, completed) * STAGES + passed;
    uint64_t before = atomic_exchange(&s->at[lane], at);
    if (before != at)
        wake_followers(s, before / STAGES);
}
