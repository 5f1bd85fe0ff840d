/* Scale: y = w·x + b, with w learnt or the second bottom, repeated over the axes that it lacks, and
 * b, if there is one, learnt. w begins at 1. By channel, as it follows a BatchNorm, it is the
 * kernels' own op. */
#include "nn/layers.h"
#include "nn/repeat.h"

static const char *const types[] = {"Scale", NULL};
static const char *const messages[] = {"scale_param", NULL};

/* A second bottom has the records' axis, unless it is one number; a bias learnt cannot have it. */
static int declare_bias(struct layer *layer, const struct setup *setup,
                        const Caffe__ScaleParameter *p, const struct shape *w, struct err *err)
{
    if (layer->n_bottom > 1 && w->n > 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "scale_param.bias_term is not supported with a second bottom, whose first "
                       "axis has the records");
    return layer_param(layer, setup, w, "bias_filler", p->bias_filler, err);
}

static int plan_scale(struct layer *layer, const struct setup *setup,
                      const struct broadcast_spec *spec, struct err *err)
{
    const struct kernels *kernels = setup->options->kernels;
    bool training = setup->options->phase == PHASE_TRAIN;
    if (layer->n_bottom > 1 || spec->axis != 1 || spec->w.n != 1)
        return broadcast_plan(spec, training, setup->arena, &layer->op, err);
    layer->part = CHAIN_SCALE;
    layer->takes_blocks = true;
    const struct scale_spec channels = {.x = spec->x, .bias = spec->bias};
    return kernels->scale(&channels, spec->layout, training, setup->arena, &layer->op, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__ScaleParameter none = CAFFE__SCALE_PARAMETER__INIT;
    const Caffe__ScaleParameter *p = layer->param->scale_param;
    p = p ? p : &none;
    const struct repeat_fields fields = {"scale_param",   p->axis,   p->num_axes,
                                         p->has_num_axes, p->filler, 1.0f};
    struct broadcast_spec spec = {.kind = BROADCAST_SCALE, .bias = p->bias_term};
    int rc = repeat_read(layer, setup, &fields, &spec, err);
    if (rc == OK && p->bias_term)
        rc = declare_bias(layer, setup, p, &spec.w, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    return rc == OK ? plan_scale(layer, setup, &spec, err) : rc;
}

static bool by_channel_for(const Caffe__LayerParameter *param)
{
    const Caffe__ScaleParameter *p = param->scale_param;
    return param->n_bottom == 1 && (!p || (p->axis == 1 && p->num_axes == 1));
}

/* By channel it takes part in a chain, which takes either. */
static enum layer_takes takes_for(const Caffe__LayerParameter *param)
{
    return by_channel_for(param) ? TAKES_EITHER : TAKES_F32;
}

const struct layer_ops layer_scale = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .small_params = true,
    .reads_bottom = true,
    .takes_for = takes_for,
    .by_channel_for = by_channel_for,
    .setup = setup,
    .forward = repeat_forward,
    .backward = repeat_backward,
};
