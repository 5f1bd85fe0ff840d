/* The building calls of a specification. */
#include "api/guard.h"
#include "api/net.h"
#include "api/option_size.h"
#include "job/text.h"

#include <stdio.h>
#include <string.h>

/* The place for the next error: the first error is kept. */
static struct err *error_of(pl_net_spec *spec)
{
    return spec->error.status == OK ? &spec->error : NULL;
}

/* Are name and bottoms set? Whether they fit is checked when all layers exist. */
static bool check_names(pl_net_spec *spec, const char *name, const char *bottom)
{
    if (spec->error.status != OK || spec->build.failed)
        return false;
    if (!name || !*name) {
        err_set(error_of(spec), ERR_INPUT, "net: layer %zu has no name",
                spec->build.net->n_layer + 1);
        return false;
    }
    if (!bottom || !*bottom) {
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": its bottom is missing", name);
        return false;
    }
    return true;
}

void pl_spec_input(pl_net_spec *spec, const char *data, const char *label, uint32_t channels,
                   uint32_t height, uint32_t width)
{
    if (!check_names(spec, data, label))
        return;
    if (channels && height && width)
        build_images(&spec->build, data, label, channels, height, width);
    else if (!channels && !height && !width)
        build_input(&spec->build, data, label);
    else
        err_set(error_of(spec), ERR_INPUT,
                "layer \"%.100s\": records of %u channels, %u rows and %u columns: all of these or "
                "none may be 0",
                data, channels, height, width);
}

/* NULL: the defaults. */
static bool weights_of(pl_net_spec *spec, const char *name, const pl_weight_options *given,
                       struct build_weights *out)
{
    static const pl_weight_options defaults = PL_WEIGHT_DEFAULTS;
    pl_weight_options own, *o = &own;
    if (OPTIONS_TAKE(pl_weight_options, &own, given ? given : &defaults, error_of(spec)) != OK)
        return false;
    if (!o->filler || !*o->filler) {
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": the weights have no filler", name);
        return false;
    }
    *out = (struct build_weights){
        .filler = o->filler,
        .std = o->std,
        .value = o->value,
        .bias = o->bias,
        .bias_value = o->bias_value,
        .rate = o->rate,
        .bias_rate = o->bias_rate,
        .decay = o->decay,
        .bias_decay = o->bias_decay,
    };
    return true;
}

static bool convolution_of(pl_net_spec *spec, const char *name, uint32_t kernel,
                           const pl_convolution_options *options, struct build_window *window,
                           struct build_weights *weights)
{
    static const pl_convolution_options defaults = PL_CONVOLUTION_DEFAULTS;
    pl_convolution_options own, *o = &own;
    if (OPTIONS_TAKE(pl_convolution_options, &own, options ? options : &defaults, error_of(spec)) !=
        OK)
        return false;
    *window = (struct build_window){
        .kernel = kernel,
        .stride = o->stride,
        .pad = o->pad,
        .kernel_w = o->kernel_w,
        .pad_w = o->pad_w,
        .group = o->group,
        .dilation = o->dilation,
    };
    if (o->pad_w && !o->kernel_w) {
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": pad_w without kernel_w", name);
        return false;
    }
    return weights_of(spec, name, o->weights, weights);
}

void pl_spec_convolution(pl_net_spec *spec, const char *name, const char *bottom, uint32_t outputs,
                         uint32_t kernel, const pl_convolution_options *options)
{
    struct build_window window;
    struct build_weights weights;
    if (check_names(spec, name, bottom) &&
        convolution_of(spec, name, kernel, options, &window, &weights))
        build_convolution(&spec->build, name, bottom, outputs, &window, &weights);
}

void pl_spec_deconvolution(pl_net_spec *spec, const char *name, const char *bottom,
                           uint32_t outputs, uint32_t kernel, const pl_convolution_options *options)
{
    struct build_window window;
    struct build_weights weights;
    if (check_names(spec, name, bottom) &&
        convolution_of(spec, name, kernel, options, &window, &weights))
        build_deconvolution(&spec->build, name, bottom, outputs, &window, &weights);
}

static bool pooling_of(pl_net_spec *spec, const char *name, const char *bottom, pl_pooling method,
                       Caffe__PoolingParameter__PoolMethod *out)
{
    if (!check_names(spec, name, bottom))
        return false;
    switch (method) {
    case PL_POOL_MAX: *out = CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX; return true;
    case PL_POOL_AVERAGE: *out = CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE; return true;
    }
    err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": there is no pooling %d", name,
            (int)method);
    return false;
}

void pl_spec_pooling_padded(pl_net_spec *spec, const char *name, const char *bottom,
                            pl_pooling method, uint32_t kernel, uint32_t stride, uint32_t pad)
{
    Caffe__PoolingParameter__PoolMethod caffes;
    const struct build_window window = {.kernel = kernel, .stride = stride, .pad = pad};
    if (pooling_of(spec, name, bottom, method, &caffes))
        build_pool(&spec->build, name, bottom, caffes, &window);
}

void pl_spec_pooling(pl_net_spec *spec, const char *name, const char *bottom, pl_pooling method,
                     uint32_t kernel, uint32_t stride)
{
    pl_spec_pooling_padded(spec, name, bottom, method, kernel, stride, 0);
}

