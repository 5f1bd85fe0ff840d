/* Reading a Caffe project: the solver, its nets, and where its other files are. */
#ifndef PL_API_CAFFE_PROJECT_H
#define PL_API_CAFFE_PROJECT_H

#include "api/api.h"

/* The job of the solver `text`, which the file `path` holds. Caffe resolves paths from its working
 * directory, usually its root, and users start Paceline elsewhere. So a path is tried as written,
 * then relative to the solver's folder and each folder above it, then by its base name in the
 * solver's folder, then there as NAME_net of NAME_solver. The log names the path taken. A path that
 * does not exist is kept, since it may not be needed. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int api_load_solver(pl_engine *engine, const char *path, const char *text, size_t len,
                    struct job_solver_wants *wants, Paceline__Job **out);

/* Before a run: do the records of a solver's job exist, or were others given in their place? OK for
 * any other job. ERR_INPUT with the option that names others */
int api_check_solver_data(const pl_job *job);

#endif
