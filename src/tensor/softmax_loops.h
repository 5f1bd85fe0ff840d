/* Softmax of a row: y = e^(x - max x) / Σ. softmax_loops.c compiles for each instruction set; the
 * reference set has the exponentials of libm. */
#ifndef PL_TENSOR_SOFTMAX_LOOPS_H
#define PL_TENSOR_SOFTMAX_LOOPS_H

#include "tensor/isa_loops.h"

#include <stddef.h>

/* Of C floats; y may be x. */
struct softmax_loops {
    void (*row)(size_t C, const float *x, float *y);
};

ISA_DECLARE(struct softmax_loops, softmax_loops);

#endif
