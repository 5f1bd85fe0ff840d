/* See lrn_loops.h. Across channels a pixel's row has zeros before and after it in scratch, and is
 * processed in whole vectors: values past its last channel are computed and ignored. Backward
 * computes s again from x, which costs less than the memory for keeping it. */
#include "tensor/lrn_loops.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));

#define INLINE static inline __attribute__((always_inline))

/* ---- powers ---- */

/* s^-beta, and 1/s for the way back. */
struct powers {
    floats p, inverse;
};

/* s^-1/4 by three steps of Newton's from a guess by the exponent, each of which squares the error,
 * at first 4 %: less than a division costs, or a root. s beyond 2^120 counts as that. */
INLINE struct powers quarters(floats s)
{
    floats most = (floats){0} + 0x1p120f;
    words past = (words)(s > most);
    s = (floats)(((words)most & past) | ((words)s & ~past));
    floats y = (floats)(0x4f58cae5u - ((words)s >> 2)), part = s * -0.25f;
    for (int i = 0; i < 3; i++) {
        floats square = y * y;
        y *= part * (square * square) + 1.25f;
    }
    floats square = y * y;
    return (struct powers){square * y, square * square};
}

INLINE struct powers powers_of(const struct lrn_form *f, enum lrn_power power, floats s)
{
    if (power == LRN_QUARTERS)
        return quarters(s);
    struct powers r = {.inverse = 1 / s};
    float t[LANES];
    memcpy(t, &s, sizeof t);
    for (size_t l = 0; l < LANES && power == LRN_HALF; l++)
        t[l] = 1 / sqrtf(t[l]);
    for (size_t l = 0; l < LANES && power == LRN_ANY; l++)
        t[l] = powf(t[l], -f->beta);
    memcpy(&r.p, t, sizeof t);
    if (power == LRN_ONE)
        r.p = r.inverse;
    return r;
}

/* ---- lanes ---- */

/* The channels from c on; those past the last are 0. */
INLINE floats load(const float *x, size_t c, size_t C)
{
    if (c + LANES <= C)
        return floats_load(x + c);
    floats v = {0};
    memcpy(&v, x + c, (C - c) * sizeof *x);
    return v;
}

INLINE void store(float *y, size_t c, size_t C, floats v)
{
    if (c + LANES <= C)
        floats_store(y + c, v);
    else
        memcpy(y + c, &v, (C - c) * sizeof *y);
}

/* ---- across channels ---- */

/* A row in scratch: the channels, and around them the zeros that a window may reach, the last
 * vector's as well. */
static size_t row_floats(const struct lrn_form *f)
{
    return (f->C + LANES - 1) / LANES * LANES + f->size - 1;
}

static size_t across_floats(const struct lrn_form *f)
{
    return 2 * LRN_PIXELS * row_floats(f);
}

static void clear_ends(const struct lrn_form *f, float *row)
{
    size_t first = f->size / 2, end = first + f->C;
    memset(row, 0, first * sizeof *row);
    memset(row + end, 0, (row_floats(f) - end) * sizeof *row);
}

static void square_row(const struct lrn_form *f, const float *x, float *row)
{
    for (size_t c = 0; c < f->C; c += LANES) {
        floats v = load(x, c, f->C);
        floats_store(row + f->size / 2 + c, v * v);
    }
    clear_ends(f, row);
}

INLINE floats sum_around(const float *row, size_t c, size_t size)
{
    floats sum = floats_load(row + c);
    for (size_t i = 1; i < size; i++)
        sum += floats_load(row + c + i);
    return sum;
}

/* `size` and `power` are f's, and constants where that is worth it. */
INLINE void across_rows(const struct lrn_form *f, size_t n, const float *x, float *scratch,
                        float *y, size_t size, enum lrn_power power)
{
    size_t C = f->C, floats_a_row = row_floats(f);
    for (size_t i = 0; i < n; i++)
        square_row(f, x + i * C, scratch + i * floats_a_row);
    for (size_t i = 0; i < n; i++, x += C, y += C)
        for (size_t c = 0; c < C; c += LANES) {
            floats s = sum_around(scratch + i * floats_a_row, c, size) * f->share + f->k;
            store(y, c, C, load(x, c, C) * powers_of(f, power, s).p);
        }
}

