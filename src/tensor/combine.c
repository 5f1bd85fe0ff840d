#include "tensor/combine.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

/* Floats at a time: few enough that several loops in turn find them in a core's nearest cache. */
enum { CHUNK = 2048 };

static size_t chunk_at(size_t n, size_t at)
{
    return n - at < CHUNK ? n - at : CHUNK;
}

static void sum_values(const struct combine *c, const float *const *x, size_t at, size_t n,
                       float *y)
{
    const float *a = x[0] + at, *b = x[1] + at;
    float p = c->coeff[0], q = c->coeff[1];
    for (size_t i = 0; i < n; i++)
        y[i] = p * a[i] + q * b[i];
    for (size_t k = 2; k < c->count; k++)
        for (size_t i = 0; i < n; i++)
            y[i] += c->coeff[k] * x[k][at + i];
}

/* Of all arrays but `without`, which may be none of them. */
static void multiply_values(const struct combine *c, const float *const *x, size_t without,
                            size_t at, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 1;
    for (size_t k = 0; k < c->count; k++)
        for (size_t i = 0; k != without && i < n; i++)
            y[i] *= x[k][at + i];
}

static void maximum_of(const struct combine *c, const float *const *x, size_t at, size_t n,
                       float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[0][at + i] > x[1][at + i] ? x[0][at + i] : x[1][at + i];
    for (size_t k = 2; k < c->count; k++)
        for (size_t i = 0; i < n; i++)
            y[i] = x[k][at + i] > y[i] ? x[k][at + i] : y[i];
}

void combine_forward(const struct combine *c, const float *const *x, float *y)
{
    PL_ASSERT(c->count >= 2);
    size_t n = c->n;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t len = chunk_at(n, at);
        switch (c->kind) {
        case COMBINE_SUM: sum_values(c, x, at, len, y + at); break;
        case COMBINE_PRODUCT: multiply_values(c, x, c->count, at, len, y + at); break;
        case COMBINE_MAX: maximum_of(c, x, at, len, y + at); break;
        }
    }
}

static void product_back(const struct combine *c, size_t k, const float *const *x, const float *dy,
                         size_t at, size_t n, float *dx)
{
    multiply_values(c, x, c->divide ? c->count : k, at, n, dx);
    for (size_t i = 0; c->divide && i < n; i++)
        dx[i] /= x[k][at + i];
    for (size_t i = 0; i < n; i++)
        dx[i] *= dy[at + i];
}

static size_t winner_of(const struct combine *c, const float *const *x, size_t i)
{
    size_t best = x[0][i] > x[1][i] ? 0 : 1;
    for (size_t k = 2; k < c->count; k++)
        best = x[k][i] > x[best][i] ? k : best;
    return best;
}

void combine_backward(const struct combine *c, size_t k, const float *const *x, const float *dy,
                      float *dx)
{
    PL_ASSERT(k < c->count);
    size_t n = c->n;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t len = chunk_at(n, at);
        if (c->kind == COMBINE_PRODUCT)
            product_back(c, k, x, dy, at, len, dx + at);
        else if (c->kind == COMBINE_SUM)
            for (size_t i = at; i < at + len; i++)
                dx[i] = c->coeff[k] * dy[i];
        else
            for (size_t i = at; i < at + len; i++)
                dx[i] = winner_of(c, x, i) == k ? dy[i] : 0;
    }
}
