/* Stages: a node's lanes go through them one behind another, as through turnstiles. A split
 * exchange (exchange.h) is reduced, prepared and broadcast; while one lane's vector is in one of
 * these stages the next lane's is in the one before.
 *
 * Turns are taken in the order of ticks: tick t is exchange t/L + 1 of lane t mod L, of L lanes
 * that began together. So all nodes do the same in the same order, and none waits for another that
 * waits for it, though nobody tells anybody when. */
#ifndef PL_COLL_STAGES_H
#define PL_COLL_STAGES_H

#include "group/roster.h"
#include "world/world.h"

#include <stdatomic.h>

enum stage { STAGE_REDUCE, STAGE_PREPARE, STAGE_BROADCAST, STAGES };

struct stages {
    struct world *world;
    uint32_t signal; /* raised when a turn may have come */
    uint32_t lanes;
    /* 3: a lane in each stage. 2: preparing belongs to reducing. 1: one lane at a time. */
    uint32_t phases;
    _Atomic uint64_t at[ROSTER_LANES_MAX]; /* by lane: its tick, and the stages behind it */
};

/* All lanes have completed so many exchanges. */
void stages_init(struct stages *s, struct world *world, uint32_t signal, uint32_t lanes,
                 uint32_t phases, uint64_t completed);

/* The tick of a lane's next exchange, or of the one under way. */
uint64_t stages_tick(const struct stages *s, uint32_t lane);

/* Is it this lane's turn to enter? It stays so until the lane passes. */
bool stages_clear(const struct stages *s, uint32_t lane, enum stage stage);

/* The lane has completed so many exchanges and, of the next one, has so many stages behind it: none
 * when it is to be done once more. */
void stages_set(struct stages *s, uint32_t lane, uint64_t completed, uint32_t passed);

#endif
