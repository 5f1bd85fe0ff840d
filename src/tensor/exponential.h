/* For loops that are compiled for each instruction set (isa_loops.h): e^x of a register of floats,
 * good to a unit of the last place: 2^n e^r, where ln 2 is taken off in two parts, as in Moshier's
 * Cephes library, and e^r is a polynomial whose largest error relative to e^r, 2e-8, is the least
 * that its degree allows. */
#ifndef PL_TENSOR_EXPONENTIAL_H
#define PL_TENSOR_EXPONENTIAL_H

#include "tensor/isa_loops.h"

#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

typedef int ints __attribute__((vector_size(LANES * sizeof(int))));

/* The first `len` of a register; the others are 0. */
#if defined __AVX512F__
INLINE floats load(const float *p, size_t len)
{
    return len >= LANES
               ? floats_load(p)
               : (floats)_mm512_maskz_loadu_ps((__mmask16)((1u << len) - 1), (const void *)p);
}

INLINE void store(float *p, floats v, size_t len)
{
    if (len >= LANES)
        floats_store(p, v);
    else
        _mm512_mask_storeu_ps((void *)p, (__mmask16)((1u << len) - 1), (__m512)v);
}
#else
INLINE floats load(const float *p, size_t len)
{
    floats v = {0};
    if (len >= LANES)
        return floats_load(p);
    __builtin_memcpy(&v, p, len * sizeof *p);
    return v;
}

INLINE void store(float *p, floats v, size_t len)
{
    if (len >= LANES)
        floats_store(p, v);
    else
        __builtin_memcpy(p, &v, len * sizeof *p);
}
#endif

INLINE floats choose(ints which, floats yes, floats no)
{
    return (floats)(((ints)yes & which) | ((ints)no & ~which));
}

/* x between -most and most, or NaN; the whole number n nearest to x / ln 2; 2^n p; 1 / x. AVX-512
 * has instructions for these. */
#if defined __AVX512F__
INLINE floats clamp(floats x, float most)
{
    __m512 high = _mm512_max_ps(_mm512_set1_ps(-most), (__m512)x);
    return (floats)_mm512_min_ps(_mm512_set1_ps(most), high);
}

INLINE floats nearest_power(floats x, floats *n)
{
    return *n = (floats)_mm512_roundscale_ps((__m512)(x * 1.44269504088896341f), 0);
}

INLINE floats scale_by_power(floats p, floats power)
{
    return (floats)_mm512_scalef_ps((__m512)p, (__m512)power);
}

/* One step of Newton's from 14 bits. */
INLINE floats reciprocal(floats x)
{
    floats y = (floats)_mm512_rcp14_ps((__m512)x);
    return y + y * (1.0f - x * y);
}
#else
INLINE floats clamp(floats x, float most)
{
    x = choose(x < -most, (floats){0} - most, x);
    return choose(x > most, (floats){0} + most, x);
}

/* Returns a number whose last bits are n's. */
INLINE floats nearest_power(floats x, floats *n)
{
    const floats round = (floats){0} + 0x1.8p23f;
    floats shifted = x * 1.44269504088896341f + round;
    *n = shifted - round;
    return shifted;
}

INLINE floats scale_by_power(floats p, floats power)
{
    const floats round = (floats){0} + 0x1.8p23f;
    return p * (floats)(((ints)power - (ints)round + 127) << 23);
}

INLINE floats reciprocal(floats x)
{
    return 1.0f / x;
}
#endif

/* e^x of a number between -87 and 87, or NaN. */
INLINE floats exponential_inside(floats x)
{
    floats n, power = nearest_power(x, &n);
    floats r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    floats p = r * 1.3836846e-3f + 8.3748158e-3f;
    p = p * r + 4.1668225e-2f;
    p = p * r + 1.6666420e-1f;
    p = p * r + 4.9999991e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return scale_by_power(p, power);
}

/* Beyond -87 and 87 it is that of these. */
INLINE floats exponential(floats x)
{
    return exponential_inside(clamp(x, 87));
}

#endif
