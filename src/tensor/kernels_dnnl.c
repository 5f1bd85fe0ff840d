/* Convolution by oneDNN's direct primitives over NHWC images, and the dnnl set as a whole.
 *
 * The primitives choose the form of their weights: canonical weights are reordered into it once a
 * pass. The gradient of the weights has a file of its own. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_weights.h"

#include <stdio.h>

struct conv_op {
    struct op op;
    struct onednn dnn;
    dnnl_memory_t x, y, b, dy, dx;
    dnnl_memory_t w;                            /* canonical */
    dnnl_memory_t w_own;                        /* what the forward reads: may be w itself */
    dnnl_memory_t w_back;                       /* what the backward reads: may be w or w_own */
    struct onednn_step *order_w, *order_w_back; /* NULL: nothing to reorder */
    struct onednn_step *forward, *back_data;
    struct conv_weights weights;
    struct conv_spec spec;
};

static void conv_forward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    onednn_bind(conv->x, args->x);
    onednn_bind(conv->w, args->w);
    onednn_bind(conv->y, args->y);
    if (conv->spec.bias)
        onednn_bind(conv->b, args->b);
    if (conv->order_w)
        onednn_run(&conv->dnn, conv->order_w);
    onednn_run(&conv->dnn, conv->forward);
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    conv_weights_add(&conv->weights, args->x, args->dy, args->dw,
                     conv->spec.bias ? args->db : NULL);
    if (!args->dx)
        return;
    onednn_bind(conv->dy, args->dy);
    onednn_bind(conv->w, args->w);
    onednn_bind(conv->dx, args->dx);
    if (conv->order_w_back)
        onednn_run(&conv->dnn, conv->order_w_back);
    onednn_run(&conv->dnn, conv->back_data);
}

static void conv_release(struct op *op)
{
    onednn_release(&((struct conv_op *)op)->dnn);
}

static const struct op_ops conv_training = {conv_forward, conv_backward, conv_release};
static const struct op_ops conv_inference = {conv_forward, NULL, conv_release};

/* One convolution being planned. */
struct plan {
    const struct conv_spec *spec;
    struct conv_op *conv;
    struct arena *arena;
    struct err *err;
    const_dnnl_primitive_desc_t hint; /* the forward's */
};

static int plan_fail(const struct plan *plan, dnnl_status_t status, const char *slow)
{
    const struct conv_spec *s = plan->spec;
    char x[96], what[ERR_TEXT_MAX / 2];
    snprintf(what, sizeof what,
             "a %zux%zu convolution, stride %zux%zu, padding %zux%zu, of %s into %zu channels",
             s->kernel_h, s->kernel_w, s->stride_h, s->stride_w, s->pad_h, s->pad_w,
             shape_text(&s->x, x, sizeof x), s->y.dim[1]);
    return onednn_fail(status, slow, what, plan->err);
}

static int plan_desc(const struct plan *plan, bool training, enum onednn_pass pass,
                     dnnl_primitive_desc_t *pd)
{
    dnnl_status_t status =
        onednn_conv_desc(&plan->conv->dnn, plan->spec, training, pass, plan->hint, pd);
    if (status)
        return plan_fail(plan, status, NULL);
    const char *slow = onednn_slow(*pd);
    if (!slow)
        return OK;
    int result = plan_fail(plan, dnnl_unimplemented, slow);
    dnnl_primitive_desc_destroy(*pd);
    return result;
}

static onednn_desc form_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

/* A memory with room of its own. */
static dnnl_status_t own_memory(const struct plan *plan, onednn_desc form, dnnl_memory_t *out,
                                void **data)
{
    struct conv_op *conv = plan->conv;
    return onednn_memory_own(&conv->dnn, form, plan->arena, &conv->op.scratch_bytes, out, data);
}

/* The weights as a primitive wants them: one of those we have, or a copy reordered by `step`. */
static dnnl_status_t plan_weights(const struct plan *plan, onednn_desc form, dnnl_memory_t *out,
                                  struct onednn_step **step)
{
    struct conv_op *conv = plan->conv;
    void *data;
    dnnl_status_t status;
    if (onednn_has_form(conv->w, form)) {
        *out = conv->w;
        return dnnl_success;
    }
    if (conv->w_own && onednn_has_form(conv->w_own, form)) {
        *out = conv->w_own;
        return dnnl_success;
    }
    status = own_memory(plan, form, out, &data);
    return status ? status : onednn_step_reorder(&conv->dnn, conv->w, *out, false, step);
}

