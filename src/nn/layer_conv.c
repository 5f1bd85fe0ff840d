/* Convolution: y = w * x + b, weights (O, C/group, KH, KW), zero padding. */
#include "nn/conv_fields.h"
#include "nn/layers.h"

static const char *const types[] = {"Convolution", NULL};
static const char *const messages[] = {"convolution_param", NULL};

static int infer(const struct layer *layer, size_t O, struct conv_spec *s, struct err *err)
{
    size_t H = s->x.dim[2] + 2 * s->pad_h, span_h = conv_span(s->kernel_h, s->dilation_h);
    size_t W = s->x.dim[3] + 2 * s->pad_w, span_w = conv_span(s->kernel_w, s->dilation_w);
    char text[128];
    if (span_h > H || span_w > W)
        return err_set(err, ERR_INPUT,
                       "the kernel, %zux%zu, is larger than the padded image, %zux%zu "
                       "(bottom \"%.64s\" is %s)",
                       span_h, span_w, H, W, layer->bottom[0].blob->name,
                       shape_text(&s->x, text, sizeof text));
    s->y = (struct shape){
        4, {s->x.dim[0], O, (H - span_h) / s->stride_h + 1, (W - span_w) / s->stride_w + 1}};
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    struct conv_spec spec;
    size_t O;
    int rc = conv_fields_read(layer, "a convolution", &spec, &O, err);
    if (rc == OK)
        rc = infer(layer, O, &spec, err);
    if (rc == OK)
        rc = conv_fields_declare(layer, setup, &spec, &spec.y, spec.x.dim[1], err);
    if (rc != OK)
        return rc;
    return options->kernels->conv(&spec, options->phase == PHASE_TRAIN, setup->arena, &layer->op,
                                  err);
}

const struct layer_ops layer_conv = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .setup = setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
