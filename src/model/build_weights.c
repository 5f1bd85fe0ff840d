/* The layers that have weights: fillers, multipliers, windows. */
#include "model/build_message.h"

#include <stdlib.h>

const struct build_weights build_weights_default = {
    .filler = "xavier",
    .bias = true,
    .rate = 1.0f,
    .bias_rate = 2.0f,
    .decay = 1.0f,
    .bias_decay = 1.0f,
};

static Caffe__FillerParameter *weight_filler(struct build *b, const struct build_weights *weights)
{
    Caffe__FillerParameter *filler = build_message(b, &caffe__filler_parameter__descriptor);
    if (!filler)
        return NULL;
    build_set_string(b, &filler->type, weights->filler);
    if (weights->std != 0.0f)
        BUILD_SET(filler, std, weights->std);
    if (weights->value != 0.0f)
        BUILD_SET(filler, value, weights->value);
    return filler;
}

/* NULL, Caffe's zero, unless another filler is requested. */
static Caffe__FillerParameter *bias_filler(struct build *b, const struct build_weights *weights)
{
    if (!weights->bias || weights->bias_value == 0.0f)
        return NULL;
    Caffe__FillerParameter *filler = build_message(b, &caffe__filler_parameter__descriptor);
    if (!filler)
        return NULL;
    build_set_string(b, &filler->type, "constant");
    BUILD_SET(filler, value, weights->bias_value);
    return filler;
}

static void add_param(struct build *b, Caffe__LayerParameter *layer, float rate, float decay)
{
    Caffe__ParamSpec *spec = build_message(b, &caffe__param_spec__descriptor);
    Caffe__ParamSpec **more = spec ? build_grown(b, layer->param, layer->n_param) : NULL;
    if (!more) {
        free(spec);
        return;
    }
    BUILD_SET(spec, lr_mult, rate);
    if (decay != 1.0f)
        BUILD_SET(spec, decay_mult, decay);
    layer->param = more;
    more[layer->n_param++] = spec;
}

static void add_params(struct build *b, Caffe__LayerParameter *layer,
                       const struct build_weights *weights)
{
    add_param(b, layer, weights->rate, weights->decay);
    if (weights->bias)
        add_param(b, layer, weights->bias_rate, weights->bias_decay);
}

static void set_one(struct build *b, uint32_t **list, size_t *n, uint32_t value)
{
    *list = b->failed ? NULL : malloc(sizeof **list);
    if (!*list) {
        b->failed = true;
        return;
    }
    **list = value;
    *n = 1;
}

static void set_window(struct build *b, Caffe__ConvolutionParameter *conv,
                       const struct build_window *window)
{
    if (window->kernel_w != 0) {
        BUILD_SET(conv, kernel_h, window->kernel);
        BUILD_SET(conv, kernel_w, window->kernel_w);
        BUILD_SET(conv, pad_h, window->pad);
        BUILD_SET(conv, pad_w, window->pad_w);
    } else {
        set_one(b, &conv->kernel_size, &conv->n_kernel_size, window->kernel);
        if (window->pad != 0)
            set_one(b, &conv->pad, &conv->n_pad, window->pad);
    }
    if (window->stride != 1)
        set_one(b, &conv->stride, &conv->n_stride, window->stride);
    if (window->group > 1)
        BUILD_SET(conv, group, window->group);
    if (window->dilation > 1)
        set_one(b, &conv->dilation, &conv->n_dilation, window->dilation);
}

static void add_convolution(struct build *b, const char *type, const char *top, const char *bottom,
                            uint32_t outputs, const struct build_window *window,
                            const struct build_weights *weights)
{
    Caffe__LayerParameter *layer = build_add_layer(b, type, top, bottom, top);
    Caffe__ConvolutionParameter *conv = build_message(b, &caffe__convolution_parameter__descriptor);
    if (!conv)
        return;
    layer->convolution_param = conv;
    BUILD_SET(conv, num_output, outputs);
    set_window(b, conv, window);
    if (!weights->bias)
        BUILD_SET(conv, bias_term, false);
    conv->weight_filler = weight_filler(b, weights);
    conv->bias_filler = bias_filler(b, weights);
    add_params(b, layer, weights);
}

void build_convolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                       const struct build_window *window, const struct build_weights *weights)
{
    add_convolution(b, "Convolution", top, bottom, outputs, window, weights);
}

void build_deconvolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_window *window, const struct build_weights *weights)
{
    add_convolution(b, "Deconvolution", top, bottom, outputs, window, weights);
}

void build_inner_product(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_weights *weights)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "InnerProduct", top, bottom, top);
    Caffe__InnerProductParameter *inner =
        build_message(b, &caffe__inner_product_parameter__descriptor);
    if (!inner)
        return;
    layer->inner_product_param = inner;
    BUILD_SET(inner, num_output, outputs);
    if (!weights->bias)
        BUILD_SET(inner, bias_term, false);
    inner->weight_filler = weight_filler(b, weights);
    inner->bias_filler = bias_filler(b, weights);
    add_params(b, layer, weights);
}

void build_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                uint32_t kernel, uint32_t stride, uint32_t pad)
{
    const struct build_window window = {.kernel = kernel, .stride = stride, .pad = pad};
    build_convolution(b, top, bottom, outputs, &window, &build_weights_default);
}

void build_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs)
{
    build_inner_product(b, top, bottom, outputs, &build_weights_default);
}

void build_batch_norm(struct build *b, const char *name, const char *bottom, const char *top,
                      float eps, float fraction)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "BatchNorm", name, bottom, top);
    if (!layer || (eps == 0.0f && fraction == 0.0f))
        return;
    Caffe__BatchNormParameter *norm = build_message(b, &caffe__batch_norm_parameter__descriptor);
    if (!norm)
        return;
    layer->batch_norm_param = norm;
    if (eps != 0.0f)
        BUILD_SET(norm, eps, eps);
    if (fraction != 0.0f)
        BUILD_SET(norm, moving_average_fraction, fraction);
}

void build_scale(struct build *b, const char *name, const char *bottom, const char *top, bool bias)
{
    Caffe__LayerParameter *layer = build_add_layer(b, "Scale", name, bottom, top);
    Caffe__ScaleParameter *scale =
        layer && bias ? build_message(b, &caffe__scale_parameter__descriptor) : NULL;
    if (!scale)
        return;
    layer->scale_param = scale;
    BUILD_SET(scale, bias_term, true);
}
