/* Sigmoid: y = 1 / (1 + e^-x). Its gradient is dx = dy · y · (1 - y), so x is not kept. */
#include "nn/layers.h"

static const char *const types[] = {"Sigmoid", NULL};
static const char *const messages[] = {"sigmoid_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return options->kernels->sigmoid(&x->shape, x->layout, options->phase == PHASE_TRAIN,
                                     setup->arena, &layer->op, err);
}

const struct layer_ops layer_sigmoid = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .by_channel = true,
    .reads_top = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
