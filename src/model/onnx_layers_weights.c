/* Layers with weights and windows as nodes of ONNX. */
#include "model/onnx_layers.h"

#include <math.h>
#include <string.h>

/* ---- convolutions ---- */

static int64_t one_of(size_t n, const uint32_t *both, size_t k, bool has, uint32_t own,
                      int64_t fallback)
{
    if (n > 0)
        return both[k < n ? k : n - 1];
    return has ? (int64_t)own : fallback;
}

static void put_conv_window(struct onnx_export *e, Onnx__NodeProto *node,
                            const Caffe__ConvolutionParameter *p)
{
    int64_t kernel[2], stride[2], dilation[2], pads[4];
    for (size_t k = 0; k < 2; k++) {
        kernel[k] =
            one_of(p->n_kernel_size, p->kernel_size, k, true, k ? p->kernel_w : p->kernel_h, 1);
        stride[k] = one_of(p->n_stride, p->stride, k, k ? p->has_stride_w : p->has_stride_h,
                           k ? p->stride_w : p->stride_h, 1);
        dilation[k] = one_of(p->n_dilation, p->dilation, k, false, 1, 1);
        pads[k] = pads[2 + k] = one_of(p->n_pad, p->pad, k, k ? p->has_pad_w : p->has_pad_h,
                                       k ? p->pad_w : p->pad_h, 0);
    }
    onnx_put_ints(&e->w, node, "kernel_shape", kernel, 2);
    onnx_put_ints(&e->w, node, "strides", stride, 2);
    onnx_put_ints(&e->w, node, "dilations", dilation, 2);
    onnx_put_ints(&e->w, node, "pads", pads, 4);
    onnx_put_int(&e->w, node, "group", p->group);
}

int onnx_put_convolution(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    const Caffe__ConvolutionParameter *p = s->layer->convolution_param;
    struct caffe_tensor weights, bias;
    const struct shape each = {1, {p->num_output}};
    const char *in[3] = {s->in[0]};
    bool back = strcmp(s->layer->type, "Deconvolution") == 0;
    int rc = onnx_blob_of(e, s, 0, &(struct shape){0}, &weights, err);
    if (rc != OK)
        return rc;
    if (weights.shape.n != 4)
        return err_set(err, ERR_INPUT, "%.200s: layer \"%.100s\": weights of %zu dimensions, not 4",
                       e->path, s->name, weights.shape.n);
    in[1] = onnx_put_blob(e, s->name, 0, &weights.shape, weights.data);
    if (p->bias_term) {
        rc = onnx_blob_of(e, s, 1, &each, &bias, err);
        if (rc != OK)
            return rc;
        in[2] = onnx_put_blob(e, s->name, 1, &each, bias.data);
    }
    put_conv_window(e,
                    onnx_put_node(&e->w, back ? "ConvTranspose" : "Conv", s->name, in,
                                  p->bias_term ? 3 : 2, s->out),
                    p);
    return OK;
}

/* ---- poolings ---- */

struct pool_window {
    int64_t kernel[2], stride[2], pads[4];
    bool counts_padding;
};

/* ONNX's padding behind the image is chosen so that there are as many windows as the layer has.
 * False: an average over padding that ONNX would count otherwise. */
static bool fit_window(const Caffe__PoolingParameter *p, const struct onnx_step *s,
                       struct pool_window *w)
{
    for (size_t k = 0; k < 2; k++) {
        int64_t size = (int64_t)s->x[0].dim[2 + k], n = (int64_t)s->y->dim[2 + k];
        w->kernel[k] = p->has_kernel_size ? p->kernel_size : k ? p->kernel_w : p->kernel_h;
        w->stride[k] = p->has_stride ? p->stride : k ? p->stride_w : p->stride_h;
        if (w->stride[k] == 0)
            w->stride[k] = 1;
        int64_t before = p->has_pad ? p->pad : k ? p->pad_w : p->pad_h;
        int64_t after = (n - 1) * w->stride[k] + w->kernel[k] - size - before;
        w->pads[k] = before;
        w->pads[2 + k] = after > 0 ? after : 0;
        w->counts_padding |= before > 0;
    }
    if (p->pool != CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE)
        return true;
    for (size_t k = 0; k < 2; k++)
        if (w->counts_padding && w->pads[2 + k] > w->pads[k])
            return false;
    return true;
}

