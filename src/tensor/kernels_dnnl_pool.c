/* Pooling of NHWC images, by Paceline's own loops: oneDNN's maximum clears its gradient before it
 * adds to it, and its average divides by another area than Caffe's if a window extends past the
 * padded image. As in the reference, the first of equal values wins, and a NaN is never hidden. */
#include "tensor/kernels_dnnl.h"

#include "tensor/kernels_common.h"
#include "tensor/pool_loops.h"

struct pool_op {
    struct op op;
    struct pool_form form;
    const struct pool_loops *loops;
    enum dtype dtype;
    size_t N, x_size, y_size; /* elements of an image */
    bool parallel;
    uint32_t *won; /* the positions of the maxima of a batch; NULL for inference, and averages */
    size_t won_row;
};

static void max_forward(struct op *op, const struct op_args *args)
{
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t OH = pool->form.h.m, row = pool->form.w.m * pool->form.C;
#pragma omp parallel for schedule(static) if (pool->parallel)
    for (size_t i = 0; i < pool->N * OH; i++)
        pool->loops->max(&pool->form, i % OH, dtype_in(pool->dtype, args->x, i / OH * pool->x_size),
                         dtype_at(pool->dtype, args->y, i * row),
                         pool->won ? pool->won + i * pool->won_row : NULL);
}

static void max_backward(struct op *op, const struct op_args *args)
{
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t H = pool->form.h.n, row = pool->form.w.n * pool->form.C;
    if (!args->dx)
        return;
#pragma omp parallel for schedule(static) if (pool->parallel)
    for (size_t i = 0; i < pool->N * H; i++)
        pool->loops->max_back(&pool->form, i % H,
                              dtype_in(pool->dtype, args->dy, i / H * pool->y_size),
                              pool->won + i / H * pool->form.h.m * pool->won_row,
                              dtype_at(pool->dtype, args->dx, i * row));
}

static void average_forward(struct op *op, const struct op_args *args)
{
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t OH = pool->form.h.m, row = pool->form.w.m * pool->form.C;
#pragma omp parallel for schedule(static) if (pool->parallel)
    for (size_t i = 0; i < pool->N * OH; i++)
        pool->loops->average(&pool->form, i % OH,
                             dtype_in(pool->dtype, args->x, i / OH * pool->x_size),
                             dtype_at(pool->dtype, args->y, i * row));
}

static void average_backward(struct op *op, const struct op_args *args)
{
    const struct pool_op *pool = (const struct pool_op *)op;
    size_t H = pool->form.h.n, row = pool->form.w.n * pool->form.C;
    if (!args->dx)
        return;
#pragma omp parallel for schedule(static) if (pool->parallel)
    for (size_t i = 0; i < pool->N * H; i++)
        pool->loops->average_back(&pool->form, i % H,
                                  dtype_in(pool->dtype, args->dy, i / H * pool->y_size),
                                  dtype_at(pool->dtype, args->dx, i * row));
}

static const struct op_ops max_training = {max_forward, max_backward, NULL};
static const struct op_ops max_inference = {max_forward, NULL, NULL};
static const struct op_ops average_training = {average_forward, average_backward, NULL};
static const struct op_ops average_inference = {average_forward, NULL, NULL};

/* ---- planning ---- */

static struct between pixels_of(const struct pool_axis *a, size_t i)
{
    size_t from = i * a->stride, end = from + a->kernel;
    return (struct between){from > a->pad ? from - a->pad : 0,
                            end < a->n + a->pad ? end - a->pad : a->n};
}

/* Those that begin at most `kernel` - 1 pixels before it. */
static struct between windows_of(const struct pool_axis *a, size_t i)
{
    size_t at = i + a->pad, end = at / a->stride + 1;
    return (struct between){at < a->kernel ? 0 : (at - a->kernel) / a->stride + 1,
                            end < a->m ? end : a->m};
}

/* Caffe divides by the window clipped to the padded image: rows times columns. */
static float share_of(const struct pool_axis *a, size_t i)
{
    size_t rest = a->n + 2 * a->pad - i * a->stride;
    return 1.0f / (float)(a->kernel < rest ? a->kernel : rest);
}

static int plan_axis(struct pool_axis *axis, struct arena *arena, size_t *bytes)
{
    struct between *pixels = arena_array(arena, axis->m, struct between);
    struct between *windows = arena_array(arena, axis->n, struct between);
    float *share = arena_array(arena, axis->m, float);
    if (!pixels || !windows || !share)
        return ERR_NOMEM;
    for (size_t i = 0; i < axis->m; i++) {
        pixels[i] = pixels_of(axis, i);
        share[i] = share_of(axis, i);
    }
    for (size_t i = 0; i < axis->n; i++)
        windows[i] = windows_of(axis, i);
    axis->pixels = pixels;
    axis->windows = windows;
    axis->share = share;
    *bytes += axis->m * (sizeof *pixels + sizeof *share) + axis->n * sizeof *windows;
    return OK;
}

static int plan_won(struct pool_op *pool, struct arena *arena)
{
    pool->won_row = pool->loops->positions(&pool->form);
    size_t words = pool->N * pool->form.h.m * pool->won_row;
    pool->won = arena_array(arena, words, uint32_t);
    pool->op.scratch_bytes += words * sizeof *pool->won;
    return pool->won ? OK : ERR_NOMEM;
}

static int plan_room(struct pool_op *pool, bool wins, struct arena *arena)
{
    int result = plan_axis(&pool->form.h, arena, &pool->op.scratch_bytes);
    if (!result)
        result = plan_axis(&pool->form.w, arena, &pool->op.scratch_bytes);
    return result || !wins ? result : plan_won(pool, arena);
}

static const struct op_ops *ops_of(enum pool_kind kind, bool training)
{
    if (kind == POOL_MAX)
        return training ? &max_training : &max_inference;
    return training ? &average_training : &average_inference;
}

int dnnl_set_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err)
{
    int status = pool_check(spec, err);
    if (status)
        return status;
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    if (spec->kernel_h > INT32_MAX / spec->kernel_w)
        return err_set(err, ERR_UNSUPPORTED, "pooling: a window of %zux%zu pixels", spec->kernel_h,
                       spec->kernel_w);
    struct pool_op *pool = arena_new(arena, struct pool_op);
    if (!pool)
        return plan_nomem("pooling", err);
    *pool = (struct pool_op){
        .op = {.ops = ops_of(spec->kind, training),
               .x_layout = LAYOUT_NHWC,
               .y_layout = LAYOUT_NHWC},
        .form = {.h = {.n = x.H, y.H, spec->kernel_h, spec->stride_h, spec->pad_h},
                 .w = {.n = x.W, y.W, spec->kernel_w, spec->stride_w, spec->pad_w},
                 .C = x.C,
                 .bits = spec->kernel_h * spec->kernel_w > 256 ? 32 : 8},
        .loops = spec->dtype == DTYPE_BF16 ? ISA_PICK(pool_loops_bf16) : ISA_PICK(pool_loops),
        .dtype = spec->dtype,
        .N = x.N,
        .x_size = x.H * x.W * x.C,
        .y_size = y.H * y.W * y.C,
        .parallel = shape_count(&spec->x) >= PARALLEL_MIN,
    };
    if (plan_room(pool, training && spec->kind == POOL_MAX, arena) != OK)
        return plan_nomem("pooling", err);
    *op = &pool->op;
    return OK;
}
