/* Nets that can be had by name.
 *
 * A name may be followed by ?classes=N, "resnet-110?classes=100", for data with another number of
 * classes than the net was published for. The shape of records is left to the data. */
#ifndef PL_MODEL_ZOO_H
#define PL_MODEL_ZOO_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/shape.h"

/* A new message, freed with caffe__net_parameter__free_unpacked. ERR_INPUT for a name that is not
 * there, listing those that are, and for a wrong number of classes; ERR_NOMEM. */
int zoo_net(const char *name, Caffe__NetParameter **out, struct err *err);

/* All names, NULL at the end. */
const char *const *zoo_names(void);

/* The shape of the records that a net was published for; n = 0 when there is no such net. */
struct shape zoo_record(const char *name);

#endif