/* dx = dy · p - slope · x · Σ dy · y / s */
INLINE void across_rows_back(const struct lrn_form *f, size_t n, const float *x, const float *dy,
                             float *scratch, float *dx, size_t size, enum lrn_power power)
{
    size_t C = f->C, floats_a_row = row_floats(f), half = f->size / 2;
    float slope = 2 * f->beta * f->share;
    float *ratio = scratch + LRN_PIXELS * floats_a_row;
    for (size_t i = 0; i < n; i++)
        square_row(f, x + i * C, scratch + i * floats_a_row);
    for (size_t i = 0; i < n; i++) {
        const float *xi = x + i * C, *dyi = dy + i * C;
        float *to = ratio + i * floats_a_row;
        for (size_t c = 0; c < C; c += LANES) {
            floats s = sum_around(scratch + i * floats_a_row, c, size) * f->share + f->k;
            struct powers r = powers_of(f, power, s);
            floats own = load(dyi, c, C) * r.p;
            floats_store(to + half + c, own * load(xi, c, C) * r.inverse);
            store(dx + i * C, c, C, own);
        }
        clear_ends(f, to);
    }
    for (size_t i = 0; i < n; i++, x += C, dx += C)
        for (size_t c = 0; c < C; c += LANES) {
            floats t = sum_around(ratio + i * floats_a_row, c, size);
            store(dx, c, C, load(dx, c, C) - slope * load(x, c, C) * t);
        }
}

static void lrn_across(const struct lrn_form *f, size_t n, const float *x, float *scratch, float *y)
{
    if (f->size == 5 && f->power == LRN_QUARTERS)
        across_rows(f, n, x, scratch, y, 5, LRN_QUARTERS);
    else
        across_rows(f, n, x, scratch, y, f->size, f->power);
}

static void across_back(const struct lrn_form *f, size_t n, const float *x, const float *dy,
                        float *scratch, float *dx)
{
    if (f->size == 5 && f->power == LRN_QUARTERS)
        across_rows_back(f, n, x, dy, scratch, dx, 5, LRN_QUARTERS);
    else
        across_rows_back(f, n, x, dy, scratch, dx, f->size, f->power);
}

/* ---- within a channel ---- */

static size_t within_floats(const struct lrn_form *f)
{
    return 2 * f->H * f->W * f->C;
}

/* Of channels from c on, over the pixels around one of an image. */
static floats sum_pixels(const struct lrn_form *f, const float *u, size_t pixel, size_t c)
{
    size_t h = pixel / f->W, w = pixel % f->W, half = f->size / 2;
    size_t h0 = h > half ? h - half : 0, h1 = h + half < f->H ? h + half + 1 : f->H;
    size_t w0 = w > half ? w - half : 0, w1 = w + half < f->W ? w + half + 1 : f->W;
    floats sum = {0};
    for (h = h0; h < h1; h++)
        for (w = w0; w < w1; w++)
            sum += load(u + (h * f->W + w) * f->C, c, f->C);
    return sum;
}

static void square_values(size_t n, const float *restrict x, float *restrict u)
{
    for (size_t i = 0; i < n; i++)
        u[i] = x[i] * x[i];
}

static void lrn_within(const struct lrn_form *f, const float *x, float *scratch, float *y)
{
    size_t C = f->C, P = f->H * f->W;
    square_values(P * C, x, scratch);
    for (size_t i = 0; i < P; i++, x += C, y += C)
        for (size_t c = 0; c < C; c += LANES) {
            floats s = sum_pixels(f, scratch, i, c) * f->share + f->k;
            store(y, c, C, load(x, c, C) * powers_of(f, f->power, s).p);
        }
}

static void within_back(const struct lrn_form *f, const float *x, const float *dy, float *scratch,
                        float *dx)
{
    size_t C = f->C, P = f->H * f->W;
    float slope = 2 * f->beta * f->share, *ratio = scratch + P * C;
    square_values(P * C, x, scratch);
    for (size_t i = 0; i < P; i++)
        for (size_t c = 0; c < C; c += LANES) {
            floats s = sum_pixels(f, scratch, i, c) * f->share + f->k;
            struct powers r = powers_of(f, f->power, s);
            floats own = load(dy + i * C, c, C) * r.p;
            store(ratio + i * C, c, C, own * load(x + i * C, c, C) * r.inverse);
            store(dx + i * C, c, C, own);
        }
    for (size_t i = 0; i < P; i++, x += C, dx += C)
        for (size_t c = 0; c < C; c += LANES)
            store(dx, c, C, load(dx, c, C) - slope * load(x, c, C) * sum_pixels(f, ratio, i, c));
}

const struct lrn_loops ISA_NAME(lrn_loops) = {
    .across_floats = across_floats,
    .within_floats = within_floats,
    .across = lrn_across,
    .across_back = across_back,
    .within = lrn_within,
    .within_back = within_back,
};
