/* The points of Winograd's transforms, for the loops of winograd_loops.h. */
#ifndef PL_TENSOR_WINOGRAD_POINTS_H
#define PL_TENSOR_WINOGRAD_POINTS_H

#include "tensor/winograd_loops.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = WINOGRAD_TILE, BLOCK = WINOGRAD_BLOCK, ALPHA_MAX = 8 };

/* Polynomials are taken at α points: 0, P pairs ±p, and ∞. K = 2P - 1, α = 2P + 2. */
enum { P_3X3 = 2, P_5X5 = 3 };

/* Points about 1 whose products are exact keep errors small (Barabasz et al.): those for 3 × 3 have
 * a quarter of the error of ±1, ±2. */
static const struct {
    float p[3];
    float all[4];    /* the factors of 1, y, y², .. of Π (y - p²) */
    float but[3][3]; /* without one of the pairs */
    float slope[4];  /* of x Π (x² - p²), at 0 and at the pairs */
} points[] = {
    [P_3X3] = {{0.625f, 1.5f},
               {0.87890625f, -2.640625f, 1},
               {{-2.25f, 1}, {-0.390625f, 1}},
               {0.87890625f, -1.45263671875f, 8.3671875f}},
    [P_5X5] = {{0.5f, 1, 2},
               {-1, 5.25f, -5.25f, 1},
               {{4, -5, 1}, {1, -4.25f, 1}, {0.25f, -1.25f, 1}},
               {-1, 1.40625f, -4.5f, 90}},
};

INLINE float point(int P, int i)
{
    return points[P].p[i];
}

INLINE float square(int P, int i)
{
    return points[P].p[i] * points[P].p[i];
}

INLINE void store_points(int n, const floats *v, float *to, size_t apart)
{
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        floats_store(to + (size_t)i * apart, v[i]);
}

#endif
