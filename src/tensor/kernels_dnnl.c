/* Convolution and deconvolution by oneDNN's direct primitives over NHWC images, and the dnnl set as
 * a whole.
 *
 * A convolution goes ahead from x to y, and back from dy to dx. A deconvolution is the same pair of
 * a convolution turned round: it goes back from x to y, and ahead from dy to dx; the primitive back
 * knows no bias, which is then added by a loop of ours. The primitives choose the form of their
 * weights: canonical weights are reordered into it once a pass. The gradient of the weights has a
 * file of its own. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_weights.h"

#include <stdio.h>
#include <string.h>

/* One direction: a primitive, and what it reads and writes. */
struct way {
    dnnl_memory_t in, out, b;  /* b NULL: no bias */
    dnnl_memory_t w;           /* the weights in its form: canonical, its own, or the other way's */
    struct onednn_step *order; /* NULL: nothing to reorder */
    struct onednn_step *run;
};

struct conv_op {
    struct op op;
    struct onednn dnn;
    struct conv_spec spec; /* of the convolution */
    dnnl_memory_t w;       /* canonical */
    struct way ahead, back;
    struct conv_weights weights;
    bool bias;          /* of a deconvolution */
    struct slices sums; /* of its db */
};

static void go(const struct conv_op *conv, const struct way *way, const float *w, const float *in,
               float *out, const float *b)
{
    onednn_bind(conv->w, w);
    onednn_bind(way->in, in);
    onednn_bind(way->out, out);
    if (way->b)
        onednn_bind(way->b, b);
    if (way->order)
        onednn_run(&conv->dnn, way->order);
    onednn_run(&conv->dnn, way->run);
}

static void conv_forward(struct op *op, const struct op_args *args)
{
    const struct conv_op *conv = (const struct conv_op *)op;
    go(conv, &conv->ahead, args->w, args->x, args->y, args->b);
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    conv_weights_add(&conv->weights, args->x, args->dy, args->dw,
                     conv->spec.bias ? args->db : NULL);
    if (args->dx)
        go(conv, &conv->back, args->w, args->dy, args->dx, NULL);
}

/* ---- what a deconvolution adds ---- */

static void add_bias(size_t pixels, size_t C, const float *restrict b, float *restrict y)
{
#pragma omp parallel for schedule(static) if (pixels * C >= PARALLEL_MIN)
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < C; c++)
            y[p * C + c] += b[c];
}

static void deconv_forward(struct op *op, const struct op_args *args)
{
    const struct conv_op *conv = (const struct conv_op *)op;
    struct image y = image_of(&conv->spec.x);
    go(conv, &conv->back, args->w, args->x, args->y, NULL);
    if (conv->bias)
        add_bias(y.N * y.H * y.W, y.C, args->b, args->y);
}

struct bias_pass {
    const struct conv_op *conv;
    const float *dy;
};

static void sum_bias(void *user, size_t first, size_t count, float *sum)
{
    const struct bias_pass *pass = user;
    struct image y = image_of(&pass->conv->spec.x);
    size_t P = y.H * y.W;
    memset(sum, 0, y.C * sizeof *sum);
    column_sums_add(count * P, y.C, pass->dy + first * P * y.C, sum);
}

static void deconv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    struct bias_pass pass = {conv, args->dy};
    conv_weights_add(&conv->weights, args->dy, args->x, args->dw, NULL);
    if (conv->bias)
        add_floats(conv->spec.x.dim[1], slices_sum(&conv->sums, sum_bias, &pass), args->db);
    if (args->dx)
        go(conv, &conv->ahead, args->w, args->dy, args->dx, NULL);
}

static void conv_release(struct op *op)
{
    onednn_release(&((struct conv_op *)op)->dnn);
}

static const struct op_ops conv_training = {conv_forward, conv_backward, conv_release};
static const struct op_ops conv_inference = {conv_forward, NULL, conv_release};
static const struct op_ops deconv_training = {deconv_forward, deconv_backward, conv_release};
static const struct op_ops deconv_inference = {deconv_forward, NULL, conv_release};

/* ---- planning ---- */

/* One convolution being planned. */
struct plan {
    struct conv_op *conv;
    bool turned, training;
    struct arena *arena;
    struct err *err;
    const_dnnl_primitive_desc_t hint; /* that of the way ahead */
};

