/* Rules for rounds of replicas whose model is in slices. At the end of a round the replicas add up
 * the parts that each has of a slice, and that slice takes in their mean m:
 *
 *   allreduce           gradients after a step:    the job's optimizer takes m
 *   sync                models after τ steps:      x ← m
 *   diloco              the same:                  the outer optimizer takes x̃ − m (mean_rules.h)
 *   easgd (mode: sync)  the same:                  Eq. 2 and Eq. 8
 *
 * All of these go element by element, so that a slice needs no vector of another one. */
#ifndef PL_STRATEGY_SLICED_RULE_H
#define PL_STRATEGY_SLICED_RULE_H

#include "strategy/strategy.h"

enum sliced_kind { SLICED_ALLREDUCE, SLICED_SYNC, SLICED_DILOCO, SLICED_EASGD };

struct sliced_rule {
    enum sliced_kind kind;
    uint64_t tau;    /* steps of a round */
    bool resets;     /* the optimizer's state, where models are replaced */
    struct vec own;  /* diloco: v, like x; easgd: x̃ and then s̃; n = 0: no such vector */
    struct vec x, s; /* easgd: its two parts */
};

/* A round whose sums are committed. */
struct sliced_round {
    struct vec x, s;    /* the mean of the replicas; n = 0: there is one, and its own is the mean */
    struct vec *before; /* the learner's x, s before the round; its contents are used up */
    size_t replicas, contributors; /* that took part, and that have a part in the mean */
    uint64_t steps;
    bool damaged; /* this replica has no part, since its model is not finite */
};

/* Memory from the member's arena; replaces m->model where the global model is another than the
 * learner's. ERR_NOMEM */
int sliced_rule_open(struct sliced_rule *r, struct member *m);

bool sliced_rule_sums_models(const struct sliced_rule *r);

/* The vector that has the same bits on all replicas between rounds. */
const struct vec *sliced_rule_common(const struct sliced_rule *r, const struct learner *l);

/* Take a round into the model, before m->progress counts it. */
void sliced_rule_apply(struct sliced_rule *r, struct member *m, struct sliced_round *round);

/* Of a strategy whose rounds are `tau` steps of slices: its traits, unless it is given one of these
 * fields, which are not for slices. ERR_UNSUPPORTED, with a message */
struct sliced_refusal {
    const char *field;
    bool given;
};
int sliced_configure(const Paceline__Job *job, uint32_t tau, const struct sliced_refusal *refused,
                     size_t count, struct strategy_traits *traits, struct err *err);

#endif
