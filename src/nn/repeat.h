/* Layers whose second operand, learnt or a second bottom, is repeated over the axes of the first
 * that it lacks (tensor/broadcast.h): Bias, Scale. */
#ifndef PL_NN_REPEAT_H
#define PL_NN_REPEAT_H

#include "nn/layer.h"

/* Caffe's `axis` and `num_axes`, of the message `name`: the shape of parameters that are repeated
 * over all other axes of the first bottom. num_axes 0 is one number, -1 all axes from `axis` on. */
int repeat_param(const struct layer *layer, const char *name, int32_t axis, int32_t num_axes,
                 size_t *at, struct shape *shape, struct err *err);

/* The same, where the second bottom is what is repeated: its first axis has the records, unless it
 * is one number. num_axes, if given (not NULL), must be its own; `filler` must not be. */
int repeat_second(const struct layer *layer, const char *name, int32_t axis,
                  const int32_t *num_axes, const Caffe__FillerParameter *filler, size_t *at,
                  struct err *err);

/* forward and backward by layer->op, whose w is the second bottom or the first parameter, and whose
 * b is the next. */
void repeat_forward(struct layer *layer, const struct pass *pass);
void repeat_backward(struct layer *layer, const struct pass *pass);

#endif
