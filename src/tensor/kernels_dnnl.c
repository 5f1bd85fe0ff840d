/* Convolution by oneDNN's direct primitives over NHWC images, and the dnnl set as a whole.
 *
 * The primitives choose the form of their weights. Canonical weights are reordered into it once a
 * pass, and the gradient comes back in such a form and is added into the canonical one. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_onednn.h"

#include <stdio.h>

struct conv_op {
    struct op op;
    struct onednn dnn;
    bool bias;
    size_t O;
    dnnl_memory_t x, y, b, dy, dx;
    dnnl_memory_t w, dw;  /* canonical */
    dnnl_memory_t w_own;  /* what the forward reads: may be w itself */
    dnnl_memory_t w_back; /* what the backward reads: may be w or w_own */
    dnnl_memory_t dw_own;
    float *db_own;
    struct onednn_step *order_w, *order_w_back; /* NULL: nothing to reorder */
    struct onednn_step *forward, *back_data, *back_weights, *add_dw;
};

static void conv_forward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    onednn_bind(conv->x, args->x);
    onednn_bind(conv->w, args->w);
    onednn_bind(conv->y, args->y);
    if (conv->bias)
        onednn_bind(conv->b, args->b);
    if (conv->order_w)
        onednn_run(&conv->dnn, conv->order_w);
    onednn_run(&conv->dnn, conv->forward);
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    onednn_bind(conv->x, args->x);
    onednn_bind(conv->dy, args->dy);
    onednn_bind(conv->dw, args->dw);
    onednn_run(&conv->dnn, conv->back_weights);
    onednn_run(&conv->dnn, conv->add_dw);
    for (size_t o = 0; conv->bias && o < conv->O; o++)
        args->db[o] += conv->db_own[o];
    if (!args->dx)
        return;
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

static dnnl_status_t plan_back_weights(const struct plan *plan, const_dnnl_primitive_desc_t pd)
{
    struct conv_op *conv = plan->conv;
    struct onednn *dnn = &conv->dnn;
    const struct conv_spec *s = plan->spec;
    dnnl_memory_t db = NULL;
    void *data;
    dnnl_status_t status = onednn_memory_weights(dnn, s, &conv->dw);
    if (!status)
        status = own_memory(plan, form_of(pd, dnnl_query_diff_weights_md, 0), &conv->dw_own, &data);
    if (!status && s->bias) {
        status = own_memory(plan, form_of(pd, dnnl_query_diff_weights_md, 1), &db, &data);
        conv->db_own = data;
    }
    if (!status)
        status = onednn_step(dnn, pd, &conv->back_weights);
    if (!status)
        status = onednn_step_reorder(dnn, conv->dw_own, conv->dw, true, &conv->add_dw);
    if (status)
        return status;
    onednn_step_arg(conv->back_weights, DNNL_ARG_SRC, conv->x);
    onednn_step_arg(conv->back_weights, DNNL_ARG_DIFF_DST, conv->dy);
    onednn_step_arg(conv->back_weights, DNNL_ARG_DIFF_WEIGHTS, conv->dw_own);
    if (s->bias)
        onednn_step_arg(conv->back_weights, DNNL_ARG_DIFF_BIAS, db);
    return dnnl_success;
}

static int plan_backward(const struct plan *plan)
{
    static const struct {
        enum onednn_pass pass;
        dnnl_status_t (*plan)(const struct plan *plan, const_dnnl_primitive_desc_t pd);
    } passes[] = {{ONEDNN_BACKWARD_DATA, plan_back_data},
                  {ONEDNN_BACKWARD_WEIGHTS, plan_back_weights}};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        dnnl_primitive_desc_t pd;
        int result = plan_desc(plan, true, passes[i].pass, &pd);
        if (result)
            return result;
        dnnl_status_t status = passes[i].plan(plan, pd);
        dnnl_primitive_desc_destroy(pd);
        if (status)
            return plan_fail(plan, status, NULL);
    }
    return OK;
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
        .bias = spec->bias,
        .O = spec->y.dim[1],
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
    .softmax = plan_softmax,
};
