/* The sigmoid by oneDNN's vector code for the logistic function. It treats a blob as a row of
 * floats: the function depends neither on the layout nor on the position of an element. */
#include "tensor/kernels_dnnl.h"

#include "tensor/kernels_common.h"
#include "tensor/kernels_onednn.h"

#include <stdio.h>

struct sigmoid_op {
    struct op op;
    struct onednn dnn;
    size_t n;
    dnnl_memory_t x, y, dx, dy;
    struct onednn_step *forward, *backward;
};

static void sigmoid_forward(struct op *op, const struct op_args *args)
{
    const struct sigmoid_op *sigmoid = (const struct sigmoid_op *)op;
    onednn_bind(sigmoid->x, args->x);
    onednn_bind(sigmoid->y, args->y);
    onednn_run(&sigmoid->dnn, sigmoid->forward);
}

static void sigmoid_backward(struct op *op, const struct op_args *args)
{
    const struct sigmoid_op *sigmoid = (const struct sigmoid_op *)op;
    if (!args->dx)
        return;
    onednn_bind(sigmoid->y, args->y);
    onednn_bind(sigmoid->dy, args->dy);
    onednn_bind(sigmoid->dx, args->dx);
    onednn_run(&sigmoid->dnn, sigmoid->backward);
}

static void sigmoid_release(struct op *op)
{
    onednn_release(&((struct sigmoid_op *)op)->dnn);
}

static const struct op_ops sigmoid_training = {sigmoid_forward, sigmoid_backward, sigmoid_release};
static const struct op_ops sigmoid_inference = {sigmoid_forward, NULL, sigmoid_release};

/* *`slow` is the name of oneDNN's offer if that was refused. */
static dnnl_status_t plan_desc(struct sigmoid_op *sigmoid, bool training, enum onednn_pass pass,
                               const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd,
                               const char **slow)
{
    dnnl_status_t status =
        onednn_logistic_desc(&sigmoid->dnn, sigmoid->n, training, pass, hint, pd);
    if (!status)
        *slow = onednn_slow(*pd);
    return *slow ? dnnl_unimplemented : status;
}

static dnnl_status_t plan_forward(struct sigmoid_op *sigmoid, const_dnnl_primitive_desc_t pd)
{
    struct onednn *dnn = &sigmoid->dnn;
    dnnl_status_t status = onednn_memory(
        dnn, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), NULL, &sigmoid->x);
    if (!status)
        status = onednn_memory_like(dnn, sigmoid->x, &sigmoid->y);
    if (!status)
        status = onednn_step(dnn, pd, &sigmoid->forward);
    if (status)
        return status;
    onednn_step_arg(sigmoid->forward, DNNL_ARG_SRC, sigmoid->x);
    onednn_step_arg(sigmoid->forward, DNNL_ARG_DST, sigmoid->y);
    return dnnl_success;
}

static dnnl_status_t plan_backward(struct sigmoid_op *sigmoid, const_dnnl_primitive_desc_t pd)
{
    struct onednn *dnn = &sigmoid->dnn;
    dnnl_status_t status = onednn_memory_like(dnn, sigmoid->y, &sigmoid->dy);
    if (!status)
        status = onednn_memory_like(dnn, sigmoid->y, &sigmoid->dx);
    if (!status)
        status = onednn_step(dnn, pd, &sigmoid->backward);
    if (status)
        return status;
    onednn_step_arg(sigmoid->backward, DNNL_ARG_DST, sigmoid->y);
    onednn_step_arg(sigmoid->backward, DNNL_ARG_DIFF_DST, sigmoid->dy);
    onednn_step_arg(sigmoid->backward, DNNL_ARG_DIFF_SRC, sigmoid->dx);
    return dnnl_success;
}

static int plan_all(struct sigmoid_op *sigmoid, bool training, struct arena *arena, struct err *err)
{
    int result = onednn_init(&sigmoid->dnn, err);
    if (result)
        return result;
    dnnl_primitive_desc_t forward = NULL, backward = NULL;
    const char *slow = NULL;
    dnnl_status_t status = plan_desc(sigmoid, training, ONEDNN_FORWARD, NULL, &forward, &slow);
    if (!status)
        status = plan_forward(sigmoid, forward);
    if (!status && training)
        status = plan_desc(sigmoid, true, ONEDNN_BACKWARD_DATA, forward, &backward, &slow);
    if (!status && training)
        status = plan_backward(sigmoid, backward);
    if (status) {
        char what[64];
        snprintf(what, sizeof what, "a sigmoid of %zu floats", sigmoid->n);
        result = onednn_fail(status, slow, what, err);
    }
    if (forward)
        dnnl_primitive_desc_destroy(forward);
    if (backward)
        dnnl_primitive_desc_destroy(backward);
    return result ? result : onednn_plan_scratch(&sigmoid->dnn, arena, err);
}

int dnnl_set_sigmoid(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                     struct op **op, struct err *err)
{
    struct sigmoid_op *sigmoid = arena_new(arena, struct sigmoid_op);
    if (!sigmoid)
        return plan_nomem("sigmoid", err);
    *sigmoid = (struct sigmoid_op){
        .op = {.ops = training ? &sigmoid_training : &sigmoid_inference,
               .x_layout = layout,
               .y_layout = layout,
               .in_place = true},
        .n = shape_count(x),
    };
    int result = plan_all(sigmoid, training, arena, err);
    if (result) {
        onednn_release(&sigmoid->dnn);
        return result;
    }
    sigmoid->op.scratch_bytes = sigmoid->dnn.scratch_bytes;
    *op = &sigmoid->op;
    return OK;
}
