/* Stages: the lanes of a node take turns in them, as in a pipeline. A split exchange (exchange.h)
 * is reduced, prepared and broadcast; while one lane's vector is in a stage, the next lane's is in
 * the stage before. Turns follow the order of ticks: tick t is exchange t/L + 1 of lane t mod L,
 * for L lanes that began together. So all nodes do the same in the same order without messages, and
 * no two nodes wait for each other. */
#ifndef PL_COLL_STAGES_H
#define PL_COLL_STAGES_H

#include "group/roster.h"
#include "world/world.h"

#include <stdatomic.h>

enum stage { STAGE_REDUCE, STAGE_PREPARE, STAGE_BROADCAST, STAGES };

struct stages {
    struct world *world;
    uint32_t signal; /* of lane 0; each lane has one, raised when it may enter its next stage */
    uint32_t lanes;
    /* 3: a lane in each stage. 2: preparing belongs to reducing. 1: one lane at a time. */
    uint32_t phases;
    _Atomic uint64_t
        at[ROSTER_LANES_MAX]; /* by lane: its tick, and the stages that it has passed */
};

/* All lanes have completed `completed` exchanges. Signals are `signal` to `signal` + lanes - 1. */
void stages_init(struct stages *s, struct world *world, uint32_t signal, uint32_t lanes,
                 uint32_t phases, uint64_t completed);

/* The tick of a lane's next exchange, or of the one under way. */
uint64_t stages_tick(const struct stages *s, uint32_t lane);

/* Is it this lane's turn to enter? It stays so until the lane passes. */
bool stages_clear(const struct stages *s, uint32_t lane, enum stage stage);

/* The lane has completed `completed` exchanges and has passed `passed` stages of the next one; 0
 * when an attempt starts again. */
void stages_set(struct stages *s, uint32_t lane, uint64_t completed, uint32_t passed);

#endif
