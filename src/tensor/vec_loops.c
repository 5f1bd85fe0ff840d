/* See vec_kernels.h: this file may be compiled several times, so everything but the table is static
 * and nothing keeps state. The compiler vectorises these loops at -O3. */
#include "tensor/vec_kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef VEC_KERNELS
#define VEC_KERNELS     vec_kernels_base
#define VEC_KERNELS_ISA "base"
#endif

static void loop_fill(float *y, float value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = value;
}

static void loop_scale(float *y, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * y[i];
}

static void loop_add(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static void loop_axpy(float *restrict y, float a, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + a * x[i];
}

static void axpy_sign(float *restrict y, float a, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + (x[i] > 0 ? a : x[i] < 0 ? -a : 0.0f);
}

static void loop_lerp(float *restrict y, float t, const float *restrict x, size_t n)
{
    float keep = 1.0f - t;
    for (size_t i = 0; i < n; i++)
        y[i] = keep * y[i] + t * x[i];
}

static void loop_penalise(float *restrict x, float alpha, const float *restrict joint, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] - alpha * (x[i] - joint[i]);
}

static void loop_extrapolate(float *restrict out, float *restrict v, const float *restrict x,
                             const float *restrict x_prev, float delta, float fresh, float gamma,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        v[i] = delta * v[i] + fresh * (x[i] - x_prev[i]);
        out[i] = x[i] + gamma * v[i];
    }
}

static void loop_product(float *restrict y, float a, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i];
}

static void loop_sgd(float *restrict x, const float *restrict dx, float *restrict m,
                     struct vec_sgd_step rule, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        m[i] = rule.momentum * m[i] + rule.rate * g;
        x[i] = x[i] - m[i];
    }
}

static void loop_nesterov(float *restrict x, const float *restrict dx, float *restrict m,
                          struct vec_sgd_step rule, size_t n)
{
    float ahead = 1.0f + rule.momentum;
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        float before = rule.momentum * m[i];
        m[i] = before + rule.rate * g;
        x[i] = x[i] - (ahead * m[i] - before);
    }
}

static void loop_adagrad(float *restrict x, const float *restrict dx, float *restrict h,
                         struct vec_adagrad_step rule, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        h[i] = h[i] + g * g;
        x[i] = x[i] - rule.rate * (g / (sqrtf(h[i]) + rule.delta));
    }
}

static void loop_rmsprop(float *restrict x, const float *restrict dx, float *restrict h,
                         struct vec_rmsprop_step rule, size_t n)
{
    float fresh = 1.0f - rule.rms_decay;
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        h[i] = rule.rms_decay * h[i] + fresh * (g * g);
        x[i] = x[i] - rule.rate * (g / (sqrtf(h[i]) + rule.delta));
    }
}

static void loop_adadelta(float *restrict x, const float *restrict dx, float *restrict h,
                          float *restrict u, struct vec_adadelta_step rule, size_t n)
{
    float fresh = 1.0f - rule.momentum;
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        h[i] = rule.momentum * h[i] + fresh * (g * g);
        float step = sqrtf((u[i] + rule.delta) / (h[i] + rule.delta)) * g;
        u[i] = rule.momentum * u[i] + fresh * (step * step);
        x[i] = x[i] - rule.rate * step;
    }
}

static void loop_adam(float *restrict x, const float *restrict dx, float *restrict m,
                      float *restrict v, struct vec_adam_step rule, size_t n)
{
    float fresh1 = 1.0f - rule.beta1, fresh2 = 1.0f - rule.beta2;
    for (size_t i = 0; i < n; i++) {
        float g = dx[i] + rule.decay * x[i];
        m[i] = rule.beta1 * m[i] + fresh1 * g;
        v[i] = rule.beta2 * v[i] + fresh2 * (g * g);
        x[i] = rule.keep * x[i] - rule.rate * (m[i] / (sqrtf(v[i]) + rule.delta));
    }
}

/* Infinities and NaNs are the floats with an exponent of all ones. */
static bool loop_finite(const float *x, size_t n)
{
    const uint32_t exponent = 0x7f800000u;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

/* Element i goes to lane i mod LANES, and the lanes are added pairwise: an order that does not
 * depend on the width of a register. A product of floats is exact in double. */
static double dot_block(const float *a, const float *b, size_t n)
{
    enum { LANES = 8 };
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * (double)b[i + j];
    for (size_t j = 0; i + j < n; j++)
        lane[j] += (double)a[i + j] * (double)b[i + j];
    for (size_t width = LANES / 2; width; width /= 2)
        for (size_t j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

const struct vec_kernels VEC_KERNELS = {
    .isa = VEC_KERNELS_ISA,
    .fill = loop_fill,
    .scale = loop_scale,
    .add = loop_add,
    .axpy = loop_axpy,
    .axpy_sign = axpy_sign,
    .lerp = loop_lerp,
    .penalise = loop_penalise,
    .extrapolate = loop_extrapolate,
    .product = loop_product,
    .sgd = loop_sgd,
    .nesterov = loop_nesterov,
    .adagrad = loop_adagrad,
    .rmsprop = loop_rmsprop,
    .adadelta = loop_adadelta,
    .adam = loop_adam,
    .finite = loop_finite,
    .dot_block = dot_block,
};
