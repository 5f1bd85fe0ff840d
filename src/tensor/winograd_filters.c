/* See winograd_loops.h: filters on their way to the points and back, 16 outputs at a time. */
#include "tensor/winograd_points.h"

#include "tensor/turn.h"

enum {
    TAPS_MAX = 25,
    FILTERS = 4, /* at a time: reading whole vectors right after partial writes is slow */
};

/* u = G g: the polynomial with the factors g at each point, over the slope there. */
INLINE void filter_1d(int P, const floats *g, floats *u)
{
    u[0] = g[0] * (1 / points[P].slope[0]);
#pragma GCC unroll 16
    for (int i = 0; i < P; i++) {
        floats e = g[2 * P - 2], o = g[2 * P - 3];
#pragma GCC unroll 16
        for (int k = P - 2; k >= 0; k--) {
            e = g[2 * k] + square(P, i) * e;
            if (k)
                o = g[2 * k - 1] + square(P, i) * o;
        }
        o *= point(P, i);
        u[1 + 2 * i] = (e + o) * (1 / points[P].slope[i + 1]);
        u[2 + 2 * i] = (e - o) * (1 / points[P].slope[i + 1]);
    }
    u[2 * P + 1] = g[2 * P - 2];
}

/* g = G^T u. */
INLINE void filter_back_1d(int P, const floats *u, floats *g)
{
    const int K = 2 * P - 1;
#pragma GCC unroll 16
    for (int i = 0; i < P; i++) {
        floats e = (u[1 + 2 * i] + u[2 + 2 * i]) * (1 / points[P].slope[i + 1]);
        floats o = (u[1 + 2 * i] - u[2 + 2 * i]) * (point(P, i) / points[P].slope[i + 1]);
#pragma GCC unroll 16
        for (int k = 0; k < K; k++) {
            floats *term = k % 2 ? &o : &e;
            g[k] = i ? g[k] + *term : *term;
            *term *= square(P, i);
        }
    }
    g[0] += u[0] * (1 / points[P].slope[0]);
    g[K - 1] += u[2 * P + 1];
}

/* g (columns, 16) = transpose of w (rows, columns). */
INLINE void gather(const float *w, size_t step, size_t rows, size_t columns, float *g)
{
    for (size_t r = 0; r < rows; r += 4) {
        size_t c = 0;
        for (; r + 4 <= rows && c + 4 <= columns; c += 4)
            turn_four(w + r * step + c, step, g + c * BLOCK + r, BLOCK);
        for (; c < columns; c++)
            for (size_t i = r; i < rows && i < r + 4; i++)
                g[c * BLOCK + i] = w[i * step + c];
    }
}

/* w (rows, columns) += transpose of g (columns, 16). */
INLINE void scatter(const float *g, size_t step, size_t rows, size_t columns, float *w)
{
    for (size_t r = 0; r < rows; r += 4) {
        size_t c = 0;
        for (; r + 4 <= rows && c + 4 <= columns; c += 4) {
            float turned[4 * 4];
            turn_four(g + c * BLOCK + r, BLOCK, turned, 4);
            for (size_t i = 0; i < 4; i++) {
                float *to = w + (r + i) * step + c;
                four_store(to, four_load(to) + four_load(turned + 4 * i));
            }
        }
        for (; c < columns; c++)
            for (size_t i = r; i < rows && i < r + 4; i++)
                w[i * step + c] += g[c * BLOCK + i];
    }
}

