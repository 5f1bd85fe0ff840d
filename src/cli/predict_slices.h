/* Prediction with a model in slices: a process of this machine has one each. */
#ifndef PL_CLI_PREDICT_SLICES_H
#define PL_CLI_PREDICT_SLICES_H

#include "cli/cli.h"
#include "paceline/team.h"

/* Call `predict` in so many processes (2 or more), each with an engine of its own and a team of all
 * of them; what the first one prints is printed. It returns a status, or, after a message, an exit
 * code. This command's process has no slice. Returns the exit code: a process that fails ends the
 * others, and its reason is printed. */
int predict_slices_run(uint32_t slices,
                       int (*predict)(pl_engine *engine, pl_team *team, const void *arg),
                       const void *arg);

/* The compute threads of each, where none are given. */
size_t predict_slices_threads(uint32_t slices);

#endif
