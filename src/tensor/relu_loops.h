/* Loops of the rectifier over rows of elements, floats or bf16; y may be x, and dx dy. Private to
 * kernels_common.c.
 */
#ifndef PL_TENSOR_RELU_LOOPS_H
#define PL_TENSOR_RELU_LOOPS_H

#include "tensor/isa_loops.h"

#include <stddef.h>

struct relu_loops {
    /* y = v where x > 0, else slope · v: v is x on the way there, and dy on the way back. */
    void (*run)(size_t n, float slope, const void *x, const void *v, void *y);
};

ISA_DECLARE(struct relu_loops, relu_loops);
ISA_DECLARE(struct relu_loops, relu_loops_bf16);

#endif
