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
    struct relu_spec spec = {.x = x->shape, .negative_slope = p ? p->negative_slope : 0.0f};
    if (!isfinite(spec.negative_slope))
        return err_set(err, ERR_INPUT, "relu_param.negative_slope: %g is out of range",
                       (double)spec.negative_slope);
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return options->kernels->relu(&spec, x->layout, options->phase == PHASE_TRAIN, setup->arena,
                                  &layer->op, err);
}

const struct layer_ops layer_relu = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .reads_top = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
