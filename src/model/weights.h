/* The weights of a net as tensors of a safetensors file: PREFIX/SEGMENT for every segment. */
#ifndef PL_MODEL_WEIGHTS_H
#define PL_MODEL_WEIGHTS_H

#include "model/safetensors.h"
#include "tensor/segment.h"

/* Add a vector's segments to a file; `at` is borrowed until the file's image is made. */
void weights_put(struct safetensors_writer *w, const char *prefix, const struct segments *table,
                 const float *at);

/* Does the file called `path` hold all of a vector's segments? ERR_INPUT naming the tensor that is
 * missing or of another shape. */
int weights_check(const struct safetensors *st, const char *path, const char *prefix,
                  const struct segments *table, struct err *err);

/* Copy a vector's segments, which have been checked, into `into`; its padding is left alone. */
void weights_take(const struct safetensors *st, const char *prefix, const struct segments *table,
                  float *into);

#endif