int onnx_put_pooling(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    const Caffe__PoolingParameter *p = s->layer->pooling_param;
    struct pool_window w = {.counts_padding = false};
    bool average = p->pool == CAFFE__POOLING_PARAMETER__POOL_METHOD__AVE;
    if (p->global_pooling) {
        onnx_put_step(e, s, average ? "GlobalAveragePool" : "GlobalMaxPool");
        return OK;
    }
    if (!fit_window(p, s, &w))
        return onnx_no_operator(e, s, err,
                                "an average whose last window sticks out of the padded image");
    Onnx__NodeProto *node = onnx_put_step(e, s, average ? "AveragePool" : "MaxPool");
    onnx_put_ints(&e->w, node, "kernel_shape", w.kernel, 2);
    onnx_put_ints(&e->w, node, "strides", w.stride, 2);
    onnx_put_ints(&e->w, node, "pads", w.pads, 4);
    if (average)
        onnx_put_int(&e->w, node, "count_include_pad", w.counts_padding);
    return OK;
}

/* ---- LRN ---- */

/* Within a channel, for which ONNX has no operator: x · (1 + alpha · mean of x²)^-beta. */
static void put_within(struct onnx_export *e, const struct onnx_step *s,
                       const Caffe__LRNParameter *p)
{
    struct onnx_writer *w = &e->w;
    int64_t size = p->local_size, half = (size - 1) / 2;
    const int64_t kernel[] = {size, size}, stride[] = {1, 1}, pads[] = {half, half, half, half};
    const char *x = s->in[0], *mean = onnx_join(w, s->name, "mean");
    const char *square = onnx_put_inner(e, s, "Mul", "square", x, x, false);
    Onnx__NodeProto *node = onnx_put_node(w, "AveragePool", mean, &square, 1, mean);
    onnx_put_ints(w, node, "kernel_shape", kernel, 2);
    onnx_put_ints(w, node, "strides", stride, 2);
    onnx_put_ints(w, node, "pads", pads, 4);
    onnx_put_int(w, node, "count_include_pad", 1);
    const char *alpha = onnx_put_number(w, onnx_join(w, s->name, "alpha"), p->alpha);
    const char *one = onnx_put_number(w, onnx_join(w, s->name, "one"), 1.0f);
    const char *beta = onnx_put_number(w, onnx_join(w, s->name, "beta"), -p->beta);
    const char *at = onnx_put_inner(e, s, "Mul", "scaled", mean, alpha, false);
    at = onnx_put_inner(e, s, "Add", "sum", at, one, false);
    at = onnx_put_inner(e, s, "Pow", "factor", at, beta, false);
    onnx_put_inner(e, s, "Mul", "", x, at, true);
}

int onnx_put_lrn(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    Caffe__LRNParameter none = CAFFE__LRNPARAMETER__INIT;
    const Caffe__LRNParameter *p = s->layer->lrn_param ? s->layer->lrn_param : &none;
    if (p->norm_region == CAFFE__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL) {
        put_within(e, s, p);
        return OK;
    }
    Onnx__NodeProto *node = onnx_put_step(e, s, "LRN");
    onnx_put_int(&e->w, node, "size", p->local_size);
    onnx_put_float(&e->w, node, "alpha", p->alpha);
    onnx_put_float(&e->w, node, "beta", p->beta);
    onnx_put_float(&e->w, node, "bias", p->k);
    return OK;
}

/* ---- matrix products ---- */

