/* A global model with vectors of its own, as tests of the equations want it. */
#ifndef PL_LIB_MPCA_JOINT_H
#define PL_LIB_MPCA_JOINT_H

#include "base/status.h"
#include "strategy/mpca_rules.h"

/* x̃_0 and x̃*_0 are x, which is borrowed and becomes now.x; ṽ_0 is 0. */
static inline int joint_init(struct mpca_joint *joint, const struct vec *x, struct arena *arena)
{
    joint->now.x = *x;
    if (vec_init(&joint->now.v, arena, x->n) != OK ||
        vec_init(&joint->now.star, arena, x->n) != OK ||
        vec_init(&joint->next.x, arena, x->n) != OK ||
        vec_init(&joint->next.v, arena, x->n) != OK ||
        vec_init(&joint->next.star, arena, x->n) != OK)
        return ERR_NOMEM;
    vec_copy(&joint->now.star, x, vec_all(x));
    return OK;
}

/* The exchange is committed, over the range. */
static inline void joint_commit(struct mpca_joint *joint, struct range r)
{
    vec_copy(&joint->now.x, &joint->next.x, r);
    vec_copy(&joint->now.v, &joint->next.v, r);
    vec_copy(&joint->now.star, &joint->next.star, r);
}

#endif
