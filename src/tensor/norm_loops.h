/* Normalisation of one run of elements (norm_loops.c). Private to norm.c. */
#ifndef PL_TENSOR_NORM_LOOPS_H
#define PL_TENSOR_NORM_LOOPS_H

#include "tensor/isa_loops.h"
#include "tensor/norm.h"

/* n elements, which begin with the first of the terms: x' = x − k, and g = dy + dy2, or 0 where the
 * mask is 0. Terms by channel are repeated to `period` of them, a multiple of `group`. A field that
 * an operation does not use may be NULL. */
struct norm_run {
    size_t n, period;
    const void *x, *z, *y, *dy, *dy2; /* floats, or bf16 */
    void *out;
    const float *k, *a, *b, *p, *q, *c;
    enum norm_mask mask;
    bool relu;
    double *sum; /* 2 × period, added to */
};

struct norm_loops {
    size_t group;                                /* elements */
    void (*moments)(const struct norm_run *run); /* sum: Σ x', Σ x'² */
    void (*apply)(const struct norm_run *run); /* out = a·x' + b + z; relu: at least 0; may be x */
    void (*sums)(const struct norm_run *run);  /* sum: Σ g, Σ g·x'; out, unless NULL: g */
    void (*slopes)(const struct norm_run *run); /* out = p·g + q·x' + c, or p·g if q is NULL */
};

enum { NORM_GROUP_MAX = 64 };

ISA_DECLARE(struct norm_loops, norm_loops);
ISA_DECLARE(struct norm_loops, norm_loops_bf16);

#endif
