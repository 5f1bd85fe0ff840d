/* The inputs of the model of a round (plan/round.h) from a job and a cluster file. */
#ifndef PL_API_PLAN_ROUND_H
#define PL_API_PLAN_ROUND_H

#include "job/cluster.h"
#include "job/job.h"
#include "plan/round.h"
#include "strategy/slice_buckets.h"
#include "train/step_bench.h"

/* The strategies that there is a model for, ending with NULL. */
extern const char *const plan_modelled[];

struct plan_round {
    struct round_config config;
    struct round_bucket bucket[SLICE_BUCKETS_MAX];
    struct round_slices slices;
    double leaves[VIEW_MEMBERS_MAX]; /* of servers on workers */
    struct consistency consistency;  /* of ps, as its server has it */
};

/* The round of a finished job whose learner is known. NULL, or the reason why there is no model of
 * it, for people. `out` may be used for one prediction. */
const char *plan_round_of(const Paceline__Job *job, const struct bench_step *learner,
                          struct plan_round *out);

/* The flat vectors and the rest of the memory of a worker. */
struct round_model plan_model_of(const struct bench_step *learner);

/* The first `workers` nodes of a cluster, for a step of `seconds` on a node of speed 1. With
 * `cores` the `local` learners of the job share it, a core each, as in a simulation; else it is
 * the whole step. `memory` is the caller's, of 3 (workers + 1) numbers, and must live as long as
 * the result. / */
struct round_cluster plan_cluster_of(const Paceline__Cluster *cluster, const Paceline__Job *job,
                                     double seconds, bool cores, size_t workers, double *memory);

#endif
