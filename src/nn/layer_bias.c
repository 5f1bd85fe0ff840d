/* Bias: y = x + b, with b learnt or the second bottom, repeated over the axes that it lacks. */
#include "nn/layers.h"
#include "nn/repeat.h"
#include "tensor/broadcast.h"

static const char *const types[] = {"Bias", NULL};
static const char *const messages[] = {"bias_param", NULL};

static int learnt(struct layer *layer, const struct setup *setup, const Caffe__BiasParameter *p,
                  struct broadcast_spec *spec, struct err *err)
{
    int rc = repeat_param(layer, "bias_param", p->axis, p->num_axes, &spec->axis, &spec->w, err);
    return rc == OK ? layer_param(layer, setup, &spec->w, "filler", p->filler, err) : rc;
}

static int given(struct layer *layer, const Caffe__BiasParameter *p, struct broadcast_spec *spec,
                 struct err *err)
{
    spec->w = layer->bottom[1].blob->shape;
    spec->w_layout = layer->bottom[1].blob->layout;
    return repeat_second(layer, "bias_param", p->axis, p->has_num_axes ? &p->num_axes : NULL,
                         p->filler, &spec->axis, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__BiasParameter none = CAFFE__BIAS_PARAMETER__INIT;
    const Caffe__BiasParameter *p = layer->param->bias_param;
    p = p ? p : &none;
    int rc = layer_links_between(layer, 1, 2, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    struct broadcast_spec spec = {.kind = BROADCAST_BIAS, .x = x->shape, .layout = x->layout};
    rc = layer->n_bottom == 1 ? learnt(layer, setup, p, &spec, err) : given(layer, p, &spec, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return broadcast_plan(&spec, setup->options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                          err);
}

const struct layer_ops layer_bias = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .setup = setup,
    .forward = repeat_forward,
    .backward = repeat_backward,
};
