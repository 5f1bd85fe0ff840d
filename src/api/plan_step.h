/* The time of a step at each batch that a plan meets: stated by the cluster file, measured on this
 * machine, or both. */
#ifndef PL_API_PLAN_STEP_H
#define PL_API_PLAN_STEP_H

#include "api/api.h"
#include "paceline/plan.h"
#include "train/step_bench.h"

/* A learner at a batch, whole or a slice, and the time of the whole net's step on this machine; 0:
 * not measured. */
struct planned_batch {
    uint32_t batch, slices;
    double seconds;
    struct bench_step learner;
};

struct plan_steps {
    pl_engine *engine;
    const pl_job *given;
    const Paceline__Cluster *cluster;
    struct arena *arena;         /* of the learners' descriptions */
    uint32_t job_batch;          /* at which the cluster file states a step */
    struct planned_batch *batch; /* those that were met; the caller's, of `room` places */
    size_t batches, room;
};

/* The learner of a finished job at its batch; with `timed`, and the time of its step, which takes
 * less than two seconds at a new batch. Errors of api_time_steps. */
int plan_step_learner(struct plan_steps *s, const Paceline__Job *job, bool timed,
                      const struct planned_batch **out);

/* Seconds of a step of the job on a node of speed 1, where they come from, and its learner. Errors
 * of api_time_steps and api_job_finish. */
int plan_step_find(struct plan_steps *s, const Paceline__Job *job,
                   const struct planned_batch **learner, double *seconds, pl_plan_source *from);

#endif
