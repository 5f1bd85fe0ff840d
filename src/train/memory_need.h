/* The memory that a process of a run needs for its part of the model, checked before any of it is
 * allocated: a model that does not fit is refused with the bytes. */
#ifndef PL_TRAIN_MEMORY_NEED_H
#define PL_TRAIN_MEMORY_NEED_H

#include "base/err.h"
#include "job/job.h"

#include <stddef.h>

/* Has this process room for the vectors of a worker: so many parameters, their gradients, and as
 * many `states` of the optimizer's? ERR_NOMEM: not, and how many slices of the model would have
 * room where it may be cut into slices. `who`: for the message */
int memory_check_worker(const Paceline__Job *job, const char *who, size_t floats, size_t states,
                        struct err *err);

/* The same of a driver with the whole model: the initial values, those that arrive, with the
 * optimizer's, and those that are evaluated. */
int memory_check_driver(const Paceline__Job *job, size_t floats, size_t states, struct err *err);

#endif