/* A Gemm of rows of all values of a record. */
static void put_gemm(struct onnx_export *e, const struct onnx_step *s, bool turned,
                     const struct shape *shape, const float *weights, const float *bias)
{
    const char *x = s->in[0];
    if (s->x[0].n > 2)
        x = onnx_put_inner(e, s, "Flatten", "rows", x, NULL, false);
    const char *const in[] = {
        x,
        onnx_put_blob(e, s->name, 0, shape, weights),
        bias ? onnx_put_blob(e, s->name, 1, &(struct shape){1, {s->y->dim[1]}}, bias) : NULL,
    };
    Onnx__NodeProto *node = onnx_put_node(&e->w, "Gemm", s->name, in, bias ? 3 : 2, s->out);
    onnx_put_int(&e->w, node, "transB", turned);
}

/* A product along the last axis alone: a MatMul with (I, O). */
static int put_matmul(struct onnx_export *e, const struct onnx_step *s, bool turned, size_t O,
                      size_t I, const float *weights, const float *bias, struct err *err)
{
    const struct shape shape = {2, {I, O}};
    const float *at = weights;
    if (turned) {
        float *to = arena_array(&e->w.arena, I * O, float);
        if (!to)
            return err_set(err, ERR_NOMEM, "net: out of memory");
        for (size_t o = 0; o < O; o++)
            for (size_t i = 0; i < I; i++)
                to[i * O + o] = weights[o * I + i];
        at = to;
    }
    const char *w = onnx_put_blob(e, s->name, 0, &shape, at);
    const char *y = onnx_put_inner(e, s, "MatMul", "product", s->in[0], w, !bias);
    if (bias)
        onnx_put_inner(e, s, "Add", "", y,
                       onnx_put_blob(e, s->name, 1, &(struct shape){1, {O}}, bias), true);
    return OK;
}

int onnx_put_inner_product(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    const Caffe__InnerProductParameter *p = s->layer->inner_product_param;
    struct caffe_tensor weights, bias = {.data = NULL};
    int64_t axis = p->axis < 0 ? p->axis + (int64_t)s->x[0].n : p->axis;
    size_t I = shape_count_from(&s->x[0], (size_t)axis), O = p->num_output;
    const struct shape shape = {2, {p->transpose ? I : O, p->transpose ? O : I}};
    int rc = onnx_blob_of(e, s, 0, &shape, &weights, err);
    if (rc == OK && p->bias_term)
        rc = onnx_blob_of(e, s, 1, &(struct shape){1, {O}}, &bias, err);
    if (rc != OK)
        return rc;
    if (axis == 1) {
        put_gemm(e, s, !p->transpose, &shape, weights.data, bias.data);
        return OK;
    }
    if (axis != (int64_t)s->x[0].n - 1)
        return onnx_no_operator(e, s, err, "a product along several axes that are not all");
    return put_matmul(e, s, !p->transpose, O, I, weights.data, bias.data, err);
}

/* ---- channels ---- */

/* Means or variances: the sums over their divisor. */
static int put_statistics(struct onnx_export *e, const struct onnx_step *s, size_t k, size_t C,
                          const char **out, struct err *err)
{
    struct caffe_tensor sums, count;
    const struct shape each = {1, {C}};
    int rc = onnx_blob_of(e, s, k, &each, &sums, err);
    if (rc == OK)
        rc = onnx_blob_of(e, s, 2, &(struct shape){1, {1}}, &count, err);
    float *at = rc == OK ? arena_array(&e->w.arena, C, float) : NULL;
    if (rc != OK || !at)
        return rc != OK ? rc : err_set(err, ERR_NOMEM, "net: out of memory");
    double scale = count.data[0] != 0.0f ? 1.0 / (double)count.data[0] : 0.0;
    for (size_t c = 0; c < C; c++)
        at[c] = (float)(scale * (double)sums.data[c]);
    *out = onnx_put_blob(e, s->name, k, &each, at);
    return OK;
}

