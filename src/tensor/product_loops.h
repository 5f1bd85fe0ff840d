/* Matrix products for inner products, 1x1 convolutions and recurrent layers: many weights, and a
 * small batch. Private to kernels_dnnl_inner.c, kernels_dnnl_product.c and recurrence*.c.
 *
 * A product adds up a[m][k] · b[k][n] in the order of k, whatever the rest of the batch and the
 * thread. `b` comes in strips of n, PRODUCT_VECTORS vectors wide or fewer, which are packed so that
 * successive steps of k are adjacent, unless a function says otherwise; `a` is read in place. */
#ifndef PL_TENSOR_PRODUCT_LOOPS_H
#define PL_TENSOR_PRODUCT_LOOPS_H

#include "tensor/isa_loops.h"

#include <stdbool.h>
#include <stddef.h>

enum { PRODUCT_VECTORS = 2, PRODUCT_LEVELS = 32 };

/* Which use a product makes of c. */
enum product_result {
    PRODUCT_SET,
    PRODUCT_ADD,      /* the sum is added to c */
    PRODUCT_CONTINUE, /* c is the sum of earlier steps: with the same bits as in one call */
};

/* Element (m, k) is at m · row + k · step. */
struct product_a {
    const float *at;
    size_t row, step;
};

struct product_loops {
    size_t strip; /* columns at most */

    /* Floats of a packed strip's step: n, and zeros up to whole vectors. */
    size_t (*wide)(size_t n);

    /* pack K steps of b, `step` apart, and n columns, as strips one after another: the last is as
     * wide as it must be, with zeros. pack_turned: one strip of a b whose columns are `step` apart,
     * and whose steps are neighbours. */
    void (*pack)(size_t K, size_t n, const float *b, size_t step, float *to);
    void (*pack_turned)(size_t K, size_t n, const float *b, size_t step, float *to);

    /* c[m][n] = bias[n] (0 where that is NULL) + a·b, c + a·b, or the sum a·b continued, both of
     * which take no bias; rows of c are `row` apart. */
    void (*multiply)(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                     enum product_result result, const float *bias, float *c, size_t row);

    /* c[m][n] += a·b, where K is summed in slices of `slice`, and these as slices.h has it. Rows of
     * a are neighbours: a->row is 1; the M rows behind them are asked for, as those that a next
     * call has. All n columns of b are read in place; its steps are `step` apart. */
    void (*add_slices)(size_t M, size_t n, size_t K, size_t slice, const struct product_a *a,
                       const float *b, size_t step, float *c, size_t row);

    /* c[n][m] = bias[m] (0 where that is NULL) + a·b, or with `add` is added to. */
    void (*multiply_turned)(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                            bool add, const float *bias, float *c, size_t row);
};

ISA_DECLARE(struct product_loops, product_loops);

#endif
