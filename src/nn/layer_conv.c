/* Convolution: y = w * x + b, weights (O, C, KH, KW), zero padding. */
#include "nn/layers.h"
#include "nn/window.h"

static const char *const types[] = {"Convolution", NULL};
static const char *const messages[] = {"convolution_param", NULL};

/* Fields that may be set, but only to what they mean when left out. */
static int check_fixed(const struct layer *layer, const Caffe__ConvolutionParameter *p,
                       struct err *err)
{
    if (p->group != 1)
        return err_set(err, ERR_UNSUPPORTED, "convolution_param.group: %u is not supported, only 1",
                       (unsigned)p->group);
    for (size_t i = 0; i < p->n_dilation; i++)
        if (p->dilation[i] != 1)
            return err_set(err, ERR_UNSUPPORTED,
                           "convolution_param.dilation: %u is not supported, only 1",
                           (unsigned)p->dilation[i]);
    if (p->force_nd_im2col)
        return err_set(err, ERR_UNSUPPORTED, "convolution_param.force_nd_im2col is not supported");
    return layer_axis(layer, "convolution_param.axis", p->axis, err);
}

static int read_window(const Caffe__ConvolutionParameter *p, struct conv_spec *spec,
                       struct err *err)
{
    struct window_field kernel = {.name = "kernel_size",
                                  .n = p->n_kernel_size,
                                  .both = p->kernel_size,
                                  .has_h = p->has_kernel_h,
                                  .has_w = p->has_kernel_w,
                                  .h = p->kernel_h,
                                  .w = p->kernel_w,
                                  .min = 1};
    struct window_field stride = {.name = "stride",
                                  .n = p->n_stride,
                                  .both = p->stride,
                                  .has_h = p->has_stride_h,
                                  .has_w = p->has_stride_w,
                                  .h = p->stride_h,
                                  .w = p->stride_w,
                                  .fallback = 1,
                                  .min = 1};
    struct window_field pad = {.name = "pad",
                               .n = p->n_pad,
                               .both = p->pad,
                               .has_h = p->has_pad_h,
                               .has_w = p->has_pad_w,
                               .h = p->pad_h,
                               .w = p->pad_w};
    int rc = window_read(&kernel, &spec->kernel_h, &spec->kernel_w, err);
    if (rc == OK)
        rc = window_read(&stride, &spec->stride_h, &spec->stride_w, err);
    if (rc == OK)
        rc = window_read(&pad, &spec->pad_h, &spec->pad_w, err);
    return rc;
}

static int infer(const struct layer *layer, size_t O, struct conv_spec *spec, struct err *err)
{
    spec->x = layer->bottom[0].blob->shape;
    size_t H = spec->x.dim[2] + 2 * spec->pad_h, W = spec->x.dim[3] + 2 * spec->pad_w;
    char text[128];
    if (spec->kernel_h > H || spec->kernel_w > W)
        return err_set(err, ERR_INPUT,
                       "the kernel, %zux%zu, is larger than the padded image, %zux%zu "
                       "(bottom \"%.64s\" is %s)",
                       spec->kernel_h, spec->kernel_w, H, W, layer->bottom[0].blob->name,
                       shape_text(&spec->x, text, sizeof text));
    spec->y = (struct shape){4,
                             {spec->x.dim[0], O, (H - spec->kernel_h) / spec->stride_h + 1,
                              (W - spec->kernel_w) / spec->stride_w + 1}};
    return OK;
}

static int declare(struct layer *layer, const struct setup *setup, const struct conv_spec *spec,
                   struct err *err)
{
    const Caffe__ConvolutionParameter *p = layer->param->convolution_param;
    struct shape w = {4, {spec->y.dim[1], spec->x.dim[1], spec->kernel_h, spec->kernel_w}};
    struct shape b = {1, {spec->y.dim[1]}};
    int rc = layer_param(layer, setup, &w, "weight_filler", p->weight_filler, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &b, "bias_filler", p->bias_filler, err);
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct net_options *options = setup->options;
    const Caffe__ConvolutionParameter *p = layer->param->convolution_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = layer_image(layer, "a convolution", err);
    if (rc != OK)
        return rc;
    if (!p || p->num_output == 0)
        return err_set(err, ERR_INPUT, "convolution_param.num_output must be positive");
    struct conv_spec spec = {.bias = p->bias_term};
    if ((rc = check_fixed(layer, p, err)) != OK || (rc = read_window(p, &spec, err)) != OK ||
        (rc = infer(layer, p->num_output, &spec, err)) != OK ||
        (rc = layer_top(layer, 0, &spec.y, options->kernels->image_layout, err)) != OK ||
        (rc = declare(layer, setup, &spec, err)) != OK)
        return rc;
    layer->products =
        (double)layer->top[0]->count * (double)(spec.x.dim[1] * spec.kernel_h * spec.kernel_w);
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
