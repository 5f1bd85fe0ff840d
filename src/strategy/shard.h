/* A shard of a parameter server: a range of the joint model, and how what workers send moves it.
 * Arithmetic alone: who sends, when, and what is applied together is ps_server.h's affair.
 *
 * The joint model is one vector here, x̃ and behind it s̃, the state of layers. It is cut anywhere;
 * a shard may hold some of either, or of one alone. Optimizers work element by element, so shards
 * together do to the bit what one alone would. */
#ifndef PL_STRATEGY_SHARD_H
#define PL_STRATEGY_SHARD_H

#include "optim/optim.h"

enum shard_rule {
    SHARD_GRADIENTS, /* x̃ by the solver's optimizer, with the mean of gradients (`ps`) */
    SHARD_UPDATES,   /* x̃ ← x̃ + a (`downpour`) */
    SHARD_ADAGRAD,   /* h ← h + a², x̃ ← x̃ + η·a / (√h + delta) (ours) */
};

struct shard_config {
    enum shard_rule rule;
    bool sum; /* SHARD_GRADIENTS: gradients that are applied together are summed, not averaged */
    const Caffe__SolverParameter *solver;
};

struct shard {
    struct shard_config config;
    struct range range;    /* of the joint model */
    struct vec both;       /* that range of it: the part of x̃, then the part of s̃ */
    struct vec x, s;       /* the two parts, in `both` */
    struct segments table; /* of x */
    struct optim optim;    /* state of x */
    struct vec scratch;    /* as long as x */
    uint64_t applied;      /* pushes */
};

/* A worker's push, as long as the shard's range: a gradient or an update, then its s. */
struct push {
    const struct vec *vec;
    uint64_t samples; /* records that went into it */
};

/* Can a part of x be updated without the rest? ERR_UNSUPPORTED by name */
int shard_check(const struct optim *optim, struct err *err);

/* Memory for the shard from the arena; x̃ and s̃ begin as given. ERR_NOMEM, or what optim_init says
 */
int shard_init(struct shard *shard, const struct shard_config *config, const struct segments *table,
               const struct vec *x, const struct vec *s, struct range range, struct arena *arena,
               struct err *err);

/* Let in what has come together, in that order, at clock value t of the solver's schedule. */
void shard_apply(struct shard *shard, const struct push *push, size_t count, double t);

/* s̃ ← mean of these workers' s, weighted by their samples: the last of each. */
void shard_average(struct shard *shard, const struct push *last, size_t count);

#endif
