/* Training a job. */
#ifndef PACELINE_RUN_H
#define PACELINE_RUN_H

#include "paceline/job.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_run_options {
    /* Each event of the run as a line of JSON, as it happens. */
    void (*event)(void *user, const char *line);
    void *user;
    /* Set it, from any thread or a signal handler, to end the run cleanly at its next commit
     * point. May be NULL. */
    const atomic_bool *stop;
} pl_run_options;

typedef struct pl_run_report {
    char reason[16]; /* epochs, steps, seconds, error, interrupted */
    bool has_validation, has_test;
    double validation_error, test_error, test_loss;
    double epochs;
    uint64_t samples, used, repeated, missed;
    double wall_s;
    uint64_t seed;
} pl_run_report;

/* Train; returns when the run has ended.
 * PL_ERR_INPUT, PL_ERR_UNSUPPORTED, PL_ERR_NOMEM, PL_ERR_DIVERGED */
int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report);

#ifdef __cplusplus
}
#endif
#endif
