/* A Caffe project as a job: its solver and its nets, turned into the messages of a Paceline job. It
 * reads no files: the caller reads those that job_solver_nets names, and resolves the paths in the
 * job, which are as Caffe's files have them. */
#ifndef PL_JOB_JOB_SOLVER_H
#define PL_JOB_JOB_SOLVER_H

#include "base/err.h"
#include "base/logger.h"
#include "job/job.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* Does the text read as a solver, going by the fields at its top, rather than as a job? Text that
 * is neither, or wrong, is left to the reader of jobs. */
bool job_is_solver(const char *text, size_t len);

/* ERR_INPUT with file:line:column; ERR_NOMEM. Freed with protobuf_c_message_free_unpacked. */
int job_solver_parse(const char *name, const char *text, size_t len, Caffe__SolverParameter **out,
                     struct err *err);

/* Where a net of the solver is: a file, by its path in the solver, or a message within it. */
struct job_solver_net {
    const char *file;                 /* borrowed, as is */
    const Caffe__NetParameter *given; /* NULL where there is a file; both NULL: no such net */
};

/* The net to train, and the one that tests it, which may be the same; none where the solver tests
 * nothing. ERR_INPUT, ERR_UNSUPPORTED naming the field */
int job_solver_nets(const Caffe__SolverParameter *solver, struct job_solver_net *train,
                    struct job_solver_net *test, struct err *err);

/* Why a data layer's own records cannot be used; "": they can, or there is no such layer.
 * Irrelevant if other records are given. */
struct job_solver_wants {
    char train[ERR_TEXT_MAX], test[ERR_TEXT_MAX];
};

/* The job of a solver and its nets (upgraded, borrowed; `test` NULL: none). `name` is the job's.
 * Every field of the solver is honoured, or refused by name, or named in the log with what is done
 * instead. Owned by the caller: job_free.
 * ERR_INPUT, ERR_UNSUPPORTED naming field or layer; ERR_NOMEM */
int job_from_solver(const Caffe__SolverParameter *solver, const Caffe__NetParameter *train,
                    const Caffe__NetParameter *test, const char *name, const struct logger *log,
                    Paceline__Job **out, struct job_solver_wants *wants, struct err *err);

/* Records that were given in place of a data layer's: they get each of the layer's maps of whose
 * kind they have none (mean and mean_file are one kind, and so are the ways to resize), and images
 * get Caffe's order of colours. `layer` may be NULL. ERR_NOMEM */
int job_solver_keep_maps(Paceline__Data *records, const Paceline__Data *layer, struct err *err);

/* Check the solver of a job, and convert fields of older versions; `iter_size` may be in the job or
 * the solver. ERR_INPUT, ERR_UNSUPPORTED naming the field; ERR_NOMEM */
int job_finish_solver(Paceline__Job *job, struct err *err);

/* Remove from a finished solver the fields that a job states elsewhere, so that the job does not
 * contain Caffe's defaults for them. */
void job_leave_out_elsewhere(Caffe__SolverParameter *solver);

#endif
