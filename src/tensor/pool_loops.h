/* Loops of pooling over NHWC images, a row of pixels at a time. Private to kernels_dnnl_pool.c.
 *
 * Both ways gather: an output looks at the pixels of its window, and on the way back a pixel at the
 * windows that it lies in. So all is written once, nothing is cleared first, and rows are anybody's
 * to compute. A maximum keeps, in addition to y, which position of its window won. */
#ifndef PL_TENSOR_POOL_LOOPS_H
#define PL_TENSOR_POOL_LOOPS_H

#include "tensor/isa_loops.h"

#include <stddef.h>
#include <stdint.h>

/* From, and up to but not. */
struct between {
    size_t from, end;
};

/* One axis: x has n pixels, y m windows of `kernel` pixels, `stride` apart, the first of them
 * beginning `pad` pixels before x. */
struct pool_axis {
    size_t n, m, kernel, stride, pad;
    const struct between *pixels;  /* of window i, in x */
    const struct between *windows; /* that pixel i is in */
    const float *share;            /* 1 over what window i counts of the padded axis */
};

struct pool_form {
    struct pool_axis h, w;
    size_t C;
    size_t bits; /* of a place: 8, or 32 where windows have more than 256 */
};

/* Of images of floats, or of bf16. */
struct pool_loops {
    size_t (*positions)(const struct pool_form *p); /* words that a row of y has in `won` */
    /* Row oh of y, and unless `won` is NULL its places, from an image x. A NaN wins: the last of
     * them, and of equal numbers the first. */
    void (*max)(const struct pool_form *p, size_t oh, const void *x, void *y, uint32_t *won);
    void (*average)(const struct pool_form *p, size_t oh, const void *x, void *y);
    /* Row h of dx from an image dy, and the places of its maxima. */
    void (*max_back)(const struct pool_form *p, size_t h, const void *dy, const uint32_t *won,
                     void *dx);
    void (*average_back)(const struct pool_form *p, size_t h, const void *dy, void *dx);
};

ISA_DECLARE(struct pool_loops, pool_loops);
ISA_DECLARE(struct pool_loops, pool_loops_bf16);

#endif
