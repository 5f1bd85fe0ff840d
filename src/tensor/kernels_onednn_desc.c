/* Descriptors, where oneDNN 2 and 3 differ: 2 has memory descriptors by value and describes an
 * operation before it asks for a primitive; 3 has them by handle and does both at once. */
#include "tensor/kernels_onednn.h"

#include "base/fault.h"

#include <string.h>

struct conv_forms {
    onednn_desc x, w, b, y; /* b NULL: no bias */
    dnnl_prop_kind_t prop;
    dnnl_dims_t stride, pad, dilate; /* dilate: pixels between taps, 0 for none */
    bool no_brgconv;
};

struct pool_forms {
    onednn_desc x, y;
    dnnl_prop_kind_t prop;
    dnnl_dims_t kernel, stride, pad, pad_end;
};

/* oneDNN's first choice is a product of matrices over the input channels, which has next to nothing
 * to sum over when these are fewer than this; its second choice is faster then. */
enum { BRGCONV_CHANNELS_MIN = 4 };

static bool unwanted(const_dnnl_primitive_desc_t pd, const struct conv_forms *f)
{
    return f->no_brgconv && !strncmp(onednn_name(pd), "brgconv", 7);
}

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t form_init(dnnl_memory_desc_t *form, int n, const dnnl_dims_t dim,
                               dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(form, n, dim, dnnl_f32, tag);
}

static onednn_desc form_view(const dnnl_memory_desc_t *form)
{
    return *form;
}

static void form_release(dnnl_memory_desc_t *form)
{
    if (*form)
        dnnl_memory_desc_destroy(*form);
}

static dnnl_status_t conv_desc(struct onednn *dnn, const struct conv_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_status_t status;
    if (pass == ONEDNN_FORWARD)
        status = dnnl_convolution_forward_primitive_desc_create(
            out, dnn->engine, f->prop, alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad,
            f->pad, dnn->attr);
    else if (pass == ONEDNN_BACKWARD_DATA)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            out, dnn->engine, alg, f->x, f->w, f->y, f->stride, f->dilate, f->pad, f->pad, hint,
            dnn->attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            out, dnn->engine, alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad,
            hint, dnn->attr);
    while (!status && unwanted(*out, f)) {
        status = dnnl_primitive_desc_next_impl(*out);
        if (status)
            dnnl_primitive_desc_destroy(*out);
    }
    return status;
}

static dnnl_status_t pool_desc(struct onednn *dnn, const struct pool_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_pooling_max;
    dnnl_dims_t dilate = {0, 0};
    if (pass == ONEDNN_FORWARD)
        return dnnl_pooling_forward_primitive_desc_create(out, dnn->engine, f->prop, alg, f->x,
                                                          f->y, f->stride, f->kernel, dilate,
                                                          f->pad, f->pad_end, dnn->attr);
    return dnnl_pooling_backward_primitive_desc_create(out, dnn->engine, alg, f->x, f->y, f->stride,
                                                       f->kernel, dilate, f->pad, f->pad_end, hint,
                                                       dnn->attr);
}

static dnnl_status_t logistic_desc(struct onednn *dnn, onednn_desc form, dnnl_prop_kind_t prop,
                                   enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_eltwise_logistic_use_dst_for_bwd;
    if (pass == ONEDNN_FORWARD)
        return dnnl_eltwise_forward_primitive_desc_create(out, dnn->engine, prop, alg, form, form,
                                                          0, 0, dnn->attr);
    return dnnl_eltwise_backward_primitive_desc_create(out, dnn->engine, alg, form, form, form, 0,
                                                       0, hint, dnn->attr);
}

#else

static dnnl_status_t form_init(dnnl_memory_desc_t *form, int n, const dnnl_dims_t dim,
                               dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(form, n, dim, dnnl_f32, tag);
}

static onednn_desc form_view(const dnnl_memory_desc_t *form)
{
    return form;
}

