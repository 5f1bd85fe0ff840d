/* Reading a Caffe project: the solver, its nets, and where its other files are. */
#ifndef PL_API_CAFFE_PROJECT_H
#define PL_API_CAFFE_PROJECT_H

#include "api/api.h"

/* The job of the solver `text`, which the file `path` holds. Caffe takes all paths from where it is
 * started, its root most often, and users start us elsewhere: a path is tried as it stands, then
 * from the solver's folder and each that its path names above it, then by its base name in the
 * solver's folder, then there as NAME_net of NAME_solver. The log says what was taken. A path that
 * does not exist stays as it stands: it may not be needed. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int api_load_solver(pl_engine *engine, const char *path, const char *text, size_t len,
                    struct job_solver_wants *wants, Paceline__Job **out);

/* Before a run: are the records of a solver's job there, or others in their place? OK, too, for a
 * job that was none. ERR_INPUT with the option that names others */
int api_check_solver_data(const pl_job *job);

#endif
