/* The loops of bf16.h over a run of elements (bf16_loops.c). Private to bf16.c. */
#ifndef PL_TENSOR_BF16_LOOPS_H
#define PL_TENSOR_BF16_LOOPS_H

#include "tensor/isa_loops.h"

struct bf16_loops {
    void (*round)(size_t n, const float *x, bf16 *y);
    void (*widen)(size_t n, const bf16 *x, float *y);
    void (*add)(size_t n, const bf16 *x, bf16 *y);
};

ISA_DECLARE(struct bf16_loops, bf16_loops);

#endif
