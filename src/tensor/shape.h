/* Shapes: up to SHAPE_DIMS_MAX dimensions, outermost first. Images are (N, C, H, W). */
#ifndef PL_TENSOR_SHAPE_H
#define PL_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

enum { SHAPE_DIMS_MAX = 8 };

struct shape {
    size_t n;
    size_t dim[SHAPE_DIMS_MAX];
};

/* Product of all dimensions (1 for none); 0 when it overflows SIZE_MAX / sizeof(float). */
size_t shape_count(const struct shape *shape);

/* Product of dimensions from `axis` ≤ n on; as above. */
size_t shape_count_from(const struct shape *shape, size_t axis);

bool shape_equal(const struct shape *a, const struct shape *b);

/* "64x1x28x28" ("scalar" without dimensions) into `out`, cut at `size`; returns `out`. */
char *shape_text(const struct shape *shape, char *out, size_t size);

#endif
