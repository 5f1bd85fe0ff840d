/* Output of `paceline worker`: the run that it has joined, its progress, and how it ended. */
#ifndef PL_CLI_WORK_OUTPUT_H
#define PL_CLI_WORK_OUTPUT_H

#include "paceline/run.h"

/* For pl_work_options. `user` is not used. */
void work_output_progress(void *user, const pl_work_progress *progress);
void work_output_tick(void *user);

#endif