static int plan_fail(const struct plan *plan, dnnl_status_t status, const char *slow)
{
    const struct conv_spec *s = &plan->conv->spec;
    const struct shape *x = plan->turned ? &s->y : &s->x, *y = plan->turned ? &s->x : &s->y;
    char text[96], what[ERR_TEXT_MAX / 2];
    snprintf(what, sizeof what,
             "a %zux%zu %s, stride %zux%zu, padding %zux%zu, dilation %zux%zu, of %s into %zu "
             "channels in %zu groups",
             s->kernel_h, s->kernel_w, plan->turned ? "deconvolution" : "convolution", s->stride_h,
             s->stride_w, s->pad_h, s->pad_w, s->dilation_h, s->dilation_w,
             shape_text(x, text, sizeof text), y->dim[1], s->groups);
    return onednn_fail(status, slow, what, plan->err);
}

static int plan_desc(const struct plan *plan, enum onednn_pass pass, dnnl_primitive_desc_t *pd)
{
    struct conv_op *conv = plan->conv;
    bool training = plan->training || plan->turned; /* only such a way ahead has one back */
    dnnl_status_t status =
        onednn_conv_desc(&conv->dnn, &conv->spec, training, pass, plan->hint, pd);
    return status ? plan_fail(plan, status, NULL) : OK;
}

static onednn_desc form_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

/* The weights as a primitive wants them: the canonical ones, those of the way that is gone first,
 * or a copy. */
static dnnl_status_t plan_weights(const struct plan *plan, onednn_desc form,
                                  const struct way *first, struct way *way)
{
    struct conv_op *conv = plan->conv;
    void *data;
    if (onednn_has_form(conv->w, form)) {
        way->w = conv->w;
        return dnnl_success;
    }
    if (first->w && onednn_has_form(first->w, form)) {
        way->w = first->w;
        return dnnl_success;
    }
    dnnl_status_t status =
        onednn_memory_own(&conv->dnn, form, plan->arena, &conv->op.scratch_bytes, &way->w, &data);
    return status ? status : onednn_step_reorder(&conv->dnn, conv->w, way->w, false, &way->order);
}

static dnnl_status_t plan_ahead(const struct plan *plan, const_dnnl_primitive_desc_t pd)
{
    struct conv_op *conv = plan->conv;
    struct onednn *dnn = &conv->dnn;
    struct way *way = &conv->ahead;
    dnnl_status_t status = onednn_memory(dnn, form_of(pd, dnnl_query_src_md, 0), NULL, &way->in);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_dst_md, 0), NULL, &way->out);
    if (!status && conv->spec.bias)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_weights_md, 1), NULL, &way->b);
    if (!status)
        status = plan_weights(plan, form_of(pd, dnnl_query_weights_md, 0), &conv->back, way);
    if (!status)
        status = onednn_step(dnn, pd, &way->run);
    if (status)
        return status;
    onednn_step_arg(way->run, DNNL_ARG_SRC, way->in);
    onednn_step_arg(way->run, DNNL_ARG_WEIGHTS, way->w);
    onednn_step_arg(way->run, DNNL_ARG_DST, way->out);
    if (way->b)
        onednn_step_arg(way->run, DNNL_ARG_BIAS, way->b);
    return dnnl_success;
}

static dnnl_status_t plan_back(const struct plan *plan, const_dnnl_primitive_desc_t pd)
{
    struct conv_op *conv = plan->conv;
    struct onednn *dnn = &conv->dnn;
    struct way *way = &conv->back;
    dnnl_status_t status =
        onednn_memory(dnn, form_of(pd, dnnl_query_diff_dst_md, 0), NULL, &way->in);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_diff_src_md, 0), NULL, &way->out);
    if (!status)
        status = plan_weights(plan, form_of(pd, dnnl_query_weights_md, 0), &conv->ahead, way);
    if (!status)
        status = onednn_step(dnn, pd, &way->run);
    if (status)
        return status;
    onednn_step_arg(way->run, DNNL_ARG_DIFF_DST, way->in);
    onednn_step_arg(way->run, DNNL_ARG_WEIGHTS, way->w);
    onednn_step_arg(way->run, DNNL_ARG_DIFF_SRC, way->out);
    return dnnl_success;
}

