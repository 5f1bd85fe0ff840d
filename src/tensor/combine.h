/* One array from several, element by element: sums, products, the largest. To them a blob is a row
 * of floats: layouts make no difference. One implementation for all kernel sets. */
#ifndef PL_TENSOR_COMBINE_H
#define PL_TENSOR_COMBINE_H

#include <stdbool.h>
#include <stddef.h>

/* y = Σ coeff·x, or Π x, or max x, over `count` >= 2 arrays of n floats. Of equals among the first
 * two the second is the largest, then the earlier one, as in Caffe: it alone gets the gradient. */
enum combine_kind { COMBINE_SUM, COMBINE_PRODUCT, COMBINE_MAX };

struct combine {
    enum combine_kind kind;
    size_t count, n;
    const float *coeff; /* SUM: one an array */
    bool divide; /* PRODUCT: an array's gradient is dy · (Π / x), not dy · Π of the others */
};

/* y overlaps no x, but that a SUM may lie over one of the first two. */
void combine_forward(const struct combine *c, const float *const *x, float *y);

/* The gradient of array k. dx overlaps nothing, but that of a SUM may lie over dy. */
void combine_backward(const struct combine *c, size_t k, const float *const *x, const float *dy,
                      float *dx);

#endif
