/* Pictures to another size, or the part of that which is wanted.
 *
 * Sampling is bilinear, and where it shrinks, an average over the area that a pixel comes from:
 * along each side, with n pixels becoming m and a scale of r = n / m, output i lies at
 *
 *     c = r (i + 1/2)            in units of input pixels, the first of which covers [0, 1]
 *
 * and is the mean of the inputs k whose middles lie less than w = max(r, 1) from it, weighted by
 * 1 - |k + 1/2 - c| / w, the weights of those that exist made to add up to one. Columns first, then
 * rows, in floats, without rounding to whole values in between or at the end. Equal to bilinear
 * interpolation with antialiasing as of Pillow and PyTorch, but for rounding.
 *
 * Of a record that its decoder has shrunk to 1 / s, input pixels are those of the shrunk picture,
 * and n is the side of the whole one over s: where s does not divide it, the last input pixel lies
 * half outside. */
#ifndef PL_DATA_RESIZE_H
#define PL_DATA_RESIZE_H

#include "base/status.h"
#include "data/raw.h"

#include <stdbool.h>
#include <stdint.h>

/* A window of a picture of h x w: H x W pixels from (top, left) on, which may lie outside, where
 * there are zeros; then left and right exchanged. */
struct window {
    size_t h, w;
    ptrdiff_t top, left;
    size_t H, W;
    bool mirror;
};

/* Values become (value - mean of their channel) * scale, zeros outside included. */
struct levels {
    const float *mean;
    float scale;
};

/* x, (C, H, W), from `raw`; `levels` NULL: values as they are. Costs a pass over the rows that
 * count, for the columns that do; memory, tables and some rows, in `scratch` (RESIZE). ERR_NOMEM */
int resize_window(const struct raw *raw, const struct window *window, const struct levels *levels,
                  struct scratch *scratch, float *x);

/* Pixels [first, end) along a side; none: both are 0. */
struct span {
    size_t first, end;
};

/* Along one side, the pixels of a raw record of n, shrunk, that resize_window uses for outputs
 * [from, from + count) of m. */
struct span resize_reach(size_t n, unsigned shrink, size_t m, ptrdiff_t from, size_t count);

#endif
