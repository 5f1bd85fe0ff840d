/* Scale: y = w·x + b, with w learnt or the second bottom, repeated over the axes that it lacks, and
 * b, if there is one, learnt. w begins at 1. By channel, as it follows a BatchNorm, it is the
 * kernels' own op. */
#include "nn/layers.h"
#include "nn/repeat.h"
#include "tensor/broadcast.h"

static const char *const types[] = {"Scale", NULL};
static const char *const messages[] = {"scale_param", NULL};

static int learnt(struct layer *layer, const struct setup *setup, const Caffe__ScaleParameter *p,
                  struct broadcast_spec *spec, struct err *err)
{
    Caffe__FillerParameter one = CAFFE__FILLER_PARAMETER__INIT;
    one.value = 1.0f;
    int rc = repeat_param(layer, "scale_param", p->axis, p->num_axes, &spec->axis, &spec->w, err);
    if (rc == OK)
        rc = layer_param(layer, setup, &spec->w, "filler", p->filler ? p->filler : &one, err);
    return rc;
}

/* The second bottom has the records' axis, unless it is one number; a bias learnt cannot have it.
 */
static int given(struct layer *layer, const Caffe__ScaleParameter *p, struct broadcast_spec *spec,
                 struct err *err)
{
    spec->w = layer->bottom[1].blob->shape;
    spec->w_layout = layer->bottom[1].blob->layout;
    if (p->bias_term && spec->w.n > 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "scale_param.bias_term is not supported beside a second bottom, whose first "
                       "axis has the records");
    return repeat_second(layer, "scale_param", p->axis, p->has_num_axes ? &p->num_axes : NULL,
                         p->filler, &spec->axis, err);
}

static int plan(struct layer *layer, const struct setup *setup, const struct broadcast_spec *spec,
                struct err *err)
{
    const struct kernels *kernels = setup->options->kernels;
    bool training = setup->options->phase == PHASE_TRAIN;
    if (layer->n_bottom > 1 || spec->axis != 1 || spec->w.n != 1)
        return broadcast_plan(spec, training, setup->arena, &layer->op, err);
    const struct scale_spec channels = {.x = spec->x, .bias = spec->bias};
    return kernels->scale(&channels, spec->layout, training, setup->arena, &layer->op, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__ScaleParameter none = CAFFE__SCALE_PARAMETER__INIT;
    const Caffe__ScaleParameter *p = layer->param->scale_param;
    p = p ? p : &none;
    int rc = layer_links_between(layer, 1, 2, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    struct broadcast_spec spec = {
        .kind = BROADCAST_SCALE, .x = x->shape, .layout = x->layout, .bias = p->bias_term};
    rc = layer->n_bottom == 1 ? learnt(layer, setup, p, &spec, err) : given(layer, p, &spec, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &spec.w, "bias_filler", p->bias_filler, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    return rc == OK ? plan(layer, setup, &spec, err) : rc;
}

const struct layer_ops layer_scale = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .setup = setup,
    .forward = repeat_forward,
    .backward = repeat_backward,
};
