/* A job: the net, the data, the training and its end (docs/JOBS.md and proto/job.proto list the
 * fields). */
#ifndef PACELINE_JOB_H
#define PACELINE_JOB_H

#include "paceline/engine.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_job pl_job;
typedef struct pl_net_spec pl_net_spec; /* paceline/net.h */

/* Read a job file (protobuf text). Its paths are relative to its folder. A file with the fields of
 * a Caffe solver is read as one. PL_ERR_INPUT with file:line:column. */
int pl_job_load(pl_engine *engine, const char *path, pl_job **out);

/* Read a Caffe project, a solver and the nets it names, as a job: its data layers become the job's
 * data, max_iter its end, test_interval and test_iter its evaluations, snapshot_prefix a caffemodel
 * in the run directory. Each path is tried as written, then relative to the solver's folder and the
 * folders above it, then by its last name in the solver's folder. Every field is honoured, refused
 * by name, or named in the log. PL_ERR_INPUT, PL_ERR_UNSUPPORTED */
int pl_job_load_solver(pl_engine *engine, const char *path, pl_job **out);

/* Read the job of a run's directory (job.prototxt), with all its defaults, its paths whole: to
 * continue with that run by pl_run, changed or not. PL_ERR_NOT_FOUND: there is no run;
 * PL_ERR_INPUT */
int pl_job_load_directory(pl_engine *engine, const char *dir, pl_job **out);

/* One field in which two jobs differ; its texts are valid until the callback returns. */
typedef struct pl_job_change {
    const char *field;     /* "stop.epochs" */
    const char *from, *to; /* as job files have them, or "not set" */
    bool breaks; /* a change of what the run is: pl_run resumes with it only by force_change */
} pl_job_change;

/* Call `each` for each field in which the two jobs differ, once their defaults are filled in; paths
 * are compared as they stand. The first error of either job; PL_ERR_NOMEM. */
int pl_job_diff(const pl_job *from, const pl_job *to,
                void (*each)(void *user, const pl_job_change *change), void *user);

/* An empty job, to be filled by pl_job_set and pl_job_set_data; paths count from the working
 * directory. */
int pl_job_create(pl_engine *engine, pl_job **out);
void pl_job_free(pl_job *job);

/* The job with the default of every field, as a run uses it, its paths whole: protobuf text in
 * *out, which the caller frees with free. PL_ERR_INPUT naming the field that is wrong;
 * PL_ERR_NOMEM. */
int pl_job_text(const pl_job *job, char **out);

/* Replace the strategy by the defaults of the one named. PL_ERR_USAGE naming those there are. */
int pl_job_set_strategy(pl_job *job, const char *name);

/* Set one field: "stop.epochs=2". PL_ERR_USAGE. */
int pl_job_set(pl_job *job, const char *assignment);

/* Take one field back: "stop.steps". It has its default again, or is missing where it has none.
 * PL_ERR_USAGE: there is no such field. */
int pl_job_unset(pl_job *job, const char *field);

/* As pl_job_set, and unset the fields that contradict the one that is set: `workers` unsets
 * workers_min, workers_max and, for more than one, the strategy `single` (the default, `sync`,
 * replaces it); `batch` unsets global_batch and batch_growth, and `stop.epochs` stop.steps; and
 * vice versa. The log names the assignments that were unset. PL_ERR_USAGE. */
int pl_job_override(pl_job *job, const char *assignment);

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
