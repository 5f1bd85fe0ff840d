/* The seam (D2): everything a node may ask of its surroundings. Two implementations, src/real and
 * src/sim, pass one conformance suite; what is built on it does not know in which world it runs. */
#ifndef PL_WORLD_WORLD_H
#define PL_WORLD_WORLD_H

#include "base/status.h"

#include <stdint.h>

struct world;

/* What a piece of computing costs, in seconds of a node with speed 1. */
struct cost {
    double seconds;
};

struct world_ops {
    /* Nanoseconds since some start; only differences mean anything. */
    int64_t (*now)(struct world *w);
    /* Let the time pass that the work takes on this node. real: returns at once, the work itself is
     * what takes time. */
    int (*work)(struct world *w, const struct cost *cost);
};

struct world {
    const struct world_ops *ops;
};

static inline int64_t world_now(struct world *w)
{
    return w->ops->now(w);
}

static inline int world_work(struct world *w, const struct cost *cost)
{
    return w->ops->work(w, cost);
}

#define WORLD_SECOND INT64_C(1000000000)

static inline double world_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

#endif