/* Of the Scale behind it, or ones and zeros. */
static int put_factors(struct onnx_export *e, const struct onnx_step *s, size_t k, size_t C,
                       const char **out, struct err *err)
{
    const struct shape each = {1, {C}};
    const Caffe__ScaleParameter *p = s->scale ? s->scale->scale_param : NULL;
    struct caffe_tensor tensor;
    if (s->scale && (k == 0 || (p && p->bias_term))) {
        struct onnx_step scale = *s;
        scale.layer = s->scale;
        scale.i = s->scale_i;
        scale.name = s->scale->name ? s->scale->name : "";
        int rc = onnx_blob_of(e, &scale, k, &each, &tensor, err);
        if (rc == OK)
            *out = onnx_put_blob(e, scale.name, k, &each, tensor.data);
        return rc;
    }
    float *at = arena_array(&e->w.arena, C, float);
    if (!at)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t c = 0; c < C; c++)
        at[c] = k == 0 ? 1.0f : 0.0f;
    *out = onnx_put_floats(&e->w, onnx_join(&e->w, s->name, k == 0 ? "ones" : "zeros"), &each, at);
    return OK;
}

int onnx_put_batch_norm(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    Caffe__BatchNormParameter none;
    caffe__batch_norm_parameter__init(&none);
    const Caffe__BatchNormParameter *p = s->layer->batch_norm_param;
    p = p ? p : &none;
    size_t C = s->x[0].dim[1];
    const char *in[5] = {s->in[0]};
    int rc = put_factors(e, s, 0, C, &in[1], err);
    if (rc == OK)
        rc = put_factors(e, s, 1, C, &in[2], err);
    if (rc == OK)
        rc = put_statistics(e, s, 0, C, &in[3], err);
    if (rc == OK)
        rc = put_statistics(e, s, 1, C, &in[4], err);
    if (rc != OK)
        return rc;
    Onnx__NodeProto *node = onnx_put_node(&e->w, "BatchNormalization", s->name, in, 5, s->out);
    onnx_put_float(&e->w, node, "epsilon", p->eps);
    onnx_put_float(&e->w, node, "momentum", p->moving_average_fraction);
    return OK;
}

/* A parameter over axes from `axis` on, with 1s behind it. */
static int put_repeated(struct onnx_export *e, const struct onnx_step *s, size_t k, int64_t axis,
                        const char **out, struct err *err)
{
    struct caffe_tensor tensor;
    if (s->layer->n_bottom != 1)
        return onnx_no_operator(e, s, err, "a second bottom is not supported");
    int rc = onnx_blob_of(e, s, k, &(struct shape){0}, &tensor, err);
    if (rc != OK)
        return rc;
    struct shape shape = tensor.shape;
    size_t rank = s->x[0].n;
    axis += axis < 0 ? (int64_t)rank : 0;
    if (shape.n > 0 && (axis < 0 || (size_t)axis + shape.n > rank))
        return onnx_no_operator(e, s, err, "weights with more axes than the values");
    for (size_t at = (size_t)axis + shape.n; tensor.shape.n > 0 && at < rank; at++)
        shape.dim[shape.n++] = 1;
    *out = onnx_put_blob(e, s->name, k, &shape, tensor.data);
    return OK;
}

int onnx_put_scale(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    Caffe__ScaleParameter none = CAFFE__SCALE_PARAMETER__INIT;
    const Caffe__ScaleParameter *p = s->layer->scale_param ? s->layer->scale_param : &none;
    const char *w, *b = NULL;
    int rc = put_repeated(e, s, 0, p->axis, &w, err);
    if (rc == OK && p->bias_term)
        rc = put_repeated(e, s, 1, p->axis, &b, err);
    if (rc != OK)
        return rc;
    const char *y = onnx_put_inner(e, s, "Mul", "product", s->in[0], w, !b);
    if (b)
        onnx_put_inner(e, s, "Add", "", y, b, true);
    return OK;
}

int onnx_put_bias(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    Caffe__BiasParameter none = CAFFE__BIAS_PARAMETER__INIT;
    const Caffe__BiasParameter *p = s->layer->bias_param ? s->layer->bias_param : &none;
    const char *b;
    int rc = put_repeated(e, s, 0, p->axis, &b, err);
    if (rc == OK)
        onnx_put_inner(e, s, "Add", "", s->in[0], b, true);
    return rc;
}
