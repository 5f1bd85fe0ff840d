/* The buckets of `allreduce` where the model is in slices: parts of a step's gradient, the last
 * layers' first, which leave as soon as backward has finished them. Of layers that slices share out
 * the peers add them up; of data-parallel layers the mates do before. So the replicas' exchange
 * overlaps with computation.
 *
 * Whether a replica counts is known at the end of the step alone. Buckets are sums of all that
 * train: where one of them is found not to count, the sums are of no use, and all make others.
 * Those of the mates stay: they are the gradient. */
#ifndef PL_STRATEGY_SLICE_BUCKETS_H
#define PL_STRATEGY_SLICE_BUCKETS_H

#include "strategy/slice_group.h"

/* Of data-parallel layers, and of all. */
enum { SLICE_PARALLEL_BUCKETS_MAX = 8, SLICE_BUCKETS_MAX = 24 };
_Static_assert((int)SLICE_BUCKETS_MAX ==
                   (int)SLICE_PARALLEL_BUCKETS_MAX + (int)ALLREDUCE_BUCKETS_MAX,
               "the others are as many as of a whole model");

struct slice_bucket {
    struct range range; /* of dx */
    bool parallel;      /* of data-parallel layers */
};

/* How dx of so many floats is cut, from its end to its beginning; dx begins with the data-parallel
 * layers' part. All slices have as many buckets, and equal ones of data-parallel layers. */
struct slice_cut {
    size_t floats, parallel;
    size_t whole; /* floats of the whole model */
    size_t slices;
    bool replicas;
};

/* Returns the number of buckets; 0: the gradient is exchanged at the end of the step. */
size_t slice_buckets_cut(const Paceline__Job *job, const struct slice_cut *cut,
                         struct slice_bucket out[SLICE_BUCKETS_MAX]);

struct slice_buckets {
    struct slice_group *g;
    struct bucket_sum *at;
    size_t count, begun;
    bool adds;  /* this member has a gradient */
    float *sum; /* ← Σ over the peers of dx; NULL: there are no replicas */
    struct coll_plan rest;
    size_t ranks, rank; /* of the peers for which there are plans */
};

/* Tasks and memory, and the learner's `finished`, where a gradient has buckets: count > 0. `sum`
 * (borrowed) has room for dx; NULL: there are no replicas. ERR_NOMEM. Zeroed: nothing to close. */
int slice_buckets_open(struct slice_buckets *b, struct slice_group *g, float *sum);
void slice_buckets_close(struct slice_buckets *b);

/* A step begins in the group's view; with `adds` this member has a gradient, and otherwise zeros
 * are added at once. ERR_VIEW, ERR_NOMEM */
int slice_buckets_begin(struct slice_buckets *b, bool adds);

/* The step is over: begin the sums that waited for a turn of a hand-over. ERR_VIEW */
int slice_buckets_begin_rest(struct slice_buckets *b);

/* Wait for all sums that have begun. ERR_VIEW, ERR_CANCELLED, ERR_PROTOCOL */
int slice_buckets_end(struct slice_buckets *b);

/* x (n floats, the same in all calls) ← Σ over the peers. Behind slice_buckets_begin. */
int slice_buckets_add_rest(struct slice_buckets *b, float *x, size_t n);

#endif
