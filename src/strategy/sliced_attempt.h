/* A worker where the model is in slices: the state that its loop (sliced_worker.c) and an attempt
 * at a round (sliced_attempt.c) share, and the functions of a round. */
#ifndef PL_STRATEGY_SLICED_ATTEMPT_H
#define PL_STRATEGY_SLICED_ATTEMPT_H

#include "strategy/slice_buckets.h"
#include "strategy/sliced_rule.h"

struct sliced {
    struct slice_group group; /* first: the learner's meetings get it */
    struct sliced_rule rule;
    bool models;      /* peers average models, not gradients */
    uint64_t applied; /* rounds whose results the learner has */
    uint64_t view;    /* of the streams' states */
    bool joiner;      /* has no share of the round under way */
    bool ended, left;
    size_t sharing, rank; /* replicas that share the samples of a round; of this one among them */
    /* The round under way. */
    uint64_t steps, samples;
    struct exchange_meta mine;
    uint64_t hash;                /* of x before it; 0: replicas are not compared */
    float *sum;                   /* x or dx, then s, then the weight; NULL without replicas */
    struct slice_buckets buckets; /* of dx; they fill `sum` */
    /* The learner's state before it, as far as a repetition needs that. */
    bool kept;
    struct vec before, before_state[OPTIM_STATE_MAX];
    uint64_t before_updates, before_steps;
    /* Models that are shown to the driver. */
    uint64_t shown;
    uint32_t due;
};

/* Vectors and tasks of rounds, from the member's arena. The group and the rule are open.
 * ERR_NOMEM */
int sliced_open_rounds(struct sliced *s);
void sliced_close_rounds(struct sliced *s);

/* The member whose model the driver gets, as all know it. */
uint32_t sliced_first(const struct member *m);

/* Find the replicas that share the samples of a round, as the progress and the view have them. */
void sliced_count_sharing(struct sliced *s);

/* This replica's part of the records of step t of a round, of which a step has so many. */
struct stretch sliced_share(const struct sliced *s, uint64_t t, uint64_t samples);

/* Keep the state behind the last commit point, or return to it: before each attempt.
 * ERR_CANCELLED */
int sliced_keep(struct sliced *s);

/* One attempt at the round behind the progress, up to its commit point. ERR_VIEW: the view has
 * changed; the errors of a step */
int sliced_attempt(struct sliced *s);

/* The learner takes the result of a round that is committed, before the progress counts it. */
void sliced_update(struct sliced *s, const struct exchange_meta *meta);

#endif
