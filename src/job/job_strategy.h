/* Checks and derived defaults of the strategies' fields. Internal to job. */
#ifndef PL_JOB_JOB_STRATEGY_H
#define PL_JOB_JOB_STRATEGY_H

#include "base/err.h"
#include "job/job.pb-c.h"

/* Of a job whose workers are settled. ERR_INPUT naming the field. */
int job_settle_strategy(Paceline__Job *job, struct err *err);

#endif
