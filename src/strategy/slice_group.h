/* The slices of a model (SparkDML §2.2, tensor/model_slice.h): all members of the view, each of
 * which has one. In a step they exchange blobs layer by layer (nn/net.h): forward they gather the
 * outputs that each has computed, backward they add up the gradients. Gathers and sums run in the
 * view as it is and have no commit rule: without one of its slices a model cannot continue. */
#ifndef PL_STRATEGY_SLICE_GROUP_H
#define PL_STRATEGY_SLICE_GROUP_H

#include "strategy/strategy.h"

struct slice_group {
    struct member *m;
    struct model_slice slice; /* of this member */
    struct coll_plan *plan;   /* one a point of the net, made at its first use */
    size_t plans;
    struct coll_plan model; /* of a vector of the whole model */
    size_t *cut;            /* where the parts of the slices begin in `parts`, and the last ends */
    float *parts;           /* room for the vector of which each slice has a part */
    size_t room;
    uint64_t meetings; /* numbers the group's messages */
    uint64_t bytes;    /* sent and received since slice_group_take_bytes */
};

/* Memory from the member's arena; m->model becomes a whole one, whose values slice_group_collect
 * sets. ERR_NOMEM. slice_group_close releases the rest; zeroed: nothing to do. */
int slice_group_open(struct slice_group *g, struct member *m);
void slice_group_close(struct slice_group *g);

/* Exchange a blob with the other slices: learner->meet. Returns when point->values has the result,
 * whose bits are the same on all slices. ERR_VIEW: a slice is lost, and the run has not ended in
 * time; ERR_DRIVER: it has; ERR_PROTOCOL, ERR_CANCELLED, ERR_NOMEM */
int slice_group_meet(void *slice_group, const struct net_point *point);

/* m->model ← the whole model, on every slice. All call it at the same commit point. It takes the
 * time in which (F − 1) / F of the model and of the optimizer's state arrives. The same errors. */
int slice_group_collect(struct slice_group *g);

/* A slice is lost, as a member that met it has noticed in another way: wait for the end of the run.
 * ERR_DRIVER, ERR_CANCELLED; ERR_VIEW: it did not end in time */
int slice_group_await_end(struct slice_group *g);

uint64_t slice_group_take_bytes(struct slice_group *g);

/* The loop of a worker that has a slice, of `allreduce`: m->own is its group. */
int sliced_worker(struct member *m);
void sliced_close(struct member *m);

#endif
