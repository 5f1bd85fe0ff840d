/* The net of a job: by name from the zoo, or from a Caffe prototxt. */
#ifndef PL_MODEL_LOAD_H
#define PL_MODEL_LOAD_H

#include "base/err.h"
#include "job/job.pb-c.h"

/* Returned owned: caffe__net_parameter__free_unpacked(net, NULL).
 * ERR_INPUT, ERR_NOMEM */
int model_load_net(const Paceline__Net *spec, Caffe__NetParameter **out, struct err *err);

#endif
