/* Convolution: y = w * x + b, weights (O, C/group, KH, KW), zero padding.
 *
 * Deconvolution: the backward pass to x of a convolution from y to x, plus b; weights (C, O/group,
 * KH, KW). An image of H rows becomes one of stride · (H - 1) + E - 2 pad rows, where E is the
 * extent of the kernel. */
#include "nn/axes.h"
#include "nn/conv_fields.h"
#include "nn/layers.h"

static const char *const conv_types[] = {"Convolution", NULL};
static const char *const deconv_types[] = {"Deconvolution", NULL};
static const char *const messages[] = {"convolution_param", NULL};

static int conv_size(const struct layer *layer, size_t O, struct conv_spec *s, struct err *err)
{
    size_t H = s->x.dim[2] + 2 * s->pad_h, span_h = conv_span(s->kernel_h, s->dilation_h);
    size_t W = s->x.dim[3] + 2 * s->pad_w, span_w = conv_span(s->kernel_w, s->dilation_w);
    char text[128];
    if (span_h > H || span_w > W)
        return err_set(
            err, ERR_INPUT,
            "the kernel, %zux%zu, is larger than the padded image, %zux%zu "
            "(bottom \"%.64s\" is %s); give larger records (resize), or a smaller kernel",
            span_h, span_w, H, W, layer->bottom[0].blob->name,
            shape_text(&s->x, text, sizeof text));
    s->y = (struct shape){
        4, {s->x.dim[0], O, (H - span_h) / s->stride_h + 1, (W - span_w) / s->stride_w + 1}};
    return OK;
}

static int deconv_size(const struct layer *layer, size_t O, struct conv_spec *s, struct err *err)
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

/* Slices share out feature maps; those of several groups by whole groups, with their inputs. */
static int take_part(struct layer *layer, const struct setup *setup, const struct conv_spec *spec,
                     size_t O, struct err *err)
{
    if (spec->groups == 1)
        return layer_share_out(layer, setup, 1, O, "outputs", err);
    int rc = layer_share_out(layer, setup, 1, spec->groups, "groups", err);
    return rc == OK ? layer_share_in(layer, setup, err) : rc;
}

/* The op is that of the slice's part. */
static void cut_spec(const struct layer *layer, struct conv_spec *spec)
{
    spec->y.dim[1] = layer_own_of(layer, spec->y.dim[1]);
    if (spec->groups == 1)
        return;
    spec->x.dim[1] = layer_own_of(layer, spec->x.dim[1]);
    spec->groups = layer_own_of(layer, spec->groups);
}

static int setup(struct layer *layer, const struct setup *setup, bool back, struct err *err)
{
    const struct kernels *kernels = setup->options->kernels;
    struct conv_spec spec;
    size_t O;
    int rc = conv_fields_read(layer, back ? "a deconvolution" : "a convolution", &spec, &O, err);
    if (rc == OK)
        rc = back ? deconv_size(layer, O, &spec, err) : conv_size(layer, O, &spec, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &spec.y, axes_layout(setup, &spec.y), err);
    if (rc == OK && !back)
        rc = take_part(layer, setup, &spec, O, err);
    if (rc == OK)
        rc = conv_fields_declare(layer, setup, &spec, back ? &spec.x : &spec.y,
                                 back ? O : spec.x.dim[1], err);
    if (rc == OK && !back)
        rc = layer_folds(layer, setup, O, &spec.bias, err);
    if (rc != OK)
        return rc;
    cut_spec(layer, &spec);
    spec.dtype = layer->dtype;
    spec.blocks = setup->blocks && !back;
    const struct plan_options options = {
        .training = setup->options->phase == PHASE_TRAIN,
        .no_dx = layer->bottom[0].stops || layer->bottom[0].blob->maker->ops == &layer_input,
        .no_db = setup->normalised && !back,
        .arena = setup->arena,
        .scratch = setup->scratch,
        .tuner = setup->options->tuner,
    };
    return (back ? kernels->deconv : kernels->conv)(&spec, &options, &layer->op, err);
}

static int conv_setup(struct layer *layer, const struct setup *options, struct err *err)
{
    return setup(layer, options, false, err);
}

static int deconv_setup(struct layer *layer, const struct setup *options, struct err *err)
{
    return setup(layer, options, true, err);
}

const struct layer_ops layer_conv = {
    .types = conv_types,
    .messages = messages,
    .size = sizeof(struct layer),
    .reads_bottom = true,
    .takes = TAKES_BF16,
    .takes_blocks = true,
    .setup = conv_setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};

const struct layer_ops layer_deconv = {
    .types = deconv_types,
    .messages = messages,
    .size = sizeof(struct layer),
    .reads_bottom = true,
    .setup = deconv_setup,
    .forward = layer_op_forward,
    .backward = layer_op_backward,
};
