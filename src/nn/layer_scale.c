/* Scale: y = w·x + b, one w and one b a channel, as they follow a BatchNorm. w begins at 1. */
#include "nn/layers.h"

static const char *const types[] = {"Scale", NULL};
static const char *const messages[] = {"scale_param", NULL};

static int check(const struct layer *layer, const Caffe__ScaleParameter *p, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n < 2)
        return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s; a scale takes NxC or NxCxHxW",
                       x->name, shape_text(&x->shape, text, sizeof text));
    if (p->num_axes != 1)
        return err_set(err, ERR_UNSUPPORTED, "scale_param.num_axes: %d is not supported, only 1",
                       (int)p->num_axes);
    return layer_axis(layer, "scale_param.axis", p->axis, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    Caffe__ScaleParameter none = CAFFE__SCALE_PARAMETER__INIT;
    Caffe__FillerParameter one = CAFFE__FILLER_PARAMETER__INIT;
    const Caffe__ScaleParameter *p = layer->param->scale_param;
    p = p ? p : &none;
    one.value = 1.0f;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = check(layer, p, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    const struct scale_spec spec = {.x = x->shape, .bias = p->bias_term};
    const struct shape C = {1, {x->shape.dim[1]}};
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_param(layer, setup, &C, "filler", p->filler ? p->filler : &one, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &C, "bias_filler", p->bias_filler, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return options->kernels->scale(&spec, x->layout, options->phase == PHASE_TRAIN, setup->arena,
                                   &layer->op, err);
}

const struct layer_ops layer_scale = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
