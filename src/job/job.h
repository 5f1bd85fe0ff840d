/* Jobs: protobuf text → a checked message with its defaults filled in. Opens nothing (D2): the
 * caller reads the bytes and resolves paths. */
#ifndef PL_JOB_JOB_H
#define PL_JOB_JOB_H

#include "base/err.h"
#include "job/job.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse a job file. The job is not complete yet: overrides follow, then job_finish.
 * ERR_INPUT with file:line:column. */
int job_parse(const char *name, const char *text, size_t len, Paceline__Job **out, struct err *err);
void job_free(Paceline__Job *job);

/* Replace the strategy by the defaults of the one named. ERR_USAGE naming those there are. */
int job_set_strategy(Paceline__Job *job, const char *name, struct err *err);

/* `--set FIELD=VALUE`: "stop.epochs=2". ERR_USAGE. */
int job_set(Paceline__Job *job, const char *assignment, struct err *err);

/* `--unset FIELD`: it has its default again, or is missing. ERR_USAGE: there is no such field. */
int job_unset(Paceline__Job *job, const char *field, struct err *err);

/* Set one field and take back those that contradict it: `workers` takes back workers_min,
 * workers_max and, where there are several, the strategy `single`; `batch` global_batch and
 * batch_growth; `stop.epochs` stop.steps, and so on. `taken` lists the fields that were taken back,
 * with commas; "" when there were none. ERR_USAGE. */
enum { JOB_TAKEN_MAX = 128 };
int job_override(Paceline__Job *job, const char *assignment, char taken[JOB_TAKEN_MAX],
                 struct err *err);

/* `--data KIND:PATH[?scale=…&mean=…]`: replaces *data. ERR_USAGE. Every map is a field of Data,
 * or one of the kind's own. */
int job_set_data(Paceline__Data **data, const char *spec, struct err *err);

/* Check everything that can be checked without opening a file, and write derived values into the
 * message: `workers` from `workers_min`, sub-messages that were left out, `stop.epochs` 1 when
 * nothing stops the run, `batch_growth.epochs` from it. With a global batch `batch` gets the
 * largest share of a worker at the start, and stays unset: it follows from the other fields when
 * the job is finished again. Afterwards every sub-message is present but test_data, batch_growth
 * and follow_batch. ERR_INPUT naming the field. */
int job_finish(Paceline__Job *job, struct err *err);

/* The same for data alone, which `field` names in messages. */
int job_check_data(const Paceline__Data *data, const char *field, struct err *err);

/* Make relative paths in the job relative to the folder of `job_path` (pure text work). */
int job_resolve_paths(Paceline__Job *job, const char *job_path, struct err *err);

/* For another machine: paths of data that are relative, or lie in `folder` (of the job, with its
 * slash; "": none), are taken from the folder `root` (pure text work). ERR_INPUT, ERR_NOMEM */
int job_move_data(Paceline__Job *job, const char *folder, const char *root, struct err *err);

/* Where data is: the first path of its source, of a zip that of the first field, as the job has it;
 * "": there is none. */
const char *job_data_path(const Paceline__Data *data);

/* Give data (NULL: none) that is a table whose columns are not all listed those of `from` (NULL:
 * none), if they are, and its number for empty fields. ERR_NOMEM */
int job_table_settle(Paceline__Data *data, const Paceline__Data__Csv *from, struct err *err);

/* Give data (NULL: none) that is text the unit, the window and the vocabulary of `from` (NULL:
 * none), where it has none of its own. ERR_NOMEM */
int job_text_settle(Paceline__Data *data, const Paceline__Data__Text *from, struct err *err);

/* Likewise data that is a table or text, or that zips some, from data of the same form. */
int job_data_settle(Paceline__Data *data, const Paceline__Data *from, struct err *err);

/* Likewise the training data, and the test data from the training data. */
int job_settle(Paceline__Job *job, const Paceline__Data *from, struct err *err);

/* Does the strategy `auto` stand for one that is chosen before the run? */
bool job_is_auto(const Paceline__Job *job);

/* Give a job with the strategy `auto` the strategy of `from`, and its number of workers where the
 * job sets no limits of its own. ERR_NOMEM */
int job_take_choice(Paceline__Job *job, const Paceline__Job *from, struct err *err);

/* How many workers a run may have at a time; `workers` are those that it begins with. Of a finished
 * job. */
static inline uint32_t job_workers_max(const Paceline__Job *job)
{
    return job->has_workers_max ? job->workers_max : job->workers;
}

/* Will there never be a second worker? */
static inline bool job_is_alone(const Paceline__Job *job)
{
    return job_workers_max(job) == 1;
}

/* Do the workers share out a batch of all, whatever their number? (global_batch, batch_growth) */
static inline bool job_shares_batch(const Paceline__Job *job)
{
    return job->has_global_batch || job->batch_growth;
}

/* Is each step one of all records? (`full_batch`) There is no rate, and `batch` is what a worker
 * computes at once. False before a job has a strategy. */
static inline bool job_takes_all(const Paceline__Job *job)
{
    return job->strategy &&
           job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_FULL_BATCH;
}

enum { JOB_SLICES_MAX = 1024 };

/* How many times the run has the model: each replica is one worker, or as many as it has slices. Of
 * a finished job. */
static inline uint32_t job_replicas(const Paceline__Job *job)
{
    return job->workers / job->slices;
}

/* Records of a worker's step: iter_size batches. Of a finished job. Where the workers share a batch
 * out, the most that a worker takes of the first step, and computes at once; strategy_step_samples
 * has the batch. */
static inline uint32_t job_step_records(const Paceline__Job *job)
{
    return job->batch * job->iter_size;
}

/* The bytes of memory_budget, of which a share is one of `available` bytes; 0: it is unset.
 * ERR_INPUT */
int job_memory_budget(const Paceline__Job *job, uint64_t available, uint64_t *out, struct err *err);

/* "sync", "single", ...: the name of the oneof's field that is set. */
const char *job_strategy_name(const Paceline__Job *job);

/* Hash of the finished job as text, but for `threads`, which is each machine's own affair; peers
 * compare it. ERR_NOMEM */
int job_hash(const Paceline__Job *job, uint64_t *out, struct err *err);

#endif
