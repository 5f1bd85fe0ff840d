/* A shard of a parameter server: a range of the global model, and the rules that apply pushes to
 * it. Arithmetic alone: ps_server.h decides which pushes are applied together, and when.
 *
 * The global model is one vector here: x̃, then s̃, the state of layers. It is cut anywhere; a
 * shard may hold parts of both, or of one. Optimizers are element-wise, so several shards give the
 * same bits as one. */
#ifndef PL_STRATEGY_SHARD_H
#define PL_STRATEGY_SHARD_H

#include "optim/optim.h"

enum shard_rule {
    SHARD_GRADIENTS, /* x̃ by the solver's optimizer, with the mean of gradients (`ps`) */
    SHARD_UPDATES,   /* x̃ ← x̃ + a (`downpour`) */
    SHARD_ADAGRAD,   /* h ← h + a², x̃ ← x̃ + η·a / (√h + delta) (ours) */
    SHARD_ELASTIC,   /* x̃ ← x̃ + d, and s̃ ← s̃ + d as well (`easgd`, Eq. 3) */
};

struct shard_config {
    enum shard_rule rule;
    bool sum; /* SHARD_GRADIENTS: gradients that are applied together are summed, not averaged */
    const Caffe__SolverParameter *solver;
};

struct shard {
    struct shard_config config;
    struct range range;    /* of the global model */
    struct vec both;       /* the range's values: the part of x̃, then the part of s̃ */
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

/* Can the solver's rule update a part of x without the rest, as several servers do? ERR_UNSUPPORTED
 * by name, or an error of optim_init */
int shard_check_solver(const Caffe__SolverParameter *solver, struct err *err);

/* The vectors that the rule keeps from one push to the next, each as long as x̃; `optim` is of the
 * configuration's solver. */
size_t shard_states(const struct shard_config *config, const struct optim *optim);

/* Memory for the shard from the arena; x̃ and s̃ are the initial values. ERR_NOMEM, or an error of
 * optim_init */
int shard_init(struct shard *shard, const struct shard_config *config, const struct segments *table,
               const struct vec *x, const struct vec *s, struct range range, struct arena *arena,
               struct err *err);

/* Apply pushes that are decided together, in that order, at clock value t of the solver's
 * schedule. */
void shard_apply(struct shard *shard, const struct push *push, size_t count, double t);

/* s̃ ← mean of these workers' s, weighted by their samples: the last of each. The elastic rule has
 * moved s̃ already. */
void shard_average(struct shard *shard, const struct push *last, size_t count);

/* A state of a shard, as one vector:
 *
 *     x̃, s̃ | the optimizer's vectors | for each worker, the number of its newest decided push
 *
 * Workers keep the states of all shards behind one order, for servers that are lost (PROTOCOL.md).
 * The header of the transfer has the scalars, which are those of all shards:
 *
 *     version   orders that are carried out
 *     ns        a hash over them
 *     samples   their sample offset
 *     t         the rate's clock
 *     number    updates behind the optimizer's vectors
 *     node      how many workers' numbers follow, from worker 0 on
 *
 * Costs: the vectors of the optimizer once more in every copy, two floats for each worker id. */
struct shard_layout {
    size_t model;      /* floats of x̃ and s̃, */
    size_t x, vectors; /* of x̃ alone, and how many vectors of the optimizer are as long as that */
};

/* The layout of a range of the global model, whose x̃ has n_x floats. */
struct shard_layout shard_layout_of(const struct range *range, size_t n_x, size_t vectors);

/* Floats of a state with the numbers of `workers`, at most VIEW_MEMBERS_MAX. */
size_t shard_state_length(const struct shard_layout *layout, size_t workers);

/* A state in parts: vectors in which the shard begins at `from`, those of a server, at 0, or of the
 * global model; and the numbers, by worker. */
struct shard_state {
    const struct vec *both, *vector;
    size_t from;
    uint64_t *push;
    size_t workers;
};

/* Write the parts as one vector to `at`; read them from there. */
void shard_export_state(const struct shard_layout *layout, const struct shard_state *state,
                        float *at);
void shard_import_state(const struct shard_layout *layout, const struct shard_state *state,
                        const float *at);

#endif