static dnnl_status_t plan_forward(const struct plan *plan, const_dnnl_primitive_desc_t pd)
{
    struct conv_op *conv = plan->conv;
    struct onednn *dnn = &conv->dnn;
    const struct conv_spec *s = plan->spec;
    dnnl_status_t status = onednn_memory_weights(dnn, s, &conv->w);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_src_md, 0), NULL, &conv->x);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_dst_md, 0), NULL, &conv->y);
    if (!status && s->bias)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_weights_md, 1), NULL, &conv->b);
    if (!status)
        status =
            plan_weights(plan, form_of(pd, dnnl_query_weights_md, 0), &conv->w_own, &conv->order_w);
    if (!status)
        status = onednn_step(dnn, pd, &conv->forward);
    if (status)
        return status;
    onednn_step_arg(conv->forward, DNNL_ARG_SRC, conv->x);
    onednn_step_arg(conv->forward, DNNL_ARG_WEIGHTS, conv->w_own);
    onednn_step_arg(conv->forward, DNNL_ARG_DST, conv->y);
    if (s->bias)
        onednn_step_arg(conv->forward, DNNL_ARG_BIAS, conv->b);
    return dnnl_success;
}

static dnnl_status_t plan_back_data(const struct plan *plan, const_dnnl_primitive_desc_t pd)
{
    struct conv_op *conv = plan->conv;
    struct onednn *dnn = &conv->dnn;
    dnnl_status_t status =
        onednn_memory(dnn, form_of(pd, dnnl_query_diff_dst_md, 0), NULL, &conv->dy);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_diff_src_md, 0), NULL, &conv->dx);
    if (!status)
        status = plan_weights(plan, form_of(pd, dnnl_query_weights_md, 0), &conv->w_back,
                              &conv->order_w_back);
    if (!status)
        status = onednn_step(dnn, pd, &conv->back_data);
    if (status)
        return status;
    onednn_step_arg(conv->back_data, DNNL_ARG_DIFF_DST, conv->dy);
    onednn_step_arg(conv->back_data, DNNL_ARG_WEIGHTS, conv->w_back);
    onednn_step_arg(conv->back_data, DNNL_ARG_DIFF_SRC, conv->dx);
    return dnnl_success;
}

static int plan_backward(const struct plan *plan)
{
    struct conv_op *conv = plan->conv;
    dnnl_primitive_desc_t pd;
    int result = plan_desc(plan, true, ONEDNN_BACKWARD_DATA, &pd);
    if (result)
        return result;
    dnnl_status_t status = plan_back_data(plan, pd);
    dnnl_primitive_desc_destroy(pd);
    const char *slow = NULL;
    conv->weights = (struct conv_weights){
        .spec = &conv->spec,
        .dnn = &conv->dnn,
        .arena = plan->arena,
        .bytes = &conv->op.scratch_bytes,
    };
    if (!status)
        status = conv_weights_plan(&conv->weights, &slow);
    return status ? plan_fail(plan, status, slow) : OK;
}

static int plan_all(struct plan *plan, bool training)
{
    int result = onednn_init(&plan->conv->dnn, plan->err);
    if (result)
        return result;
    dnnl_primitive_desc_t pd;
    result = plan_desc(plan, training, ONEDNN_FORWARD, &pd);
    if (result)
        return result;
    dnnl_status_t status = plan_forward(plan, pd);
    plan->hint = pd;
    if (status)
        result = plan_fail(plan, status, NULL);
    else if (training)
        result = plan_backward(plan);
    dnnl_primitive_desc_destroy(pd);
    return result ? result : onednn_plan_scratch(&plan->conv->dnn, plan->arena, plan->err);
}

static int plan_conv(const struct conv_spec *spec, bool training, struct arena *arena,
                     struct op **op, struct err *err)
{
    conv_check(spec);
    struct conv_op *conv = arena_new(arena, struct conv_op);
    if (!conv)
        return plan_nomem("convolution", err);
    *conv = (struct conv_op){
        .op = {.ops = training ? &conv_training : &conv_inference,
               .x_layout = LAYOUT_NHWC,
               .y_layout = LAYOUT_NHWC},
        .spec = *spec,
    };
    struct plan plan = {.spec = spec, .conv = conv, .arena = arena, .err = err};
    int result = plan_all(&plan, training);
    if (result) {
        onednn_release(&conv->dnn);
        return result;
    }
    conv->op.scratch_bytes += conv->dnn.scratch_bytes;
    *op = &conv->op;
    return OK;
}

const struct kernels kernels_dnnl = {
    .name = "dnnl",
    .image_layout = LAYOUT_NHWC,
    .conv = plan_conv,
    .pool = dnnl_set_pool,
    .inner = dnnl_set_inner,
    .relu = plan_relu,
    .sigmoid = dnnl_set_sigmoid,
    .scale = plan_scale,
    .softmax = plan_softmax,
};
