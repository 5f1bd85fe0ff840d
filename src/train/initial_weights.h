/* An initial state from files: weights of other runs, or the snapshot of a run of Caffe. The driver
 * reads the files once, and sends their contents to the workers. */
#ifndef PL_TRAIN_INITIAL_WEIGHTS_H
#define PL_TRAIN_INITIAL_WEIGHTS_H

#include "base/logger.h"
#include "train/checkpoint.h"

/* Load the job's `weights` into x and s at `model`, one file after another, each layer by its name.
 * Log lines name the loaded layers. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int initial_weights(const Paceline__Job *job, const struct model_layout *layout,
                    const struct logger *log, float *model, struct err *err);

/* Load a .solverstate: the weights that it names, at their path or in its folder; the optimizer's
 * vectors, behind x and s; and the progress of the run. For a run of one worker. ERR_INPUT,
 * ERR_UNSUPPORTED by name; ERR_NOMEM */
int initial_solver_state(const char *path, const Paceline__Job *job, struct model_layout *layout,
                         const struct logger *log, float *model, struct checkpoint_header *header,
                         struct err *err);

#endif
