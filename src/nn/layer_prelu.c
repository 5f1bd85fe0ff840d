/* PReLU (He et al. 2015, Equation 1): y = x where x > 0, else a·x, with a learnt slope a of each
 * channel, or one for all of them. */
#include "nn/layers.h"
#include "tensor/broadcast.h"

static const char *const types[] = {"PReLU", NULL};
static const char *const messages[] = {"prelu_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__PReLUParameter none = CAFFE__PRE_LUPARAMETER__INIT;
    Caffe__FillerParameter quarter = CAFFE__FILLER_PARAMETER__INIT;
    const Caffe__PReLUParameter *p = layer->param->prelu_param;
    p = p ? p : &none;
    quarter.value = 0.25f;
    int rc = layer_links(layer, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n < 2)
        return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s; a PReLU takes NxC or NxCxHxW",
                       x->name, shape_text(&x->shape, text, sizeof text));
    struct broadcast_spec spec = {
        .kind = BROADCAST_SLOPE, .x = x->shape, .axis = 1, .layout = x->layout};
    if (!p->channel_shared)
        spec.w = (struct shape){1, {x->shape.dim[1]}};
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = layer_param(layer, setup, &spec.w, "filler", p->filler ? p->filler : &quarter, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    return broadcast_plan(&spec, setup->options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                          err);
}

/* A slope of all channels has a gradient from all of them. */
static bool by_channel_for(const Caffe__LayerParameter *param)
{
    return !(param->prelu_param && param->prelu_param->channel_shared);
}

const struct layer_ops layer_prelu = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .in_place = true,
    .small_params = true,
    .by_channel_for = by_channel_for,
    .reads_bottom = true,
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