INLINE void filter_tile(int P, bool turned, const float *g, float *u, size_t apart)
{
    const int alpha = 2 * P + 2, K = 2 * P - 1;
    floats t[5][ALPHA_MAX], line[5], row[ALPHA_MAX];
#pragma GCC unroll 16
    for (int j = 0; j < K; j++) {
#pragma GCC unroll 16
        for (int i = 0; i < K; i++)
            line[i] = floats_load(g + (turned ? K * K - 1 - i * K - j : i * K + j) * BLOCK);
        filter_1d(P, line, t[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < alpha; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < K; j++)
            line[j] = t[j][i];
        filter_1d(P, line, row);
        store_points(alpha, row, u + (size_t)(i * alpha) * apart, apart);
    }
}

INLINE size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

INLINE void filters(int P, const struct winograd_filters *f, const float *w, size_t k, size_t c,
                    size_t apart, float *U)
{
    const size_t taps = (size_t)((2 * P - 1) * (2 * P - 1));
    float g[FILTERS * TAPS_MAX * BLOCK] = {0};
    size_t width = least(f->out - c, BLOCK), end = least(f->in, k + BLOCK);
    w += c * f->out_step;
    for (size_t some; k < end; k += some, U += some * BLOCK) {
        some = least(end - k, FILTERS);
        if (f->in_step == taps)
            gather(w + k * taps, f->out_step, width, some * taps, g);
        for (size_t n = 0; n < some && f->in_step != taps; n++)
            gather(w + (k + n) * f->in_step, f->out_step, width, taps, g + n * taps * BLOCK);
        for (size_t n = 0; n < some * BLOCK; n += LANES) {
            const float *from = g + n / BLOCK * taps * BLOCK + n % BLOCK;
            if (f->turned)
                filter_tile(P, true, from, U + n, apart);
            else
                filter_tile(P, false, from, U + n, apart);
        }
    }
}

INLINE void filter_back_tile(int P, const float *dU, size_t apart, size_t parts, size_t part,
                             float *g)
{
    const int alpha = 2 * P + 2, K = 2 * P - 1;
    floats t[ALPHA_MAX][5], line[ALPHA_MAX], back[5];
#pragma GCC unroll 16
    for (int i = 0; i < alpha; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < alpha; j++) {
            const float *u = dU + (size_t)(i * alpha + j) * apart;
            line[j] = floats_load(u);
            for (size_t n = 1; n < parts; n++)
                line[j] += floats_load(u + n * part);
        }
        filter_back_1d(P, line, t[i]);
    }
#pragma GCC unroll 16
    for (int j = 0; j < K; j++) {
#pragma GCC unroll 16
        for (int i = 0; i < alpha; i++)
            line[i] = t[i][j];
        filter_back_1d(P, line, back);
#pragma GCC unroll 16
        for (int i = 0; i < K; i++)
            floats_store(g + (i * K + j) * BLOCK, back[i]);
    }
}

INLINE void filters_back(int P, const struct winograd_filters *f, const float *dU, size_t apart,
                         size_t parts, size_t part, size_t k, size_t c, float *dw)
{
    const size_t taps = (size_t)((2 * P - 1) * (2 * P - 1));
    float g[FILTERS * TAPS_MAX * BLOCK];
    size_t width = least(f->out - c, BLOCK), end = least(f->in, k + BLOCK);
    dw += c * f->out_step;
    for (size_t some; k < end; k += some, dU += some * BLOCK) {
        some = least(end - k, FILTERS);
        for (size_t n = 0; n < some * BLOCK; n += LANES)
            filter_back_tile(P, dU + n, apart, parts, part,
                             g + n / BLOCK * taps * BLOCK + n % BLOCK);
        scatter(g, f->out_step, width, some * taps, dw + k * taps);
    }
}

#define LOOPS_OF(P)                                                                               \
    static void filters_##P(const struct winograd_filters *f, const float *w, size_t k, size_t c, \
                            size_t apart, float *U)                                               \
    {                                                                                             \
        filters(P, f, w, k, c, apart, U);                                                         \
    }                                                                                             \
    static void filters_back_##P(const struct winograd_filters *f, const float *dU, size_t apart, \
                                 size_t parts, size_t part, size_t k, size_t c, float *dw)        \
    {                                                                                             \
        filters_back(P, f, dU, apart, parts, part, k, c, dw);                                     \
    }

LOOPS_OF(2)
LOOPS_OF(3)

const struct winograd_filter_loops ISA_NAME(winograd_filters)[WINOGRAD_KERNELS] = {
    [WINOGRAD_3X3] = {filters_2, filters_back_2},
    [WINOGRAD_5X5] = {filters_3, filters_back_3},
};
