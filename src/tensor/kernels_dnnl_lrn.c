/* Local response normalisation of NHWC images; equations in kernels.h. These are loops of ours:
 * oneDNN's fast code asks for beta = 3/4 and channels in whole vectors.
 *
 * A pixel's channels are a row, and all there is to do goes row by row, within a core's cache. The
 * way back computes s anew from x, which costs less than the memory it would be kept in. */
#include "tensor/kernels_dnnl.h"

#include "tensor/kernels_common.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum power { POWER_HALF, POWER_THREE_QUARTERS, POWER_ONE, POWER_ANY };

struct lrn_op {
    struct op op;
    struct lrn_spec spec;
    struct image x;
    enum power power;
    float k, share; /* s = k + share · Σ x² */
    int threads;
    size_t floats; /* of a thread's scratch */
    float *scratch;
};

/* A thread's scratch. across: u is a row with zeros before and after it; within: u and v are
 * images. */
struct rows {
    float *u, *v, *t, *p;
};

static struct rows rows_of(const struct lrn_op *lrn)
{
    size_t C = lrn->x.C;
    struct rows rows = {.t = lrn->scratch + (size_t)omp_get_thread_num() * lrn->floats};
    rows.p = rows.t + C;
    rows.u = rows.p + C;
    rows.v = rows.u + lrn->x.H * lrn->x.W * C;
    return rows;
}

/* ---- rows ---- */

/* p = s^-beta. Roots take a few cycles a vector, powers a hundred an element. */
static void set_power(const struct lrn_op *lrn, const float *restrict s, float *restrict p)
{
    size_t C = lrn->x.C;
    for (size_t c = 0; c < C && lrn->power == POWER_HALF; c++)
        p[c] = 1 / sqrtf(s[c]);
    for (size_t c = 0; c < C && lrn->power == POWER_THREE_QUARTERS; c++) {
        float root = sqrtf(s[c]);
        p[c] = 1 / (root * sqrtf(root));
    }
    for (size_t c = 0; c < C && lrn->power == POWER_ONE; c++)
        p[c] = 1 / s[c];
    for (size_t c = 0; c < C && lrn->power == POWER_ANY; c++)
        p[c] = powf(s[c], -lrn->spec.beta);
}

static void add_row(size_t n, const float *restrict u, float *restrict t)
{
    for (size_t i = 0; i < n; i++)
        t[i] += u[i];
}

/* From t, the sums of x², to s. */
static void set_s(const struct lrn_op *lrn, float *t)
{
    for (size_t c = 0; c < lrn->x.C; c++)
        t[c] = lrn->k + lrn->share * t[c];
}

static void square(size_t n, const float *restrict x, float *restrict u)
{
    for (size_t i = 0; i < n; i++)
        u[i] = x[i] * x[i];
}

static void multiply(size_t n, const float *restrict x, const float *restrict p, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * p[i];
}

/* u = dy · y / s */
static void set_ratio(size_t C, const float *restrict dy, const float *restrict x,
                      const float *restrict p, const float *restrict s, float *restrict u)
{
    for (size_t c = 0; c < C; c++)
        u[c] = dy[c] * x[c] * p[c] / s[c];
}

/* dx = dy · p - slope · x · t */
static void combine(const struct lrn_op *lrn, const float *restrict dy, const float *restrict p,
                    const float *restrict x, const float *restrict t, float *restrict dx)
{
    float slope = 2 * lrn->spec.beta * lrn->share;
    for (size_t c = 0; c < lrn->x.C; c++)
        dx[c] = dy[c] * p[c] - slope * x[c] * t[c];
}

/* ---- across channels ---- */

static void sum_channels(const struct lrn_op *lrn, const float *u, float *t)
{
    memcpy(t, u, lrn->x.C * sizeof *t);
    for (size_t i = 1; i < lrn->spec.size; i++)
        add_row(lrn->x.C, u + i, t);
}

static void across_s_and_power(const struct lrn_op *lrn, const float *x, const struct rows *rows)
{
    square(lrn->x.C, x, rows->u + lrn->spec.size / 2);
    sum_channels(lrn, rows->u, rows->t);
    set_s(lrn, rows->t);
    set_power(lrn, rows->t, rows->p);
}

static void across_forward(struct op *op, const struct op_args *args)
{
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t C = lrn->x.C, pixels = lrn->x.N * lrn->x.H * lrn->x.W;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t i = 0; i < pixels; i++) {
        struct rows rows = rows_of(lrn);
        across_s_and_power(lrn, args->x + i * C, &rows);
        multiply(C, args->x + i * C, rows.p, args->y + i * C);
    }
}

static void across_backward(struct op *op, const struct op_args *args)
{
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t C = lrn->x.C, pixels = lrn->x.N * lrn->x.H * lrn->x.W;
    if (!args->dx)
        return;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t i = 0; i < pixels; i++) {
        struct rows rows = rows_of(lrn);
        const float *x = args->x + i * C, *dy = args->dy + i * C;
        across_s_and_power(lrn, x, &rows);
        set_ratio(C, dy, x, rows.p, rows.t, rows.u + lrn->spec.size / 2);
        sum_channels(lrn, rows.u, rows.t);
        combine(lrn, dy, rows.p, x, rows.t, args->dx + i * C);
    }
}