void pl_spec_pooling_global(pl_net_spec *spec, const char *name, const char *bottom,
                            pl_pooling method)
{
    Caffe__PoolingParameter__PoolMethod caffes;
    if (pooling_of(spec, name, bottom, method, &caffes))
        build_pool_global(&spec->build, name, bottom, caffes);
}

void pl_spec_inner_product(pl_net_spec *spec, const char *name, const char *bottom,
                           uint32_t outputs, const pl_weight_options *options)
{
    struct build_weights weights;
    if (check_names(spec, name, bottom) && weights_of(spec, name, options, &weights))
        build_inner_product(&spec->build, name, bottom, outputs, &weights);
}

void pl_spec_relu(pl_net_spec *spec, const char *name, const char *bottom)
{
    if (check_names(spec, name, bottom))
        build_relu_separate(&spec->build, name, bottom);
}

void pl_spec_sigmoid(pl_net_spec *spec, const char *name, const char *bottom)
{
    if (check_names(spec, name, bottom))
        build_sigmoid_separate(&spec->build, name, bottom);
}

void pl_spec_dropout(pl_net_spec *spec, const char *name, const char *bottom, float ratio)
{
    if (check_names(spec, name, bottom))
        build_dropout_separate(&spec->build, name, bottom, ratio);
}

void pl_spec_lrn(pl_net_spec *spec, const char *name, const char *bottom,
                 const pl_lrn_options *options)
{
    static const pl_lrn_options defaults = PL_LRN_DEFAULTS;
    pl_lrn_options o;
    if (!check_names(spec, name, bottom) ||
        OPTIONS_TAKE(pl_lrn_options, &o, options ? options : &defaults, error_of(spec)) != OK)
        return;
    const struct build_lrn lrn = {o.local_size, o.alpha, o.beta, o.k, o.within_channel};
    build_lrn(&spec->build, name, bottom, &lrn);
}

void pl_spec_batch_norm(pl_net_spec *spec, const char *name, const char *bottom,
                        const pl_batch_norm_options *options)
{
    pl_batch_norm_options o;
    if (check_names(spec, name, bottom) &&
        OPTIONS_TAKE(pl_batch_norm_options, &o, options, error_of(spec)) == OK)
        build_batch_norm(&spec->build, name, bottom, name, o.eps, o.fraction);
}

void pl_spec_scale(pl_net_spec *spec, const char *name, const char *bottom, bool bias)
{
    if (check_names(spec, name, bottom))
        build_scale(&spec->build, name, bottom, name, bias);
}

static bool all_named(pl_net_spec *spec, const char *name, const char *const *bottoms, size_t n)
{
    bool good = check_names(spec, name, n > 0 ? bottoms[0] : NULL);
    for (size_t i = 1; i < n && good; i++)
        good = check_names(spec, name, bottoms[i]);
    return good;
}

void pl_spec_concat(pl_net_spec *spec, const char *name, const char *const *bottoms, size_t n)
{
    if (all_named(spec, name, bottoms, n))
        build_concat(&spec->build, name, bottoms, n);
}

void pl_spec_eltwise(pl_net_spec *spec, const char *name, pl_eltwise operation,
                     const char *const *bottoms, size_t n, const float *factors)
{
    if (!all_named(spec, name, bottoms, n))
        return;
    switch (operation) {
    case PL_ELTWISE_SUM:
        build_eltwise(&spec->build, name, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM, bottoms, n,
                      factors);
        return;
    case PL_ELTWISE_PRODUCT:
        build_eltwise(&spec->build, name, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD, bottoms, n,
                      factors);
        return;
    case PL_ELTWISE_MAX:
        build_eltwise(&spec->build, name, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__MAX, bottoms, n,
                      factors);
        return;
    }
    err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": there is no element-wise operation %d",
            name, (int)operation);
}

void pl_spec_softmax_loss(pl_net_spec *spec, const char *name, const char *scores,
                          const char *label)
{
    if (check_names(spec, name, scores) && check_names(spec, name, label))
        build_softmax_loss(&spec->build, name, scores, label);
}

void pl_spec_loss_weight(pl_net_spec *spec, float weight)
{
    if (spec->error.status != OK || spec->build.failed)
        return;
    if (spec->build.net->n_layer == 0)
        err_set(error_of(spec), ERR_INPUT, "net: a loss's weight, but there is no layer");
    else
        build_loss_weight(&spec->build, weight);
}

void pl_spec_accuracy(pl_net_spec *spec, const char *name, const char *scores, const char *label)
{
    if (check_names(spec, name, scores) && check_names(spec, name, label))
        build_accuracy(&spec->build, name, scores, label, 1);
}

static int add_text(pl_net_spec *spec, const char *text)
{
    ProtobufCMessage *msg = NULL;
    char where[32];
    snprintf(where, sizeof where, "layer %zu", spec->build.net->n_layer + 1);
    int rc = text_parse(&caffe__layer_parameter__descriptor, where, text, strlen(text), &msg,
                        error_of(spec));
    if (rc == OK)
        build_layer(&spec->build, (Caffe__LayerParameter *)msg);
    return rc;
}

static int add_layer(pl_net_spec *spec, const char *text)
{
    RETURN_GUARDED(spec->engine, add_text(spec, text));
}

void pl_spec_layer(pl_net_spec *spec, const char *text)
{
    if (spec->error.status == OK && !spec->build.failed)
        add_layer(spec, text);
}
