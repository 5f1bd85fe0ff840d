/* Caffe's training and testing net as the one net of a job. Internal to job. */
#ifndef PL_JOB_JOB_SOLVER_NET_H
#define PL_JOB_JOB_SOLVER_NET_H

#include "base/err.h"
#include "job/job.pb-c.h"

struct job_solver_merge {
    const Caffe__NetParameter *train, *test; /* may be the same; test NULL: the training net's */
    const Caffe__NetState *train_state, *test_state; /* the solver's; NULL: not set */
};

/* Merge both nets into one whose layers belong to the phases that the states of the nets select;
 * other rules are resolved. Its data layers take the job's records; `train_data` and `test_data`
 * are copies of those, owned, of each phase; NULL: there is none. ERR_INPUT, ERR_UNSUPPORTED naming
 * the layer; ERR_NOMEM */
int job_merge_nets(const struct job_solver_merge *state, Caffe__NetParameter **out,
                   Caffe__LayerParameter **train_data, Caffe__LayerParameter **test_data,
                   struct err *err);

#endif
