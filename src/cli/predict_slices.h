/* Commands with a model in slices: a process has one each. All are of this machine, or each is a
 * command of its own, on this or another host (ranks.h). */
#ifndef PL_CLI_PREDICT_SLICES_H
#define PL_CLI_PREDICT_SLICES_H

#include "cli/predict_model.h"
#include "cli/ranks.h"

/* A command, and its part that runs in each of the processes, with a copy of all that this process
 * has, and the team of them. It returns a status, or, after a message, an exit code. */
struct predict_slices {
    const char *command;
    int (*predict)(pl_engine *engine, pl_team *team, void *arg);
    void *arg;
    const struct ranks_place *place;
    /* Between hosts the same in all commands: the weights, and options of which a text is drawn, or
     * that shape a pass. */
    const char *weights, *const *options;
    size_t options_n;
};

/* Whether this process is one of so many commands (`given`, of --slices; 0: not given, and it is
 * not) between hosts; *given becomes their number. -1 to continue, or the exit code. */
int predict_slices_find(const char *command, const struct ranks_options *options, size_t *given,
                        struct ranks_place *place);

/* Run it in so many processes, 2 or more; what the first one prints is printed. This process has no
 * slice, or between hosts one of them. Returns the exit code: a process that fails ends the others,
 * and its reason is printed. Before any thread has been started. */
int predict_slices_run(pl_engine *engine, uint32_t count, const struct predict_slices *slices);

/* How many processes the command is to have: those of --slices, or those of a run's job where the
 * whole model has no room. A status. */
int predict_slices_count(const struct predict_model *model, size_t given, size_t *count);

/* The compute threads of each, where none are given: 0, all cores, where each has its host. */
size_t predict_slices_threads(const struct ranks_place *place, size_t count);

#endif
