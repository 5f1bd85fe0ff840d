/* Solutions of symmetric positive definite systems in double, by Cholesky's factors: the golden
 * values of tests that minimise. */
#ifndef PL_LIB_CHOLESKY_H
#define PL_LIB_CHOLESKY_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* b ← a⁻¹·b. Overwrites the lower triangle of the n×n matrix. false: not positive definite. */
static inline bool cholesky_solve(double *a, double *b, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    }
    for (size_t i = 0; i < n; i++) { /* L·y = b */
        for (size_t k = 0; k < i; k++)
            b[i] -= a[i * n + k] * b[k];
        b[i] /= a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) { /* Lᵀ·x = y */
        for (size_t k = i + 1; k < n; k++)
            b[i] -= a[k * n + i] * b[k];
        b[i] /= a[i * n + i];
    }
    return true;
}

#endif
