#include "nn/conv_fields.h"

#include "nn/axes.h"
#include "nn/window.h"

static int read_window(const Caffe__ConvolutionParameter *p, struct conv_spec *spec,
                       struct err *err)
{
    const struct window_field kernel = {.name = "kernel_size",
                                        .n = p->n_kernel_size,
                                        .both = p->kernel_size,
                                        .has_h = p->has_kernel_h,
                                        .has_w = p->has_kernel_w,
                                        .h = p->kernel_h,
                                        .w = p->kernel_w,
                                        .min = 1};
    const struct window_field stride = {.name = "stride",
                                        .n = p->n_stride,
                                        .both = p->stride,
                                        .has_h = p->has_stride_h,
                                        .has_w = p->has_stride_w,
                                        .h = p->stride_h,
                                        .w = p->stride_w,
                                        .fallback = 1,
                                        .min = 1};
    const struct window_field pad = {.name = "pad",
                                     .n = p->n_pad,
                                     .both = p->pad,
                                     .has_h = p->has_pad_h,
                                     .has_w = p->has_pad_w,
                                     .h = p->pad_h,
                                     .w = p->pad_w,
                                     .halves = true};
    const struct window_field dilation = {
        .name = "dilation", .n = p->n_dilation, .both = p->dilation, .fallback = 1, .min = 1};
    int rc = window_read(&kernel, &spec->kernel_h, &spec->kernel_w, err);
    if (rc == OK)
        rc = window_read(&stride, &spec->stride_h, &spec->stride_w, err);
    if (rc == OK)
        rc = window_read(&pad, &spec->pad_h, &spec->pad_w, err);
    if (rc == OK)
        rc = window_read(&dilation, &spec->dilation_h, &spec->dilation_w, err);
    return rc;
}

static int read_channels(const Caffe__ConvolutionParameter *p, struct conv_spec *spec,
                         size_t *outputs, struct err *err)
{
    size_t C = spec->x.dim[1];
    if (p->num_output == 0)
        return err_set(err, ERR_INPUT, "convolution_param.num_output must be positive");
    if (p->group == 0 || C % p->group != 0 || p->num_output % p->group != 0)
        return err_set(err, ERR_INPUT,
                       "convolution_param.group: %u must divide %zu inputs and %u outputs",
                       (unsigned)p->group, C, (unsigned)p->num_output);
    spec->groups = p->group;
    *outputs = p->num_output;
    return OK;
}

/* engine chooses among Caffe's implementations, and force_nd_im2col among its loops: the values are
 * the same for all. */
int conv_fields_read(const struct layer *layer, const char *what, struct conv_spec *spec,
                     size_t *outputs, struct err *err)
{
    const Caffe__ConvolutionParameter *p = layer->param->convolution_param;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = layer_image(layer, what, err);
    if (rc != OK)
        return rc;
    if (!p)
        return err_set(err, ERR_INPUT, "convolution_param.num_output must be positive");
    *spec = (struct conv_spec){.x = layer->bottom[0].blob->shape, .bias = p->bias_term};
    rc = layer_axis(layer, "convolution_param.axis", p->axis, err);
    if (rc == OK)
        rc = read_channels(p, spec, outputs, err);
    return rc == OK ? read_window(p, spec, err) : rc;
}

int conv_fields_declare(struct layer *layer, const struct setup *setup,
                        const struct conv_spec *spec, const struct shape *image, size_t columns,
                        struct err *err)
{
    const Caffe__ConvolutionParameter *p = layer->param->convolution_param;
    struct shape w = {4, {image->dim[1], columns / spec->groups, spec->kernel_h, spec->kernel_w}};
    struct shape b = {1, {spec->y.dim[1]}};
    int rc = layer_param(layer, setup, &w, "weight_filler", p->weight_filler, err);
    if (rc == OK && p->bias_term)
        rc = layer_param(layer, setup, &b, "bias_filler", p->bias_filler, err);
    if (rc != OK)
        return rc;
    layer->products = (double)shape_count(image) * (double)shape_count_from(&w, 1);
    if (layer_is_cut(layer))
        layer->products *= (double)layer->own.len / (double)layer->outputs;
    return layer_params_done(layer, err);
}
