/* Calls of collectives for tests: by name, on vectors with known values, in a scene or, for the
 * expected results, in memory. */
#ifndef PL_LIB_COLL_CALL_H
#define PL_LIB_COLL_CALL_H

#include "base/rng.h"
#include "coll/coll_run.h"
#include "rank_scene.h"

enum call_kind { ALL_REDUCE, BROADCAST, REDUCE, GATHER, ALL_GATHER, REDUCE_SCATTER };

struct call {
    enum call_kind kind;
    enum coll_algorithm algorithm; /* ALL_REDUCE */
    size_t n, root;
    const size_t *cut;
};

static int call_schedule(struct schedule *s, const struct call *call, size_t ranks, size_t me,
                         size_t chunk)
{
    size_t n = call->n, root = call->root;
    switch (call->kind) {
    case ALL_REDUCE: return schedule_allreduce(s, call->algorithm, ranks, me, n, call->cut);
    case BROADCAST: return schedule_broadcast(s, ranks, me, root, n, chunk);
    case REDUCE: return schedule_reduce(s, ranks, me, root, n, chunk);
    case GATHER: return schedule_gather(s, ranks, me, root, n, call->cut);
    case ALL_GATHER: return schedule_all_gather(s, ranks, me, n, call->cut);
    case REDUCE_SCATTER: break;
    }
    return schedule_reduce_scatter(s, ranks, me, n, call->cut);
}

/* A rank's input of the round-th call. */
static float call_value(size_t rank, size_t round, size_t i)
{
    return rng_uniform(7, rank, round << 32 | i) - 0.3f;
}

static inline int call_plan(struct coll_plan *plan, const struct call *call,
                            const struct coll_config *config, size_t ranks, size_t me)
{
    struct schedule s;
    int rc = call_schedule(&s, call, ranks, me, config->chunk);
    if (rc == OK)
        rc = coll_plan_make(plan, &s, config);
    schedule_release(&s);
    return rc;
}

static inline int call_run(struct coll *c, const struct call *call,
                           const struct coll_config *config, float *x, float *residual)
{
    struct coll_plan plan;
    int rc = call_plan(&plan, call, config, c->ranks->count, c->ranks->me);
    if (rc == OK) {
        rc = coll_run(c, &plan, x, (struct coll_owed){residual, residual});
        coll_plan_release(&plan);
    }
    return rc;
}

/* The same without a world or pieces; rank r has the values of node[r] (NULL: its own). The caller
 * releases the cluster. */
static inline void call_in_memory(struct cluster *c, const struct call *call,
                                  const struct coll_config *config, size_t ranks,
                                  const uint32_t *node, size_t round)
{
    *c = (struct cluster){.ranks = ranks, .n = call->n, .reduction = config->reduction};
    for (size_t r = 0; r < ranks; r++)
        assert_int_equal(call_schedule(&c->by[r], call, ranks, r, config->chunk), OK);
    cluster_make_room(c);
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < call->n; i++)
            c->x[r][i] = call_value(node ? node[r] : r, round, i);
    cluster_carry_out(c);
}

#endif
