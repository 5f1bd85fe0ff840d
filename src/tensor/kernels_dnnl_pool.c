/* Pooling of NHWC images: the maximum by oneDNN, which like Caffe takes the first of equals and
 * lets no NaN win; the average by loops of ours, for oneDNN divides by another area than Caffe
 * where a window runs past the padded image. */
#include "tensor/kernels_dnnl.h"

#include "tensor/kernels_common.h"
#include "tensor/kernels_onednn.h"

#include <stdio.h>
#include <string.h>

struct max_op {
    struct op op;
    struct onednn dnn;
    dnnl_memory_t x, y, dx, dy;
    struct onednn_step *forward, *backward;
};

static void max_forward(struct op *op, const struct op_args *args)
{
    const struct max_op *max = (const struct max_op *)op;
    onednn_bind(max->x, args->x);
    onednn_bind(max->y, args->y);
    onednn_run(&max->dnn, max->forward);
}

static void max_backward(struct op *op, const struct op_args *args)
{
    const struct max_op *max = (const struct max_op *)op;
    if (!args->dx)
        return;
    onednn_bind(max->dy, args->dy);
    onednn_bind(max->dx, args->dx);
    onednn_run(&max->dnn, max->backward);
}

static void max_release(struct op *op)
{
    onednn_release(&((struct max_op *)op)->dnn);
}

static const struct op_ops max_training = {max_forward, max_backward, max_release};
static const struct op_ops max_inference = {max_forward, NULL, max_release};

static int max_fail(const struct pool_spec *spec, dnnl_status_t status, const char *slow,
                    struct err *err)
{
    char x[96], what[ERR_TEXT_MAX / 2];
    snprintf(what, sizeof what, "%zux%zu max pooling, stride %zux%zu, padding %zux%zu, of %s",
             spec->kernel_h, spec->kernel_w, spec->stride_h, spec->stride_w, spec->pad_h,
             spec->pad_w, shape_text(&spec->x, x, sizeof x));
    return onednn_fail(status, slow, what, err);
}

/* `shared` is the memory of which pixel won, which the forward writes and the backward reads. */
static dnnl_status_t max_plan_forward(struct max_op *max, const_dnnl_primitive_desc_t pd,
                                      bool training, struct arena *arena, dnnl_memory_t *shared)
{
    struct onednn *dnn = &max->dnn;
    void *data;
    dnnl_status_t status =
        onednn_memory(dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), NULL, &max->x);
    if (!status)
        status = onednn_memory(dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), NULL,
                               &max->y);
    if (!status && training)
        status =
            onednn_memory_own(dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0),
                              arena, &max->op.scratch_bytes, shared, &data);
    if (!status)
        status = onednn_step(dnn, pd, &max->forward);
    if (status)
        return status;
    onednn_step_arg(max->forward, DNNL_ARG_SRC, max->x);
    onednn_step_arg(max->forward, DNNL_ARG_DST, max->y);
    if (training)
        onednn_step_arg(max->forward, DNNL_ARG_WORKSPACE, *shared);
    return dnnl_success;
}

static dnnl_status_t max_plan_backward(struct max_op *max, const_dnnl_primitive_desc_t pd,
                                       dnnl_memory_t shared)
{
    struct onednn *dnn = &max->dnn;
    dnnl_status_t status = onednn_memory(
        dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_diff_src_md, 0), NULL, &max->dx);
    if (!status)
        status = onednn_memory(dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_diff_dst_md, 0),
                               NULL, &max->dy);
    if (!status)
        status = onednn_step(dnn, pd, &max->backward);
    if (status)
        return status;
    onednn_step_arg(max->backward, DNNL_ARG_DIFF_SRC, max->dx);
    onednn_step_arg(max->backward, DNNL_ARG_DIFF_DST, max->dy);
    onednn_step_arg(max->backward, DNNL_ARG_WORKSPACE, shared);
    return dnnl_success;
}

static int max_plan_all(struct max_op *max, const struct pool_spec *spec, bool training,
                        struct arena *arena, struct err *err)
{
    int result = onednn_init(&max->dnn, err);
    if (result)
        return result;
    struct onednn *dnn = &max->dnn;
    dnnl_primitive_desc_t forward, backward = NULL;
    dnnl_memory_t shared = NULL;
    const char *slow = NULL;
    dnnl_status_t status = onednn_pool_desc(dnn, spec, training, ONEDNN_FORWARD, NULL, &forward);
    if (status)
        return max_fail(spec, status, NULL, err);
    slow = onednn_slow(forward);
    if (slow)
        status = dnnl_unimplemented;
    if (!status)
        status = max_plan_forward(max, forward, training, arena, &shared);
    if (!status && training)
        status = onednn_pool_desc(dnn, spec, true, ONEDNN_BACKWARD_DATA, forward, &backward);
    if (!status && training)
        slow = onednn_slow(backward);
    if (slow)
        status = dnnl_unimplemented;
    if (!status && training)
        status = max_plan_backward(max, backward, shared);
    dnnl_primitive_desc_destroy(forward);
    if (backward)
        dnnl_primitive_desc_destroy(backward);
    return status ? max_fail(spec, status, slow, err) : onednn_plan_scratch(dnn, arena, err);
}