static void form_release(dnnl_memory_desc_t *form)
{
    (void)form;
}

/* The first of oneDNN's choices that is not unwanted. */
static dnnl_status_t conv_choose(struct onednn *dnn, const struct conv_forms *f,
                                 const dnnl_convolution_desc_t *desc,
                                 const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t choice;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&choice, desc, dnn->attr, dnn->engine, hint);
    if (status)
        return status;
    for (;;) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(choice);
        if (!pd)
            status = dnnl_out_of_memory;
        else if (!unwanted(pd, f))
            *out = pd;
        else {
            dnnl_primitive_desc_destroy(pd);
            status = dnnl_primitive_desc_iterator_next(choice);
            if (!status)
                continue;
        }
        break;
    }
    dnnl_primitive_desc_iterator_destroy(choice);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

static dnnl_status_t conv_desc(struct onednn *dnn, const struct conv_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (pass == ONEDNN_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &desc, f->prop, alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad);
    else if (pass == ONEDNN_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, alg, f->x, f->w, f->y, f->stride, f->dilate, f->pad, f->pad);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad);
    return status ? status : conv_choose(dnn, f, &desc, hint, out);
}

static dnnl_status_t pool_desc(struct onednn *dnn, const struct pool_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_pooling_max;
    dnnl_pooling_desc_t desc;
    dnnl_status_t status;
    if (pass == ONEDNN_FORWARD)
        status = dnnl_pooling_forward_desc_init(&desc, f->prop, alg, f->x, f->y, f->stride,
                                                f->kernel, f->pad, f->pad_end);
    else
        status = dnnl_pooling_backward_desc_init(&desc, alg, f->x, f->y, f->stride, f->kernel,
                                                 f->pad, f->pad_end);
    return status ? status : dnnl_primitive_desc_create(out, &desc, dnn->attr, dnn->engine, hint);
}

static dnnl_status_t logistic_desc(struct onednn *dnn, onednn_desc form, dnnl_prop_kind_t prop,
                                   enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *out)
{
    dnnl_alg_kind_t alg = dnnl_eltwise_logistic_use_dst_for_bwd;
    dnnl_eltwise_desc_t desc;
    dnnl_status_t status;
    if (pass == ONEDNN_FORWARD)
        status = dnnl_eltwise_forward_desc_init(&desc, prop, alg, form, 0, 0);
    else
        status = dnnl_eltwise_backward_desc_init(&desc, alg, form, form, 0, 0);
    return status ? status : dnnl_primitive_desc_create(out, &desc, dnn->attr, dnn->engine, hint);
}

#endif

static dnnl_status_t image_init(dnnl_memory_desc_t *form, const struct shape *shape)
{
    dnnl_dims_t dim = {0};
    for (size_t i = 0; i < 4; i++)
        dim[i] = (dnnl_dim_t)shape->dim[i];
    return form_init(form, 4, dim, dnnl_nhwc);
}

/* Weights in the order `plain`, or `grouped` where there are groups: (O, C, KH, KW), with the
 * groups before all. */
static dnnl_status_t weights_init(dnnl_memory_desc_t *form, const struct conv_spec *s,
                                  dnnl_format_tag_t plain, dnnl_format_tag_t grouped)
{
    dnnl_dim_t G = (dnnl_dim_t)s->groups, O = (dnnl_dim_t)s->y.dim[1] / G;
    dnnl_dim_t C = (dnnl_dim_t)s->x.dim[1] / G;
    dnnl_dim_t KH = (dnnl_dim_t)s->kernel_h, KW = (dnnl_dim_t)s->kernel_w;
    if (G == 1)
        return form_init(form, 4, (dnnl_dims_t){O, C, KH, KW}, plain);
    return form_init(form, 5, (dnnl_dims_t){G, O, C, KH, KW}, grouped);
}

