/* What the implementations of the public headers share. */
#ifndef PL_API_API_H
#define PL_API_API_H

#include "base/err.h"
#include "base/logger.h"
#include "job/job.h"
#include "paceline/engine.h"
#include "paceline/job.h"

struct pl_engine {
    struct logger log;
    struct err error; /* of the last call that failed */
};

struct pl_job {
    pl_engine *engine;
    Paceline__Job *message; /* as read and overridden, not yet finished */
};

/* A finished copy of the job, checked, with threads filled in for `workers_here` workers on this
 * machine. Freed with job_free. ERR_INPUT, ERR_NOMEM */
int api_job_finish(const pl_job *job, Paceline__Job **out);

#endif
