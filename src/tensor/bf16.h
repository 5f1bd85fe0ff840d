/* Activations as bf16: the upper half of a float, rounded to nearest, ties to even; non-finite
 * values stay non-finite. Arithmetic is done in float, and rounded when it is stored. Long arrays
 * use the calling thread's OpenMP threads. */
#ifndef PL_TENSOR_BF16_H
#define PL_TENSOR_BF16_H

#include "base/err.h"
#include "tensor/dtype.h"

#include <stdbool.h>

/* OK: the processor multiplies bf16 itself (AVX512_BF16), within PACELINE_ISA's limit.
 * ERR_UNSUPPORTED: it does not; the message names what is missing. */
int bf16_check(struct err *err);

void bf16_round(size_t n, const float *x, bf16 *y); /* y ← x */
void bf16_widen(size_t n, const bf16 *x, float *y); /* y ← x, exactly */
void bf16_add(size_t n, const bf16 *x, bf16 *y);    /* y ← y + x */

/* One of them. */
float bf16_float(bf16 x);
bf16 bf16_nearest(float x);

#endif