dnnl_status_t onednn_memory_weights(struct onednn *dnn, const struct conv_spec *s,
                                    dnnl_memory_t *out)
{
    dnnl_memory_desc_t form = {0};
    dnnl_status_t status = weights_init(&form, s, dnnl_oihw, dnnl_goihw);
    if (!status)
        status = onednn_memory(dnn, form_view(&form), NULL, out);
    form_release(&form);
    return status;
}

dnnl_status_t onednn_conv_desc(struct onednn *dnn, const struct conv_spec *s, bool training,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    dnnl_dims_t dim_b = {(dnnl_dim_t)s->y.dim[1]};
    dnnl_memory_desc_t x = {0}, w = {0}, b = {0}, y = {0};
    dnnl_status_t status = image_init(&x, &s->x);
    if (!status)
        status = weights_init(&w, s, dnnl_format_tag_any, dnnl_format_tag_any);
    if (!status)
        status = form_init(&b, 1, dim_b, dnnl_a);
    if (!status)
        status = image_init(&y, &s->y);
    struct conv_forms forms = {
        .x = form_view(&x),
        .w = form_view(&w),
        .b = s->bias ? form_view(&b) : NULL,
        .y = form_view(&y),
        .prop = training ? dnnl_forward_training : dnnl_forward_inference,
        .stride = {(dnnl_dim_t)s->stride_h, (dnnl_dim_t)s->stride_w},
        .pad = {(dnnl_dim_t)s->pad_h, (dnnl_dim_t)s->pad_w},
        .dilate = {(dnnl_dim_t)s->dilation_h - 1, (dnnl_dim_t)s->dilation_w - 1},
        .no_brgconv = s->x.dim[1] / s->groups < BRGCONV_CHANNELS_MIN,
    };
    if (!status)
        status = conv_desc(dnn, &forms, pass, hint, out);
    form_release(&x);
    form_release(&w);
    form_release(&b);
    form_release(&y);
    return status;
}

/* The padding that the last window needs at the far edge; negative when it ends short of it. */
static dnnl_dim_t pad_end(size_t x, size_t y, size_t kernel, size_t stride, size_t pad)
{
    return (dnnl_dim_t)((y - 1) * stride + kernel) - (dnnl_dim_t)(x + pad);
}

dnnl_status_t onednn_pool_desc(struct onednn *dnn, const struct pool_spec *s, bool training,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *out)
{
    PL_ASSERT(s->kind == POOL_MAX);
    dnnl_memory_desc_t x = {0}, y = {0};
    dnnl_status_t status = image_init(&x, &s->x);
    if (!status)
        status = image_init(&y, &s->y);
    struct pool_forms forms = {
        .x = form_view(&x),
        .y = form_view(&y),
        .prop = training ? dnnl_forward_training : dnnl_forward_inference,
        .kernel = {(dnnl_dim_t)s->kernel_h, (dnnl_dim_t)s->kernel_w},
        .stride = {(dnnl_dim_t)s->stride_h, (dnnl_dim_t)s->stride_w},
        .pad = {(dnnl_dim_t)s->pad_h, (dnnl_dim_t)s->pad_w},
        .pad_end = {pad_end(s->x.dim[2], s->y.dim[2], s->kernel_h, s->stride_h, s->pad_h),
                    pad_end(s->x.dim[3], s->y.dim[3], s->kernel_w, s->stride_w, s->pad_w)},
    };
    if (!status)
        status = pool_desc(dnn, &forms, pass, hint, out);
    form_release(&x);
    form_release(&y);
    return status;
}

dnnl_status_t onednn_logistic_desc(struct onednn *dnn, size_t n, bool training,
                                   enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *out)
{
    const dnnl_dims_t dim = {(dnnl_dim_t)n};
    dnnl_prop_kind_t prop = training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_memory_desc_t form = {0};
    dnnl_status_t status = form_init(&form, 1, dim, dnnl_a);
    if (!status)
        status = logistic_desc(dnn, form_view(&form), prop, pass, hint, out);
    form_release(&form);
    return status;
}
