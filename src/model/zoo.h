/* Nets that can be had by name. */
#ifndef PL_MODEL_ZOO_H
#define PL_MODEL_ZOO_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

/* A new message, freed with caffe__net_parameter__free_unpacked. ERR_INPUT for a name that is not
 * there, listing those that are; ERR_NOMEM. */
int zoo_net(const char *name, Caffe__NetParameter **out, struct err *err);

#endif
