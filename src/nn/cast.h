/* Blobs of two dtypes in one net. Where a layer needs another dtype than its bottom has, a layer is
 * inserted that makes a copy in that dtype; gradients return in the blob's dtype. A blob has at
 * most one copy, which all readers share. */
#ifndef PL_NN_CAST_H
#define PL_NN_CAST_H

#include "nn/layer.h"

/* Set the dtype of a layer whose bottoms are connected, and cast bottoms of another dtype. The
 * layer stays the net's newest. The net must have room for a layer and a blob for each of its
 * bottoms. */
int cast_bottoms(struct net *net, struct layer *layer, const struct setup *setup, struct err *err);

/* Is the layer such a one? The file does not know its name, "X as f32", and may use it. */
bool cast_is(const struct layer *layer);

/* y ← y + x, over n elements; y ← y + number; and element i. */
void cast_add(enum dtype dtype, size_t n, const void *x, void *y);
void cast_add_number(enum dtype dtype, float number, size_t n, void *y);
float cast_element(enum dtype dtype, const void *x, size_t i);

/* An image of bf16 as floats, canonical. For inspection, not for every step. */
void cast_out(const struct shape *shape, enum layout layout, const bf16 *x, float *y);

#endif
