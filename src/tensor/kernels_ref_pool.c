/* Pooling of NCHW images, plane by plane, by Caffe's rules. */
#include "tensor/kernels_ref.h"

#include "tensor/kernels_common.h"

#include <string.h>

struct pool_op {
    struct op op;
    struct pool_spec spec;
    size_t planes, x_size, y_size; /* N·C planes of H·W and OH·OW pixels */
    uint32_t *from;                /* the input pixel of each maximum; NULL for inference */
};

/* The first of equal values wins; a NaN is never hidden. */
static size_t window_max(struct window win, size_t W, const float *x)
{
    size_t best = win.h0 * W + win.w0;
    for (size_t h = win.h0; h < win.h1; h++)
        for (size_t w = win.w0; w < win.w1; w++) {
            float v = x[h * W + w];
            /* A mask, since a branch could not be predicted. */
            size_t wins = (v > x[best]) | (v != v);
            best ^= (best ^ (h * W + w)) & -wins;
        }
    return best;
}

static void plane_max(const struct pool_op *pool, const float *x, float *y, uint32_t *from)
{
    size_t W = pool->spec.x.dim[3], OH = pool->spec.y.dim[2], OW = pool->spec.y.dim[3];
    for (size_t oh = 0, i = 0; oh < OH; oh++)
        for (size_t ow = 0; ow < OW; ow++, i++) {
            size_t best = window_max(window_at(&pool->spec, oh, ow), W, x);
            y[i] = x[best];
            if (from)
                from[i] = (uint32_t)best;
        }
}

static void plane_average(const struct pool_op *pool, const float *x, float *y)
{
    size_t W = pool->spec.x.dim[3], OW = pool->spec.y.dim[3];
    for (size_t i = 0; i < pool->y_size; i++) {
        struct window win = window_at(&pool->spec, i / OW, i % OW);
        float sum = 0;
        for (size_t h = win.h0; h < win.h1; h++)
            for (size_t w = win.w0; w < win.w1; w++)
                sum += x[h * W + w];
        y[i] = sum / (float)win.area;
    }
}

static void plane_average_back(const struct pool_op *pool, const float *dy, float *dx)
{
    size_t W = pool->spec.x.dim[3], OW = pool->spec.y.dim[3];
    for (size_t i = 0; i < pool->y_size; i++) {
        struct window win = window_at(&pool->spec, i / OW, i % OW);
        for (size_t h = win.h0; h < win.h1; h++)
            for (size_t w = win.w0; w < win.w1; w++)
                dx[h * W + w] += dy[i] / (float)win.area;
    }
}

static void pool_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t x_size = pool->x_size, y_size = pool->y_size;
#pragma omp parallel for schedule(static) if (pool->planes * x_size >= PARALLEL_MIN)
    for (size_t i = 0; i < pool->planes; i++) {
        const float *x = io.x + i * x_size;
        float *y = io.y + i * y_size;
        if (pool->spec.kind == POOL_MAX)
            plane_max(pool, x, y, pool->from ? pool->from + i * y_size : NULL);
        else
            plane_average(pool, x, y);
    }
}

static void pool_backward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t x_size = pool->x_size, y_size = pool->y_size;
    if (!io.dx)
        return;
#pragma omp parallel for schedule(static) if (pool->planes * x_size >= PARALLEL_MIN)
    for (size_t i = 0; i < pool->planes; i++) {
        const float *dy = io.dy + i * y_size;
        float *dx = io.dx + i * x_size;
        memset(dx, 0, x_size * sizeof *dx);
        if (pool->spec.kind == POOL_MAX)
            for (size_t o = 0; o < y_size; o++)
                dx[pool->from[i * y_size + o]] += dy[o];
        else
            plane_average_back(pool, dy, dx);
    }
}

static const struct op_ops pool_training = {pool_forward, pool_backward, NULL};
static const struct op_ops pool_inference = {pool_forward, NULL, NULL};

int ref_plan_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err)
{
    int status = pool_check(spec, err);
    if (status)
        return status;
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    struct pool_op *pool = arena_new(arena, struct pool_op);
    if (!pool)
        return plan_nomem("pooling", err);
    *pool = (struct pool_op){
        .op = {.ops = training ? &pool_training : &pool_inference},
        .spec = *spec,
        .planes = x.N * x.C,
        .x_size = x.H * x.W,
        .y_size = y.H * y.W,
    };
    if (training && spec->kind == POOL_MAX) {
        if (pool->x_size > UINT32_MAX)
            return err_set(err, ERR_UNSUPPORTED, "pooling: an image of %zu pixels", pool->x_size);
        size_t count = shape_count(&spec->y);
        pool->from = arena_array(arena, count, uint32_t);
        if (!pool->from)
            return plan_nomem("pooling", err);
        pool->op.scratch_bytes = count * sizeof(uint32_t);
    }
    *op = &pool->op;
    return OK;
}