static int plan_way(const struct plan *plan, const_dnnl_primitive_desc_t pd, bool ahead)
{
    const char *slow = onednn_slow(pd);
    dnnl_status_t status = dnnl_unimplemented;
    if (!slow)
        status = ahead ? plan_ahead(plan, pd) : plan_back(plan, pd);
    return status ? plan_fail(plan, status, slow) : OK;
}

static int plan_way_back(const struct plan *plan)
{
    dnnl_primitive_desc_t pd;
    int result = plan_desc(plan, ONEDNN_BACKWARD_DATA, &pd);
    if (result)
        return result;
    result = plan_way(plan, pd, false);
    dnnl_primitive_desc_destroy(pd);
    return result;
}

/* The op's forward comes first: it orders the weights that its backward may read, too. */
static int plan_ways(const struct plan *plan, const_dnnl_primitive_desc_t ahead)
{
    int result = plan->turned ? plan_way_back(plan) : plan_way(plan, ahead, true);
    if (result || !plan->training)
        return result;
    return plan->turned ? plan_way(plan, ahead, true) : plan_way_back(plan);
}

static int plan_gradients(const struct plan *plan)
{
    struct conv_op *conv = plan->conv;
    const char *slow = NULL;
    conv->weights = (struct conv_weights){
        .spec = &conv->spec,
        .dnn = &conv->dnn,
        .arena = plan->arena,
        .bytes = &conv->op.scratch_bytes,
    };
    dnnl_status_t status = conv_weights_plan(&conv->weights, &slow);
    if (status)
        return plan_fail(plan, status, slow);
    size_t bytes = 0, channels = conv->spec.x.dim[1];
    if (conv->bias &&
        slices_init(&conv->sums, plan->arena, conv->spec.x.dim[0], channels, &bytes) != OK)
        return plan_nomem("deconvolution", plan->err);
    conv->op.scratch_bytes += bytes;
    return OK;
}

static int plan_all(struct plan *plan)
{
    struct onednn *dnn = &plan->conv->dnn;
    int result = onednn_init(dnn, plan->err);
    if (result)
        return result;
    dnnl_primitive_desc_t pd;
    result = plan_desc(plan, ONEDNN_FORWARD, &pd);
    if (result)
        return result;
    plan->hint = pd;
    dnnl_status_t status = onednn_memory_weights(dnn, &plan->conv->spec, &plan->conv->w);
    result = status ? plan_fail(plan, status, NULL) : plan_ways(plan, pd);
    dnnl_primitive_desc_destroy(pd);
    if (!result && plan->training)
        result = plan_gradients(plan);
    return result ? result : onednn_plan_scratch(dnn, plan->arena, plan->err);
}

static int plan_either(const struct conv_spec *spec, bool turned, bool training,
                       struct arena *arena, struct op **op, struct err *err)
{
    const struct op_ops *ops = training ? &conv_training : &conv_inference;
    if (turned)
        ops = training ? &deconv_training : &deconv_inference;
    struct conv_op *conv = arena_new(arena, struct conv_op);
    if (!conv)
        return plan_nomem("convolution", err);
    *conv = (struct conv_op){
        .op = {.ops = ops, .x_layout = LAYOUT_NHWC, .y_layout = LAYOUT_NHWC},
        .spec = turned ? conv_turned(spec) : *spec,
        .bias = turned && spec->bias,
    };
    conv_check(&conv->spec);
    struct plan plan = {conv, turned, training, arena, err, NULL};
    int result = plan_all(&plan);
    if (result) {
        onednn_release(&conv->dnn);
        return result;
    }
    conv->op.scratch_bytes += conv->dnn.scratch_bytes;
    *op = &conv->op;
    return OK;
}

static int plan_conv(const struct conv_spec *spec, bool training, struct arena *arena,
                     struct op **op, struct err *err)
{
    return plan_either(spec, false, training, arena, op, err);
}

static int plan_deconv(const struct conv_spec *spec, bool training, struct arena *arena,
                       struct op **op, struct err *err)
{
    return plan_either(spec, true, training, arena, op, err);
}

const struct kernels kernels_dnnl = {
    .name = "dnnl",
    .image_layout = LAYOUT_NHWC,
    .conv = plan_conv,
    .deconv = plan_deconv,
    .pool = dnnl_set_pool,
    .lrn = dnnl_set_lrn,
    .inner = dnnl_set_inner,
    .relu = plan_relu,
    .sigmoid = dnnl_set_sigmoid,
    .scale = plan_scale,
    .softmax = plan_softmax,
};
