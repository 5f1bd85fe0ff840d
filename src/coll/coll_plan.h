/* The contents of a plan: pieces, and the steps that each piece depends on. Private to coll_plan.c
 * and coll_run.c. */
#ifndef PL_COLL_COLL_PLAN_H
#define PL_COLL_COLL_PLAN_H

#include "coll/coll_run.h"

enum {
    PLAN_SENDS = 32, /* pieces under way at once, of all steps */
    PLAN_RECVS = 32,
    PLAN_WINDOW = 8,  /* of one step: enough to keep a link busy while a task sleeps */
    PLAN_ACTIVE = 64, /* steps considered from the first unfinished one on */
};

/* A step while it runs. */
struct flow {
    size_t pieces;
    size_t begun, done;       /* done: all before this one have ended */
    uint64_t ahead;           /* which of those after it have */
    uint32_t first_piece;     /* its number among the pieces between the two ranks */
    size_t first_need, needs; /* of plan->needs */
    bool codes_first; /* SEND: results that no step before has put into the plan's lossy code */
    bool first;       /* no step before touches its range */
    bool until_begun; /* steps that wait for a piece of it wait until it has begun, not ended */
    bool held;        /* its next piece could not begin, */
    size_t held_by;   /* because of this step, */
    size_t held_at;   /* when so many pieces of that were done with */
};

struct span {
    size_t at, len;
};

/* One piece under way. */
struct port {
    struct recv recv;
    struct send send;
    int64_t begun; /* when it was posted */
    size_t step, piece;
    struct span span;
    uint8_t *stage; /* NULL: the wire carries floats, from and into the vector itself, as it does
                       in exact steps */
};

/* How a step's floats travel. */
static inline enum codec plan_codec(const struct coll_plan *plan, size_t step)
{
    return plan->schedule.step[step].exact ? CODEC_F32 : plan->config.codec;
}

/* Piece i of a range. */
static inline struct span plan_piece(const struct coll_plan *plan, size_t at, size_t len, size_t i)
{
    size_t from = i * plan->config.chunk;
    return (struct span){at + from,
                         len - from < plan->config.chunk ? len - from : plan->config.chunk};
}

/* Pieces of a step that no other step waits for any more. */
static inline size_t plan_passed(const struct flow *flow)
{
    return flow->until_begun ? flow->begun : flow->done;
}

/* plan_clear, by all that the step needs. */
bool plan_examine(struct coll_plan *plan, size_t step);

/* May the next piece of a step begin? It may when no earlier step still uses the floats that it
 * touches. Asked after every event, and mostly the step that held it has got no further. */
static inline bool plan_clear(struct coll_plan *plan, size_t step)
{
    const struct flow *flow = &plan->flow[step];
    return !(flow->held && plan_passed(&plan->flow[flow->held_by]) == flow->held_at) &&
           plan_examine(plan, step);
}

#endif
