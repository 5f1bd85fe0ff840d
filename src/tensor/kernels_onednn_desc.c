/* Descriptors, where oneDNN 2 and 3 differ: 2 has memory descriptors by value and describes an
 * operation before it asks for a primitive; 3 has them by handle and does both at once. */
#include "tensor/kernels_onednn.h"

struct conv_forms {
    onednn_desc x, w, b, y; /* b NULL: no bias */
    onednn_desc hint_w;     /* those of the forward pass */
    dnnl_prop_kind_t prop;
    dnnl_alg_kind_t alg;
    dnnl_dims_t stride, pad, dilate; /* dilate: pixels between taps, 0 for none */
};

/* A search through the codes, one after another, until one is taken. */
struct look {
    onednn_see see;
    void *user;
};

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t form_init(dnnl_memory_desc_t *form, int n, const dnnl_dims_t dim,
                               dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(form, n, dim, type, tag);
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

static dnnl_status_t conv_first(struct onednn *dnn, const struct conv_forms *f,
                                enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                                dnnl_primitive_desc_t *out)
{
    if (pass == ONEDNN_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(out, dnn->engine, f->prop, f->alg,
                                                              f->x, f->w, f->b, f->y, f->stride,
                                                              f->dilate, f->pad, f->pad, dnn->attr);
    if (pass == ONEDNN_BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, dnn->engine, f->alg, f->x, f->w, f->y, f->stride, f->dilate, f->pad, f->pad, hint,
            dnn->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, dnn->engine, f->alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad,
        hint, dnn->attr);
}

static dnnl_status_t conv_find(struct onednn *dnn, const struct conv_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               const struct look *look, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = conv_first(dnn, f, pass, hint, &pd);
    if (status)
        return status;
    while (!look->see(look->user, pd))
        if (dnnl_primitive_desc_next_impl(pd) != dnnl_success) {
            dnnl_primitive_desc_destroy(pd);
            return dnnl_unimplemented;
        }
    *out = pd;
    return dnnl_success;
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
                               dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(form, n, dim, type, tag);
}

static onednn_desc form_view(const dnnl_memory_desc_t *form)
{
    return form;
}

static void form_release(dnnl_memory_desc_t *form)
{
    (void)form;
}

static dnnl_status_t conv_look(struct onednn *dnn, const dnnl_convolution_desc_t *desc,
                               const_dnnl_primitive_desc_t hint, const struct look *look,
                               dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t choice;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&choice, desc, dnn->attr, dnn->engine, hint);
    if (status)
        return status;
    while (!status) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(choice);
        if (pd && look->see(look->user, pd)) {
            *out = pd;
            break;
        }
        if (pd)
            dnnl_primitive_desc_destroy(pd);
        status = pd ? dnnl_primitive_desc_iterator_next(choice) : dnnl_out_of_memory;
    }
    dnnl_primitive_desc_iterator_destroy(choice);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

static dnnl_status_t conv_find(struct onednn *dnn, const struct conv_forms *f,
                               enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                               const struct look *look, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (pass == ONEDNN_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &desc, f->prop, f->alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad);
    else if (pass == ONEDNN_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, f->alg, f->x, f->w, f->y, f->stride, f->dilate, f->pad, f->pad);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, f->alg, f->x, f->w, f->b, f->y, f->stride, f->dilate, f->pad, f->pad);
    return status ? status : conv_look(dnn, &desc, hint, look, out);
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

static dnnl_data_type_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* An image in one block has this tag: oneDNN wants one tag for both images. */
static dnnl_format_tag_t tag_of(const struct conv_spec *spec, const struct shape *image)
{
    return spec->blocks && image->dim[1] % BLOCK_CHANNELS == 0 ? dnnl_nChw16c : dnnl_nhwc;
}

static dnnl_status_t image_init(dnnl_memory_desc_t *form, const struct shape *shape,
                                enum dtype dtype, dnnl_format_tag_t tag)
{
    dnnl_dims_t dim = {0};
    for (size_t i = 0; i < 4; i++)
        dim[i] = (dnnl_dim_t)shape->dim[i];
    return form_init(form, 4, dim, type_of(dtype), tag);
}

dnnl_status_t onednn_memory_image(struct onednn *dnn, const struct conv_spec *spec,
                                  const struct shape *image, dnnl_memory_t *out)
{
    dnnl_memory_desc_t form = {0};
    dnnl_status_t status = image_init(&form, image, spec->dtype, tag_of(spec, image));
    if (!status)
        status = onednn_memory(dnn, form_view(&form), NULL, out);
    form_release(&form);
    return status;
}

/* Weights in the order `plain`, or `grouped` where there are groups: (O, C, KH, KW), with the
 * groups before all. */
static dnnl_status_t weights_init(dnnl_memory_desc_t *form, const struct conv_spec *s,
                                  dnnl_data_type_t type, dnnl_format_tag_t plain,
                                  dnnl_format_tag_t grouped)
{
    dnnl_dim_t G = (dnnl_dim_t)s->groups, O = (dnnl_dim_t)s->y.dim[1] / G;
    dnnl_dim_t C = (dnnl_dim_t)s->x.dim[1] / G;
    dnnl_dim_t KH = (dnnl_dim_t)s->kernel_h, KW = (dnnl_dim_t)s->kernel_w;
    if (G == 1)
        return form_init(form, 4, (dnnl_dims_t){O, C, KH, KW}, type, plain);
    return form_init(form, 5, (dnnl_dims_t){G, O, C, KH, KW}, type, grouped);
}

dnnl_status_t onednn_memory_weights(struct onednn *dnn, const struct conv_spec *s,
                                    dnnl_memory_t *out)
{
    dnnl_memory_desc_t form = {0};
    dnnl_status_t status = weights_init(&form, s, dnnl_f32, dnnl_oihw, dnnl_goihw);
    if (!status)
        status = onednn_memory(dnn, form_view(&form), NULL, out);
    form_release(&form);
    return status;
}

static bool see_first(void *user, const_dnnl_primitive_desc_t pd)
{
    (void)user;
    return pd != NULL;
}

/* A backward pass asks for the forward's descriptor, whichever. */
static dnnl_status_t find_with_hint(struct onednn *dnn, const struct conv_forms *f,
                                    enum onednn_pass pass, const struct look *look,
                                    dnnl_primitive_desc_t *out)
{
    const struct look any = {see_first, NULL};
    struct conv_forms forward = *f;
    dnnl_primitive_desc_t hint;
    if (pass == ONEDNN_FORWARD)
        return conv_find(dnn, f, pass, NULL, look, out);
    forward.w = f->hint_w;
    dnnl_status_t status = conv_find(dnn, &forward, ONEDNN_FORWARD, NULL, &any, &hint);
    if (status)
        return status;
    status = conv_find(dnn, f, pass, hint, look, out);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

dnnl_status_t onednn_conv_find(struct onednn *dnn, const struct onednn_conv *conv, onednn_see see,
                               void *user, dnnl_primitive_desc_t *out)
{
    const struct conv_spec *s = conv->spec;
    const struct look look = {see, user};
    dnnl_format_tag_t x_tag = conv->any_form ? dnnl_format_tag_any : tag_of(s, &s->x);
    dnnl_format_tag_t y_tag = conv->any_form ? dnnl_format_tag_any : tag_of(s, &s->y);
    dnnl_data_type_t w_type = conv->pass == ONEDNN_BACKWARD_WEIGHTS ? dnnl_f32 : type_of(s->dtype);
    dnnl_dims_t dim_b = {(dnnl_dim_t)s->y.dim[1]};
    dnnl_memory_desc_t x = {0}, w = {0}, hint_w = {0}, b = {0}, y = {0};
    dnnl_status_t status = image_init(&x, &s->x, s->dtype, x_tag);
    if (!status)
        status = weights_init(&w, s, w_type, dnnl_format_tag_any, dnnl_format_tag_any);
    if (!status)
        status =
            weights_init(&hint_w, s, type_of(s->dtype), dnnl_format_tag_any, dnnl_format_tag_any);
    if (!status)
        status = form_init(&b, 1, dim_b, dnnl_f32, dnnl_a);
    if (!status)
        status = image_init(&y, &s->y, s->dtype, y_tag);
    struct conv_forms forms = {
        .x = form_view(&x),
        .w = form_view(&w),
        .b = s->bias ? form_view(&b) : NULL,
        .y = form_view(&y),
        .hint_w = form_view(&hint_w),
        .prop = conv->training ? dnnl_forward_training : dnnl_forward_inference,
        .alg = conv->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct,
        .stride = {(dnnl_dim_t)s->stride_h, (dnnl_dim_t)s->stride_w},
        .pad = {(dnnl_dim_t)s->pad_h, (dnnl_dim_t)s->pad_w},
        .dilate = {(dnnl_dim_t)s->dilation_h - 1, (dnnl_dim_t)s->dilation_w - 1},
    };
    if (!status)
        status = find_with_hint(dnn, &forms, conv->pass, &look, out);
    form_release(&x);
    form_release(&w);
    form_release(&hint_w);
    form_release(&b);
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
    dnnl_status_t status = form_init(&form, 1, dim, dnnl_f32, dnnl_a);
    if (!status)
        status = logistic_desc(dnn, form_view(&form), prop, pass, hint, out);
    form_release(&form);
    return status;
}
