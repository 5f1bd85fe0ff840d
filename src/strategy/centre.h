/* The centre of elastic averaging: the driver's part of `easgd` where workers come when they like.
 * A worker asks by a parcel's note alone, which is refused, since nothing comes with it; the answer
 * is x̃ and s̃ as they are. What a worker gives is added whole, or, if it dies on the way or what
 * it gives is not finite, not at all. Memory: one vector a worker, made when it first comes. */
#ifndef PL_STRATEGY_CENTRE_H
#define PL_STRATEGY_CENTRE_H

#include "strategy/strategy.h"

/* Lanes of parcels: of the centre and of workers that visit it; of what workers give. */
enum centre_lane { CENTRE_LANE_VISIT, CENTRE_LANE_GIVE };

/* What travels is x, then s: the two parts of such a vector, n floats being x. */
static inline struct vec centre_x(const struct vec *both, size_t n)
{
    return (struct vec){both->at, n};
}

static inline struct vec centre_s(const struct vec *both, size_t n)
{
    return (struct vec){both->at + n, both->n - n};
}

/* Keep l->x and l->s as the centre until l->finish, and until all that was given is in. */
int centre_run(struct leader *l);

#endif
