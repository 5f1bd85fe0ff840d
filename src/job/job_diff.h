/* The fields in which two jobs differ, and which of those make it another run. */
#ifndef PL_JOB_JOB_DIFF_H
#define PL_JOB_JOB_DIFF_H

#include "job/job.h"

struct job_change {
    const char *field;     /* "stop.epochs"; of a strategy, net or data of another kind its own */
    const char *from, *to; /* as job files have them; "not set" */
    bool breaks;           /* it makes it another run */
};

/* Call `each` for each field in which the two finished jobs differ, in the order of the schema.
 * ERR_NOMEM */
int job_diff(const Paceline__Job *from, const Paceline__Job *to,
             void (*each)(void *user, const struct job_change *change), void *user,
             struct err *err);

#endif
