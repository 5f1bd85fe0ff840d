/* Local response normalisation of NCHW images in plain C, plane by plane; equations in kernels.h.
 */
#include "tensor/kernels_ref.h"

#include "tensor/kernels_common.h"

#include <math.h>

struct lrn_op {
    struct op op;
    struct lrn_spec spec;
    struct image x;
    float *s, *t; /* s, and dy · y / s, of one image */
};

/* The neighbourhood of i: *first..*end, both within 0..n. */
static void window_around(size_t i, size_t n, size_t size, size_t *first, size_t *end)
{
    size_t half = size / 2;
    *first = i > half ? i - half : 0;
    *end = i + half < n ? i + half + 1 : n;
}

/* The sum over i's neighbourhood of u, one image. */
static float sum_neighbours(const struct lrn_op *lrn, const float *u, size_t i)
{
    size_t C = lrn->x.C, H = lrn->x.H, W = lrn->x.W, P = H * W;
    size_t c = i / P, h = i / W % H, w = i % W;
    size_t c0 = c, c1 = c + 1, h0 = h, h1 = h + 1, w0 = w, w1 = w + 1;
    if (lrn->spec.region == LRN_ACROSS)
        window_around(c, C, lrn->spec.size, &c0, &c1);
    else {
        window_around(h, H, lrn->spec.size, &h0, &h1);
        window_around(w, W, lrn->spec.size, &w0, &w1);
    }
    float sum = 0;
    for (c = c0; c < c1; c++)
        for (h = h0; h < h1; h++)
            for (w = w0; w < w1; w++)
                sum += u[c * P + h * W + w];
    return sum;
}

/* alpha over the size of the neighbourhood, padding included. */
static float share_of(const struct lrn_spec *spec)
{
    float size = (float)spec->size;
    return spec->region == LRN_ACROSS ? spec->alpha / size : spec->alpha / (size * size);
}

/* libm's last bit differs between CPUs: as a float it is the same. */
static float power_of(float s, float beta)
{
    return (float)pow((double)s, -(double)beta);
}

static void set_s(const struct lrn_op *lrn, const float *x)
{
    size_t size = lrn->x.C * lrn->x.H * lrn->x.W;
    float k = lrn->spec.region == LRN_ACROSS ? lrn->spec.k : 1, a = share_of(&lrn->spec);
    for (size_t i = 0; i < size; i++)
        lrn->t[i] = x[i] * x[i];
#pragma omp parallel for schedule(static) if (size >= PARALLEL_MIN)
    for (size_t i = 0; i < size; i++)
        lrn->s[i] = k + a * sum_neighbours(lrn, lrn->t, i);
}

static void lrn_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t size = lrn->x.C * lrn->x.H * lrn->x.W;
    for (size_t n = 0; n < lrn->x.N; n++) {
        const float *x = io.x + n * size;
        float *y = io.y + n * size;
        set_s(lrn, x);
#pragma omp parallel for schedule(static) if (size >= PARALLEL_MIN)
        for (size_t i = 0; i < size; i++)
            y[i] = x[i] * power_of(lrn->s[i], lrn->spec.beta);
    }
}

static void lrn_backward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    if (!io.dx)
        return;
    size_t size = lrn->x.C * lrn->x.H * lrn->x.W;
    float beta = lrn->spec.beta, slope = 2 * beta * share_of(&lrn->spec);
    for (size_t n = 0; n < lrn->x.N; n++) {
        const float *x = io.x + n * size, *dy = io.dy + n * size;
        float *dx = io.dx + n * size;
        set_s(lrn, x);
#pragma omp parallel for schedule(static) if (size >= PARALLEL_MIN)
        for (size_t i = 0; i < size; i++) {
            dx[i] = dy[i] * power_of(lrn->s[i], beta);
            lrn->t[i] = dx[i] * x[i] / lrn->s[i];
        }
#pragma omp parallel for schedule(static) if (size >= PARALLEL_MIN)
        for (size_t i = 0; i < size; i++)
            dx[i] -= slope * x[i] * sum_neighbours(lrn, lrn->t, i);
    }
}

static const struct op_ops lrn_training = {lrn_forward, lrn_backward, NULL};
static const struct op_ops lrn_inference = {lrn_forward, NULL, NULL};

int ref_plan_lrn(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
                 struct err *err)
{
    lrn_check(spec);
    struct image x = image_of(&spec->x);
    size_t size = x.C * x.H * x.W;
    struct lrn_op *lrn = arena_new(arena, struct lrn_op);
    float *s = arena_array(arena, size, float), *t = arena_array(arena, size, float);
    if (!lrn || !s || !t)
        return plan_nomem("LRN", err);
    *lrn = (struct lrn_op){
        .op = {.ops = training ? &lrn_training : &lrn_inference,
               .scratch_bytes = 2 * size * sizeof(float)},
        .spec = *spec,
        .x = x,
        .s = s,
        .t = t,
    };
    *op = &lrn->op;
    return OK;
}
