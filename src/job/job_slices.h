/* Slices of a model in a job: the number of workers that follows, and the fields that exclude them.
 * Internal to job. */
#ifndef PL_JOB_JOB_SLICES_H
#define PL_JOB_JOB_SLICES_H

#include "base/err.h"
#include "job/job.pb-c.h"

/* Before the workers are settled: a job with slices has as many workers. ERR_INPUT,
 * ERR_UNSUPPORTED naming the field. */
int job_settle_slices(Paceline__Job *job, struct err *err);

/* Of a job whose other fields are checked: ERR_UNSUPPORTED naming the first that is set and does
 * not go with slices. */
int job_check_slices(const Paceline__Job *job, struct err *err);

#endif
