/* Element-wise reductions: the operation of a collective on a range of floats when that of another
 * rank arrives.
 *
 * Single-threaded, so that an I/O thread may call it. Nothing here allocates, blocks or fails.
 *
 * The sum is one IEEE addition; if both sides are NaN, the result is either of them. The maximum
 * and minimum are IEEE 754-2019's: -0 is below +0, and a NaN on either side gives the NaN
 * 0x7fc00000. They are associative and commutative to the bit, on every instruction set. */
#ifndef PL_TENSOR_REDUCE_H
#define PL_TENSOR_REDUCE_H

#include <stddef.h>

enum reduce_kind { REDUCE_SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_USER };

struct reduction {
    enum reduce_kind kind;
    /* REDUCE_USER alone: y ← y ∘ x for n > 0 floats, with ∘ associative and commutative. A vector
     * may come in ranges of any length, begun anywhere, from any thread. */
    void (*fn)(void *user, float *y, const float *x, size_t n);
    void *user;
};

/* y ← y ∘ x, n floats, which may be 0. x and y do not overlap. */
void reduce_range(const struct reduction *r, float *y, const float *x, size_t n);

#endif
