/* A job: what to train, on what, how, and when to stop (docs and proto/job.proto list the fields).
 */
#ifndef PACELINE_JOB_H
#define PACELINE_JOB_H

#include "paceline/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_job pl_job;
typedef struct pl_net_spec pl_net_spec; /* paceline/net.h */

/* Read a job file (protobuf text). Paths in it count from its folder. A file whose fields are those
 * of a Caffe solver is taken as one. PL_ERR_INPUT with file:line:column. */
int pl_job_load(pl_engine *engine, const char *path, pl_job **out);

/* Read a Caffe project, a solver and the nets it names, as a job: its data layers become the job's
 * data, max_iter its end, test_interval and test_iter its evaluations, snapshot_prefix a caffemodel
 * in the run directory. Paths are tried as they stand, then from the solver's folder and those
 * above it, then beside the solver. Every field is honoured, or refused by name, or told in the
 * log. PL_ERR_INPUT, PL_ERR_UNSUPPORTED */
int pl_job_load_solver(pl_engine *engine, const char *path, pl_job **out);

/* An empty job, to be filled by pl_job_set and pl_job_set_data; paths count from the working
 * directory. */
int pl_job_create(pl_engine *engine, pl_job **out);
void pl_job_free(pl_job *job);

/* Replace the strategy by the defaults of the one named. PL_ERR_USAGE naming those there are. */
int pl_job_set_strategy(pl_job *job, const char *name);

/* Set one field: "stop.epochs=2". PL_ERR_USAGE. */
int pl_job_set(pl_job *job, const char *assignment);

/* Replace the net by a copy of this one. PL_ERR_NOMEM, or the first error of the specification. */
int pl_job_set_net(pl_job *job, const pl_net_spec *spec);

/* Replace the training or the test data by a SPEC: KIND:PATH[?scale=…&mean=…]. In a job from a
 * Caffe solver the data layer's own scale, mean, crop and the like stay, unless the SPEC gives any.
 * PL_ERR_USAGE. */
int pl_job_set_train_data(pl_job *job, const char *spec);
int pl_job_set_test_data(pl_job *job, const char *spec);

#ifdef __cplusplus
}
#endif
#endif