static int plan_max(const struct pool_spec *spec, bool training, struct arena *arena,
                    struct op **op, struct err *err)
{
    struct max_op *max = arena_new(arena, struct max_op);
    if (!max)
        return plan_nomem("pooling", err);
    max->op = (struct op){
        .ops = training ? &max_training : &max_inference,
        .x_layout = LAYOUT_NHWC,
        .y_layout = LAYOUT_NHWC,
    };
    int result = max_plan_all(max, spec, training, arena, err);
    if (result) {
        onednn_release(&max->dnn);
        return result;
    }
    max->op.scratch_bytes += max->dnn.scratch_bytes;
    *op = &max->op;
    return OK;
}

struct average_op {
    struct op op;
    struct pool_spec spec;
    struct image x, y;
};

static void window_average(size_t W, size_t C, struct window win, const float *restrict x,
                           float *restrict y)
{
    memset(y, 0, C * sizeof *y);
    for (size_t h = win.h0; h < win.h1; h++)
        for (size_t w = win.w0; w < win.w1; w++)
            for (size_t c = 0; c < C; c++)
                y[c] += x[(h * W + w) * C + c];
    for (size_t c = 0; c < C; c++)
        y[c] /= (float)win.area;
}

static void window_average_back(size_t W, size_t C, struct window win, const float *restrict dy,
                                float *restrict dx)
{
    for (size_t h = win.h0; h < win.h1; h++)
        for (size_t w = win.w0; w < win.w1; w++)
            for (size_t c = 0; c < C; c++)
                dx[(h * W + w) * C + c] += dy[c] / (float)win.area;
}

static void average_forward(struct op *op, const struct op_args *args)
{
    const struct average_op *average = (const struct average_op *)op;
    struct image x = average->x, y = average->y;
    size_t x_size = x.H * x.W * x.C;
#pragma omp parallel for schedule(static) if (x.N * x_size >= PARALLEL_MIN)
    for (size_t row = 0; row < y.N * y.H; row++)
        for (size_t ow = 0; ow < y.W; ow++)
            window_average(x.W, x.C, window_at(&average->spec, row % y.H, ow),
                           args->x + row / y.H * x_size, args->y + (row * y.W + ow) * y.C);
}

/* Windows of one image may overlap, so an image is one thread's. */
static void average_backward(struct op *op, const struct op_args *args)
{
    const struct average_op *average = (const struct average_op *)op;
    struct image x = average->x, y = average->y;
    size_t x_size = x.H * x.W * x.C, P = y.H * y.W;
    if (!args->dx)
        return;
#pragma omp parallel for schedule(static) if (x.N * x_size >= PARALLEL_MIN)
    for (size_t n = 0; n < x.N; n++) {
        float *dx = args->dx + n * x_size;
        memset(dx, 0, x_size * sizeof *dx);
        for (size_t p = 0; p < P; p++)
            window_average_back(x.W, x.C, window_at(&average->spec, p / y.W, p % y.W),
                                args->dy + (n * P + p) * y.C, dx);
    }
}

static const struct op_ops average_training = {average_forward, average_backward, NULL};
static const struct op_ops average_inference = {average_forward, NULL, NULL};

static int plan_average(const struct pool_spec *spec, bool training, struct arena *arena,
                        struct op **op, struct err *err)
{
    struct average_op *average = arena_new(arena, struct average_op);
    if (!average)
        return plan_nomem("pooling", err);
    *average = (struct average_op){
        .op = {.ops = training ? &average_training : &average_inference,
               .x_layout = LAYOUT_NHWC,
               .y_layout = LAYOUT_NHWC},
        .spec = *spec,
        .x = image_of(&spec->x),
        .y = image_of(&spec->y),
    };
    *op = &average->op;
    return OK;
}

int dnnl_set_pool(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                  struct err *err)
{
    int status = pool_check(spec, err);
    if (status)
        return status;
    return spec->kind == POOL_MAX ? plan_max(spec, training, arena, op, err)
                                  : plan_average(spec, training, arena, op, err);
}
