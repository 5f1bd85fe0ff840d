#include "tensor/reduce.h"

#include "base/fault.h"
#include "tensor/vec.h"

#include <stdint.h>
#include <string.h>

static const uint32_t quiet_nan = 0x7fc00000u;

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* A number that grows with x, NaNs apart: bits of negative floats count downwards. */
static inline int32_t rank_of(uint32_t bits)
{
    uint32_t flip = (0u - (bits >> 31)) & 0x7fffffffu;
    return (int32_t)(bits ^ flip);
}

/* Selects among bits, since max and min of floats differ in zeros and NaNs from one instruction set
 * to the next. */
static inline float choose_float(float y, float x, int32_t sign)
{
    uint32_t a = bits_of(y), b = bits_of(x);
    int32_t p = rank_of(a) ^ sign, q = rank_of(b) ^ sign;
    uint32_t bits = p > q ? a : b;
    bits = y != y || x != x ? quiet_nan : bits;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void reduce_max(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = choose_float(y[i], x[i], 0);
}

/* Inverting all bits of a rank reverses the order. */
static void reduce_min(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = choose_float(y[i], x[i], -1);
}

void reduce_range(const struct reduction *r, float *y, const float *x, size_t n)
{
    if (n == 0)
        return;
    switch (r->kind) {
    case REDUCE_SUM: vec_host_add(y, x, n); return;
    case REDUCE_MAX: reduce_max(y, x, n); return;
    case REDUCE_MIN: reduce_min(y, x, n); return;
    case REDUCE_USER:
        PL_ASSERT(r->fn);
        r->fn(r->user, y, x, n);
        return;
    }
    PL_ASSERT(!"a kind of reduction");
}
