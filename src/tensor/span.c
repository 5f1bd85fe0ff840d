#include "tensor/span.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

#include <math.h>
#include <string.h>

struct span span_of(const struct shape *x, enum layout layout, size_t axis)
{
    PL_ASSERT(axis < x->n && (layout == LAYOUT_PLAIN || (layout == LAYOUT_NHWC && x->n == 4)));
    struct span s = {.outer = 1, .n = x->dim[axis], .inner = 1};
    bool inside = false;
    for (size_t i = 0; i < x->n; i++) {
        static const size_t nhwc[] = {0, 2, 3, 1};
        size_t k = layout == LAYOUT_NHWC ? nhwc[i] : i;
        if (k == axis)
            inside = true;
        else
            *(inside ? &s.inner : &s.outer) *= x->dim[k];
    }
    return s;
}

/* ---- parts ---- */

/* `rows` rows of `len` bytes; x NULL: zeros. */
static void copy_rows(size_t rows, size_t len, const char *x, size_t x_step, char *y, size_t y_step)
{
#pragma omp parallel for schedule(static) if (rows * len >= PARALLEL_MIN * sizeof(float))
    for (size_t r = 0; r < rows; r++) {
        if (x)
            memcpy(y + r * y_step, x + r * x_step, len);
        else
            memset(y + r * y_step, 0, len);
    }
}

static void check_span(const struct span *part, const struct span *whole, size_t at)
{
    PL_ASSERT(part->outer == whole->outer && part->inner == whole->inner);
    PL_ASSERT(part->dtype == whole->dtype);
    PL_ASSERT(at <= whole->n && part->n <= whole->n - at);
}

/* Bytes of one position. */
static size_t place_of(const struct span *s)
{
    return s->inner * dtype_size(s->dtype);
}

void span_get(const struct span *whole, const void *x, const struct span *part, size_t at, void *y)
{
    size_t place = place_of(whole), len = part->n * place;
    check_span(part, whole, at);
    copy_rows(part->outer, len, (const char *)x + at * place, whole->n * place, y, len);
}

void span_put(const struct span *part, const void *x, const struct span *whole, size_t at, void *y)
{
    size_t place = place_of(whole), len = part->n * place;
    check_span(part, whole, at);
    copy_rows(part->outer, len, x, len, (char *)y + at * place, whole->n * place);
}

/* ---- softmax ---- */

/* This many neighbours are processed together along the axis: their floats share cache lines. */
enum { LANES = 16 };

/* The largest becomes e^0: nothing overflows, and the sum is at least 1. libm's exp differs between
 * CPUs in its last bit; rounded to float it is the same. */
static void softmax_lanes(size_t n, size_t step, size_t lanes, const float *x, float *y)
{
    float max[LANES], sum[LANES] = {0};
    memcpy(max, x, lanes * sizeof *max);
    for (size_t i = 1; i < n; i++)
        for (size_t l = 0; l < lanes; l++)
            max[l] = x[i * step + l] > max[l] ? x[i * step + l] : max[l];
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < lanes; l++) {
            float e = (float)exp((double)(x[i * step + l] - max[l]));
            y[i * step + l] = e;
            sum[l] += e;
        }
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < lanes; l++)
            y[i * step + l] /= sum[l];
}

static void softmax_lanes_backward(size_t n, size_t step, size_t lanes, const float *y,
                                   const float *dy, float *dx)
{
    double dot[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < lanes; l++)
            dot[l] += (double)dy[i * step + l] * (double)y[i * step + l];
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < lanes; l++)
            dx[i * step + l] =
                (float)((double)y[i * step + l] * ((double)dy[i * step + l] - dot[l]));
}

static size_t blocks_of(const struct span *s)
{
    return (s->inner + LANES - 1) / LANES;
}

/* Where block b of all begins, and how many neighbours it has. */
static size_t block_at(const struct span *s, size_t b, size_t *lanes)
{
    size_t blocks = blocks_of(s), first = b % blocks * LANES;
    *lanes = s->inner - first < LANES ? s->inner - first : LANES;
    return b / blocks * s->n * s->inner + first;
}

void span_softmax(const struct span *s, const float *x, float *y)
{
    size_t blocks = s->outer * blocks_of(s);
#pragma omp parallel for schedule(static) if (s->outer * s->n * s->inner >= PARALLEL_MIN)
    for (size_t b = 0; b < blocks; b++) {
        size_t lanes, at = block_at(s, b, &lanes);
        softmax_lanes(s->n, s->inner, lanes, x + at, y + at);
    }
}

void span_softmax_backward(const struct span *s, const float *y, const float *dy, float *dx)
{
    size_t blocks = s->outer * blocks_of(s);
#pragma omp parallel for schedule(static) if (s->outer * s->n * s->inner >= PARALLEL_MIN)
    for (size_t b = 0; b < blocks; b++) {
        size_t lanes, at = block_at(s, b, &lanes);
        softmax_lanes_backward(s->n, s->inner, lanes, y + at, dy + at, dx + at);
    }
}
