/* The loops of resampling pictures (data/resize.c), for each instruction set. They may differ in
 * width alone: none of them fuses, and all add in the same order, so all give the same bits. */
#ifndef PL_TENSOR_RESAMPLE_LOOPS_H
#define PL_TENSOR_RESAMPLE_LOOPS_H

#include "tensor/isa_loops.h"
#include "tensor/turn.h"

#include <stddef.h>
#include <stdint.h>

/* A pixel has one to four values. Outputs of a side are computed FOUR at a time; blends read
 * RESAMPLE_WIDTH floats at a time. */
enum { FOUR = 4, RESAMPLE_WIDTH = 32 };

/* Which inputs an output is the mean of: `count` of them from `first` on; 0: it lies outside. Each
 * weight stands in all four places, and those of FOUR outputs lie side by side: input k's is
 * weight[FOUR * k]. */
struct resample_tap {
    size_t first, count;
    const four *weight;
};

struct resample_loops {
    /* line <- n bytes */
    void (*convert)(const uint8_t *bytes, size_t n, float *line);
    /* Outputs at `tap`, n of them, a multiple of FOUR: the values of each pixel of C (<= FOUR) are
     * multiplied and added together; row (C, n). Every output has `most` weights, those behind its
     * last one 0; `line` has floats for as many inputs, and FOUR more. */
    void (*sample)(const float *line, size_t C, const struct resample_tap *tap, size_t n,
                   size_t most, float *row);
    /* n values of an output row: (value - mean) * scale of means of those at rows[k], k <
     * tap->count. RESAMPLE_WIDTH floats can be read at each. */
    void (*blend)(const float *const *rows, const struct resample_tap *tap, float mean, float scale,
                  size_t n, float *out);
};

ISA_DECLARE(struct resample_loops, resample_loops);

#endif
