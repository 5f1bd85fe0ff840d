/* Deconvolution: what a convolution from y to x would send back from x, plus b; weights
 * (C, O/group, KH, KW). An image of H rows becomes one of stride · (H - 1) + E - 2 pad rows, E
 * being what the kernel spans. */
#include "nn/conv_fields.h"
#include "nn/layers.h"

static const char *const types[] = {"Deconvolution", NULL};
static const char *const messages[] = {"convolution_param", NULL};

static int infer(const struct layer *layer, size_t O, struct conv_spec *s, struct err *err)
{
    size_t H = s->stride_h * (s->x.dim[2] - 1) + conv_span(s->kernel_h, s->dilation_h);
    size_t W = s->stride_w * (s->x.dim[3] - 1) + conv_span(s->kernel_w, s->dilation_w);
    char text[128];
    if (H <= 2 * s->pad_h || W <= 2 * s->pad_w)
        return err_set(err, ERR_INPUT,
                       "pad, %zux%zu, leaves nothing of %zux%zu pixels (bottom \"%.64s\" is %s)",
                       s->pad_h, s->pad_w, H, W, layer->bottom[0].blob->name,
                       shape_text(&s->x, text, sizeof text));
    s->y = (struct shape){4, {s->x.dim[0], O, H - 2 * s->pad_h, W - 2 * s->pad_w}};
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    struct conv_spec spec;
    size_t O;
    int rc = conv_fields_read(layer, "a deconvolution", &spec, &O, err);
    if (rc == OK)
        rc = infer(layer, O, &spec, err);
    if (rc == OK)
        rc = conv_fields_declare(layer, setup, &spec, &spec.x, O, err);
    if (rc != OK)
        return rc;
    return options->kernels->deconv(&spec, options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                                    err);
}

const struct layer_ops layer_deconv = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
