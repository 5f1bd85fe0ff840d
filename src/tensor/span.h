/* A blob seen along one of its axes: `outer` blocks, each with the axis's n positions in order,
 * each with `inner` elements. Every axis of either layout is such a span of memory, so that
 * operations along an axis need no reordering. */
#ifndef PL_TENSOR_SPAN_H
#define PL_TENSOR_SPAN_H

#include "tensor/kernels.h"

struct span {
    size_t outer, n, inner;
    enum dtype dtype;
};

/* Along `axis` < x->n of x, floats, as it lies in memory. */
struct span span_of(const struct shape *x, enum layout layout, size_t axis);

/* Spans of one `outer`, `inner` and dtype: all positions of `part` are those of `whole` from
 * position `at` on. span_get copies them out of the whole; span_put into it, or zeros where x is
 * NULL. */
void span_get(const struct span *whole, const void *x, const struct span *part, size_t at, void *y);
void span_put(const struct span *part, const void *x, const struct span *whole, size_t at, void *y);

/* Softmax along the span, of floats: y = e^x / Σ e^x. y may be x. */
void span_softmax(const struct span *s, const float *x, float *y);

/* dx = y · (dy − Σ dy·y). dx may be dy. */
void span_softmax_backward(const struct span *s, const float *y, const float *dy, float *dx);

#endif
