/* Checks and derived defaults of the strategies' fields. Internal to job. */
#ifndef PL_JOB_JOB_STRATEGY_H
#define PL_JOB_JOB_STRATEGY_H

#include "base/err.h"
#include "job/job.pb-c.h"

/* Of a job whose workers are settled. ERR_INPUT naming the field. */
int job_finish_strategy(Paceline__Job *job, struct err *err);

/* The strategy's settings for people, "tau 50, seconds 2": its first field, and those that are set
 * to something else than their default. Of a finished job; cut at `size`. */
void job_strategy_settings(const Paceline__Job *job, char *out, size_t size);

#endif
