/* Caffe's three ways of giving a window's size, stride, padding or dilation: "stride: 2", "stride:
 * 2 stride: 3" (height, width), "stride_h: 2 stride_w: 3". */
#ifndef PL_NN_WINDOW_H
#define PL_NN_WINDOW_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Upper limit of the values, so that results computed from a few of them fit a size_t. */
enum { WINDOW_MAX = 1 << 20 };

struct window_field {
    const char *name; /* of the form for both */
    size_t n;         /* values in `both` */
    const uint32_t *both;
    bool has_h, has_w;
    uint32_t h, w;
    bool halves;            /* one of h and w may be left out, and is the fallback */
    uint32_t fallback, min; /* when nothing is given; the least value allowed */
};

/* ERR_INPUT when both forms are mixed, half of a pair is missing, or a value is out of range. */
int window_read(const struct window_field *field, size_t *h, size_t *w, struct err *err);

#endif
