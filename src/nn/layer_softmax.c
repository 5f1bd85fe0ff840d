/* Softmax along an axis: y = e^x / Σ e^x. */
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/span.h"

struct layer_softmax {
    struct layer layer;
    struct span span;
};

static const char *const types[] = {"Softmax", NULL};
static const char *const messages[] = {"softmax_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_softmax *self = (struct layer_softmax *)layer;
    const Caffe__SoftmaxParameter *p = layer->param->softmax_param;
    size_t axis;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = axes_in_record(layer, "softmax_param.axis", p ? p->axis : 1, &axis, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    if ((rc = layer_top(layer, 0, &x->shape, x->layout, err)) != OK)
        return rc;
    self->span = span_of(&x->shape, x->layout, axis);
    const struct shape rows = {2, {self->span.outer, self->span.n}};
    if (self->span.inner > 1)
        return OK;
    return setup->options->kernels->softmax(&rows, setup->arena, &layer->op, err);
}

static void softmax_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_softmax *self = (const struct layer_softmax *)layer;
    if (layer->op)
        layer_op_forward(layer, pass);
    else
        span_softmax(&self->span, layer->bottom[0].blob->at, layer->top[0]->at);
}

static void softmax_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_softmax *self = (const struct layer_softmax *)layer;
    const struct blob *y = layer->top[0];
    span_softmax_backward(&self->span, y->at, y->d, layer->bottom[0].dx);
}

const struct layer_ops layer_softmax = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_softmax),
    .in_place = true,
    .reads_top = true,
    .setup = setup,
    .forward = softmax_forward,
    .backward = softmax_backward,
};
