/* Bias: y = x + b, with b learnt or the second bottom, repeated over the axes that it lacks. */
#include "nn/layers.h"
#include "nn/repeat.h"

static const char *const types[] = {"Bias", NULL};
static const char *const messages[] = {"bias_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__BiasParameter none = CAFFE__BIAS_PARAMETER__INIT;
    const Caffe__BiasParameter *p = layer->param->bias_param;
    p = p ? p : &none;
    const struct repeat_fields fields = {"bias_param",    p->axis,   p->num_axes,
                                         p->has_num_axes, p->filler, 0.0f};
    struct broadcast_spec spec = {.kind = BROADCAST_BIAS};
    int rc = repeat_read(layer, setup, &fields, &spec, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return broadcast_plan(&spec, setup->options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                          err);
}

static bool by_channel_for(const Caffe__LayerParameter *param)
{
    const Caffe__BiasParameter *p = param->bias_param;
    return param->n_bottom == 1 && (!p || (p->axis == 1 && p->num_axes == 1));
}

const struct layer_ops layer_bias = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .small_params = true,
    .by_channel_for = by_channel_for,
    .setup = setup,
    .forward = repeat_forward,
    .backward = repeat_backward,
};
