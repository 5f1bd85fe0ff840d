/* Loops of local response normalisation over NHWC images; equations in kernels.h. Private to
 * kernels_dnnl_lrn.c. */
#ifndef PL_TENSOR_LRN_LOOPS_H
#define PL_TENSOR_LRN_LOOPS_H

#include "tensor/isa_loops.h"

#include <stddef.h>

/* How s^-beta is computed. QUARTERS is beta = 3/4 of an s that is at least 2^-60. */
enum lrn_power { LRN_QUARTERS, LRN_HALF, LRN_ONE, LRN_ANY };

struct lrn_form {
    size_t H, W, C, size; /* size < 2 C */
    enum lrn_power power;
    float beta, k, share; /* s = k + share · Σ x² */
};

/* Pixels whose channels are processed together, so that the output of one loop has arrived in the
 * nearest cache when the next reads it. */
enum { LRN_PIXELS = 8 };

struct lrn_loops {
    /* Floats of scratch that a thread needs for an image, or, across channels, for LRN_PIXELS. */
    size_t (*across_floats)(const struct lrn_form *f);
    size_t (*within_floats)(const struct lrn_form *f);
    /* n <= LRN_PIXELS pixels. */
    void (*across)(const struct lrn_form *f, size_t n, const float *x, float *scratch, float *y);
    void (*across_back)(const struct lrn_form *f, size_t n, const float *x, const float *dy,
                        float *scratch, float *dx);
    /* An image. */
    void (*within)(const struct lrn_form *f, const float *x, float *scratch, float *y);
    void (*within_back)(const struct lrn_form *f, const float *x, const float *dy, float *scratch,
                        float *dx);
};

ISA_DECLARE(struct lrn_loops, lrn_loops);

#endif
