/* The data layers of Caffe's nets as the data of a job. Internal to job. */
#ifndef PL_JOB_JOB_SOLVER_DATA_H
#define PL_JOB_JOB_SOLVER_DATA_H

#include "base/err.h"
#include "base/logger.h"
#include "job/job.pb-c.h"

#include <stdbool.h>

/* A layer that brings records into the net. */
bool job_data_layer_is(const Caffe__LayerParameter *layer);

struct job_data_layer {
    Paceline__Data *data; /* owned; without a source where `wants` is not empty */
    uint32_t batch;       /* 0: the layer does not state it */
    char wants[ERR_TEXT_MAX];
};

/* The layer's records and maps. `option` is the command's option that replaces them; `trained`:
 * they are the training set. ERR_INPUT, ERR_UNSUPPORTED naming layer and field; ERR_NOMEM */
int job_data_layer_map(const Caffe__LayerParameter *layer, const char *option, bool trained,
                       const struct logger *log, struct job_data_layer *out, struct err *err);

/* Make it a layer that takes whatever records the job has. ERR_NOMEM */
int job_data_layer_empty(Caffe__LayerParameter *layer, struct err *err);

#endif