/* ---- within a channel ---- */

static void sum_pixels(const struct lrn_op *lrn, const float *u, size_t pixel, float *t)
{
    size_t H = lrn->x.H, W = lrn->x.W, C = lrn->x.C, half = lrn->spec.size / 2;
    size_t h = pixel / W, w = pixel % W;
    size_t h0 = h > half ? h - half : 0, h1 = h + half < H ? h + half + 1 : H;
    size_t w0 = w > half ? w - half : 0, w1 = w + half < W ? w + half + 1 : W;
    memset(t, 0, C * sizeof *t);
    for (h = h0; h < h1; h++)
        for (w = w0; w < w1; w++)
            add_row(C, u + (h * W + w) * C, t);
}

static void within_s_and_power(const struct lrn_op *lrn, size_t pixel, const struct rows *rows)
{
    sum_pixels(lrn, rows->u, pixel, rows->t);
    set_s(lrn, rows->t);
    set_power(lrn, rows->t, rows->p);
}

static void within_forward(struct op *op, const struct op_args *args)
{
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t C = lrn->x.C, P = lrn->x.H * lrn->x.W;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t n = 0; n < lrn->x.N; n++) {
        struct rows rows = rows_of(lrn);
        const float *x = args->x + n * P * C;
        square(P * C, x, rows.u);
        for (size_t i = 0; i < P; i++) {
            within_s_and_power(lrn, i, &rows);
            multiply(C, x + i * C, rows.p, args->y + (n * P + i) * C);
        }
    }
}

/* Each pixel's ratio and power wait, in v and in dx, until those around it have theirs. */
static void within_backward_image(const struct lrn_op *lrn, const float *x, const float *dy,
                                  float *dx)
{
    struct rows rows = rows_of(lrn);
    size_t C = lrn->x.C, P = lrn->x.H * lrn->x.W;
    square(P * C, x, rows.u);
    for (size_t at = 0; at < P * C; at += C) {
        within_s_and_power(lrn, at / C, &rows);
        set_ratio(C, dy + at, x + at, rows.p, rows.t, rows.v + at);
        memcpy(dx + at, rows.p, C * sizeof *dx);
    }
    for (size_t at = 0; at < P * C; at += C) {
        sum_pixels(lrn, rows.v, at / C, rows.t);
        memcpy(rows.p, dx + at, C * sizeof *dx);
        combine(lrn, dy + at, rows.p, x + at, rows.t, dx + at);
    }
}

static void within_backward(struct op *op, const struct op_args *args)
{
    const struct lrn_op *lrn = (const struct lrn_op *)op;
    size_t size = lrn->x.C * lrn->x.H * lrn->x.W;
    if (!args->dx)
        return;
#pragma omp parallel for schedule(static) num_threads(lrn->threads)
    for (size_t n = 0; n < lrn->x.N; n++)
        within_backward_image(lrn, args->x + n * size, args->dy + n * size, args->dx + n * size);
}

/* ---- planning ---- */

static const struct op_ops across_training = {across_forward, across_backward, NULL};
static const struct op_ops across_inference = {across_forward, NULL, NULL};
static const struct op_ops within_training = {within_forward, within_backward, NULL};
static const struct op_ops within_inference = {within_forward, NULL, NULL};

static enum power power_of(float beta)
{
    if (beta == 0.5f)
        return POWER_HALF;
    if (beta == 0.75f)
        return POWER_THREE_QUARTERS;
    return beta == 1.0f ? POWER_ONE : POWER_ANY;
}

int dnnl_set_lrn(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
                 struct err *err)
{
    lrn_check(spec);
    struct lrn_op *lrn = arena_new(arena, struct lrn_op);
    if (!lrn)
        return plan_nomem("LRN", err);
    bool across = spec->region == LRN_ACROSS;
    const struct op_ops *ops = across ? &across_inference : &within_inference;
    if (training)
        ops = across ? &across_training : &within_training;
    float size = (float)spec->size;
    *lrn = (struct lrn_op){
        .op = {.ops = ops, .x_layout = LAYOUT_NHWC, .y_layout = LAYOUT_NHWC},
        .spec = *spec,
        .x = image_of(&spec->x),
        .power = power_of(spec->beta),
        .k = across ? spec->k : 1,
        .share = across ? spec->alpha / size : spec->alpha / (size * size),
        .threads = shape_count(&spec->x) >= PARALLEL_MIN ? omp_get_max_threads() : 1,
    };
    size_t all = 2 * lrn->x.C - 1; /* a wider window has no more in it than zeros */
    if (across && spec->size > all)
        lrn->spec.size = all;
    size_t image = lrn->x.H * lrn->x.W * lrn->x.C;
    size_t summed = across ? lrn->x.C + lrn->spec.size - 1 : (training ? 2 : 1) * image;
    lrn->floats = (2 * lrn->x.C + summed + 15) / 16 * 16;
    lrn->scratch = arena_array(arena, (size_t)lrn->threads * lrn->floats, float);
    if (!lrn->scratch)
        return plan_nomem("LRN", err);
    lrn->op.scratch_bytes = (size_t)lrn->threads * lrn->floats * sizeof(float);
    *op = &lrn->op;
    return OK;
}
