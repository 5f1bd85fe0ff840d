/* Loops of pooling over NHWC images, a row of pixels at a time. Private to kernels_dnnl_pool.c.
 *
 * Both directions gather: forward, an output reads the pixels of its window; backward, a pixel
 * reads the windows that contain it. So every value is written once, nothing is cleared first, and
 * any thread may compute any row. A maximum keeps, in addition to y, the winning position in its
 * window. */
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
    const float *share;            /* 1 over the length of window i on the padded axis */
};

struct pool_form {
    struct pool_axis h, w;
    size_t C;
    size_t bits; /* of a position: 8, or 32 if windows have more than 256 */
};

/* Of images of floats, or of bf16. */
struct pool_loops {
    size_t (*positions)(const struct pool_form *p); /* words of a row of y in `won` */
    /* Row oh of y, and unless `won` is NULL its positions, from an image x. A NaN wins: the last of
     * them, and of equal numbers the first. */
    void (*max)(const struct pool_form *p, size_t oh, const void *x, void *y, uint32_t *won);
    void (*average)(const struct pool_form *p, size_t oh, const void *x, void *y);
    /* Row h of dx from an image dy, and the positions of its maxima. */
    void (*max_back)(const struct pool_form *p, size_t h, const void *dy, const uint32_t *won,
                     void *dx);
    void (*average_back)(const struct pool_form *p, size_t h, const void *dy, void *dx);
};

ISA_DECLARE(struct pool_loops, pool_loops);
ISA_DECLARE(struct pool_loops, pool_loops_bf16);

#endif
