/* ReLU: y = x where x > 0, else negative_slope · x. */
#include "nn/layers.h"

#include <math.h>

static const char *const types[] = {"ReLU", NULL};
static const char *const messages[] = {"relu_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    const Caffe__ReLUParameter *p = layer->param->relu_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    struct relu_spec spec = {
        .x = x->shape, .negative_slope = p ? p->negative_slope : 0.0f, .dtype = x->dtype};
    if (!isfinite(spec.negative_slope))
        return err_set(err, ERR_INPUT, "relu_param.negative_slope: %g is out of range",
                       (double)spec.negative_slope);
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    layer->reads_top = spec.negative_slope >= 0.0f;
    layer->reads_bottom = !layer->reads_top;
    layer->part = spec.negative_slope == 0.0f ? CHAIN_RELU : CHAIN_NONE;
    return options->kernels->relu(&spec, x->layout, options->phase == PHASE_TRAIN, setup->arena,
                                  &layer->op, err);
}

/* Only the sign of x counts, which is y's unless the slope is negative. */
static void relu_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct op_args args = {
        .x = layer->reads_top ? layer->top[0]->at : layer->bottom[0].blob->at,
        .dy = layer->top[0]->d,
        .dx = layer->bottom[0].dx,
    };
    layer->op->ops->backward(layer->op, &args);
}

const struct layer_ops layer_relu = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .by_channel = true,
    .takes = TAKES_EITHER,
    .reads_top = true,
    .takes_blocks = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = relu_backward,
};
