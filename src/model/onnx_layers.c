#include "model/onnx_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what they share ---- */

int onnx_blob_of(struct onnx_export *e, const struct onnx_step *s, size_t k,
                 const struct shape *want, struct caffe_tensor *out, struct err *err)
{
    char a[128], b[128];
    if (!e->blobs->get(e->blobs->user, s->i, k, out))
        return err_set(err, ERR_INPUT, "%.200s: layer \"%.100s\" (%.40s): has no weights %zu",
                       e->path, s->name, s->layer->type, k);
    if (want->n > 0 && !caffe_shapes_fit(&out->shape, want))
        return err_set(err, ERR_INPUT, "%.200s: layer \"%.100s\": weights %zu are %s, not %s",
                       e->path, s->name, k, shape_text(&out->shape, a, sizeof a),
                       shape_text(want, b, sizeof b));
    return OK;
}

const char *onnx_put_blob(struct onnx_export *e, const char *layer, size_t k,
                          const struct shape *shape, const float *at)
{
    char name[512 + 32];
    snprintf(name, sizeof name, "%.500s.%zu", layer, k);
    return onnx_put_floats(&e->w, name, shape, at);
}

Onnx__NodeProto *onnx_put_step(struct onnx_export *e, const struct onnx_step *s, const char *type)
{
    return onnx_put_node(&e->w, type, s->name, s->in, 1, s->out);
}

const char *onnx_put_inner(struct onnx_export *e, const struct onnx_step *s, const char *type,
                           const char *suffix, const char *a, const char *b, bool last)
{
    const char *const in[] = {a, b};
    const char *name = onnx_join(&e->w, s->name, suffix), *out = last ? s->out : name;
    onnx_put_node(&e->w, type, last ? s->name : name, in, b ? 2 : 1, out);
    return out;
}

static const char *put_number(struct onnx_export *e, const struct onnx_step *s, const char *name,
                              float value)
{
    return onnx_put_number(&e->w, onnx_join(&e->w, s->name, name), value);
}

/* ---- one value to one ---- */

#define PLAIN(name, type)                                                                    \
    static int put_##name(struct onnx_export *e, const struct onnx_step *s, struct err *err) \
    {                                                                                        \
        (void)err;                                                                           \
        onnx_put_step(e, s, type);                                                           \
        return OK;                                                                           \
    }

PLAIN(sigmoid, "Sigmoid")
PLAIN(tanh, "Tanh")
PLAIN(absolute, "Abs")

static int put_relu(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__ReLUParameter *p = s->layer->relu_param;
    if (!p || p->negative_slope == 0.0f)
        onnx_put_step(e, s, "Relu");
    else
        onnx_put_float(&e->w, onnx_put_step(e, s, "LeakyRelu"), "alpha", p->negative_slope);
    return OK;
}

static int put_elu(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__ELUParameter *p = s->layer->elu_param;
    onnx_put_float(&e->w, onnx_put_step(e, s, "Elu"), "alpha", p ? p->alpha : 1.0f);
    return OK;
}

/* A slope for all, or (C, 1, 1). */
static int put_prelu(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    struct caffe_tensor slope;
    int rc = onnx_blob_of(e, s, 0, &(struct shape){0}, &slope, err);
    if (rc != OK)
        return rc;
    size_t n = shape_count(&slope.shape);
    struct shape shape = {.n = n == 1 ? 0 : s->x[0].n - 1, .dim = {n}};
    for (size_t k = 1; k < shape.n; k++)
        shape.dim[k] = 1;
    const char *const in[] = {s->in[0], onnx_put_blob(e, s->name, 0, &shape, slope.data)};
    onnx_put_node(&e->w, "PRelu", s->name, in, 2, s->out);
    return OK;
}

/* a x + b, of which 1 x + 0 needs no node. */
static const char *put_line(struct onnx_export *e, const struct onnx_step *s, float a, float b)
{
    const char *at = s->in[0];
    if (a != 1.0f)
        at = onnx_put_inner(e, s, "Mul", "scaled", at, put_number(e, s, "scale", a), false);
    if (b != 0.0f)
        at = onnx_put_inner(e, s, "Add", "shifted", at, put_number(e, s, "shift", b), false);
    return at;
}

static int put_power(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    Caffe__PowerParameter none = CAFFE__POWER_PARAMETER__INIT;
    const Caffe__PowerParameter *p = s->layer->power_param ? s->layer->power_param : &none;
    const char *at = put_line(e, s, p->scale, p->shift);
    if (p->power == 1.0f)
        onnx_put_inner(e, s, "Identity", "", at, NULL, true);
    else
        onnx_put_inner(e, s, "Pow", "", at, put_number(e, s, "power", p->power), true);
    return OK;
}

static float logarithm_of(float base)
{
    return base == -1.0f ? 1.0f : (float)log((double)base);
}

static int put_exp(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    Caffe__ExpParameter none = CAFFE__EXP_PARAMETER__INIT;
    const Caffe__ExpParameter *p = s->layer->exp_param ? s->layer->exp_param : &none;
    float ln = logarithm_of(p->base_);
    onnx_put_inner(e, s, "Exp", "", put_line(e, s, ln * p->scale, ln * p->shift), NULL, true);
    return OK;
}

static int put_log(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    Caffe__LogParameter none = CAFFE__LOG_PARAMETER__INIT;
    const Caffe__LogParameter *p = s->layer->log_param ? s->layer->log_param : &none;
    float ln = logarithm_of(p->base_);
    const char *at = put_line(e, s, p->scale, p->shift);
    if (ln == 1.0f) {
        onnx_put_inner(e, s, "Log", "", at, NULL, true);
        return OK;
    }
    at = onnx_put_inner(e, s, "Log", "log", at, NULL, false);
    onnx_put_inner(e, s, "Mul", "", at, put_number(e, s, "base", 1.0f / ln), true);
    return OK;
}

static int put_clip(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__ClipParameter *p = s->layer->clip_param;
    const char *const in[] = {s->in[0], put_number(e, s, "min", p->min),
                              put_number(e, s, "max", p->max)};
    onnx_put_node(&e->w, "Clip", s->name, in, 3, s->out);
    return OK;
}

/* Its default is no training: other programs pass the values through, unless they train. */
static int put_dropout(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__DropoutParameter *p = s->layer->dropout_param;
    const char *ratio = put_number(e, s, "ratio", p ? p->dropout_ratio : 0.5f);
    const char *const in[] = {s->in[0], ratio};
    onnx_put_node(&e->w, "Dropout", s->name, in, 2, s->out);
    return OK;
}

static int put_softmax(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__SoftmaxParameter *p = s->layer->softmax_param;
    onnx_put_int(&e->w, onnx_put_step(e, s, "Softmax"), "axis", p ? p->axis : 1);
    return OK;
}

/* ---- several values to one ---- */

static int put_concat(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    const Caffe__ConcatParameter *p = s->layer->concat_param;
    int64_t axis = !p ? 1 : p->has_concat_dim ? (int64_t)p->concat_dim : p->axis;
    Onnx__NodeProto *node =
        onnx_put_node(&e->w, "Concat", s->name, s->in, s->layer->n_bottom, s->out);
    onnx_put_int(&e->w, node, "axis", axis);
    return OK;
}

/* Products two by two: ONNX's have two operands. */
static void put_products(struct onnx_export *e, const struct onnx_step *s)
{
    size_t n = s->layer->n_bottom;
    const char *at = s->in[0];
    char suffix[32];
    for (size_t k = 1; k < n; k++) {
        snprintf(suffix, sizeof suffix, "product%zu", k);
        at = onnx_put_inner(e, s, "Mul", suffix, at, s->in[k], k + 1 == n);
    }
}

static int put_eltwise(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    Caffe__EltwiseParameter none = CAFFE__ELTWISE_PARAMETER__INIT;
    const Caffe__EltwiseParameter *p = s->layer->eltwise_param ? s->layer->eltwise_param : &none;
    size_t n = s->layer->n_bottom;
    if (p->operation == CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD) {
        put_products(e, s);
        return OK;
    }
    if (p->operation == CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__MAX) {
        onnx_put_node(&e->w, "Max", s->name, s->in, n, s->out);
        return OK;
    }
    const char **in = arena_array(&e->w.arena, n, const char *);
    if (!in)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t k = 0; k < n; k++) {
        char number[32], scaled[32];
        float coeff = k < p->n_coeff ? p->coeff[k] : 1.0f;
        snprintf(number, sizeof number, "coeff%zu", k);
        snprintf(scaled, sizeof scaled, "scaled%zu", k);
        in[k] = coeff == 1.0f ? s->in[k]
                              : onnx_put_inner(e, s, "Mul", scaled, s->in[k],
                                               put_number(e, s, number, coeff), false);
    }
    onnx_put_node(&e->w, n == 2 ? "Add" : "Sum", s->name, in, n, s->out);
    return OK;
}

/* Flatten and Reshape: to the shape that the plan has; 0 stands for the records. */
static int put_reshape(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    int64_t dims[SHAPE_DIMS_MAX] = {0};
    for (size_t k = 1; k < s->y->n; k++)
        dims[k] = (int64_t)s->y->dim[k];
    const char *const in[] = {
        s->in[0], onnx_put_list(&e->w, onnx_join(&e->w, s->name, "shape"), dims, s->y->n)};
    onnx_put_node(&e->w, "Reshape", s->name, in, 2, s->out);
    return OK;
}

/* ---- one value to several ---- */

static int put_copies(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    (void)err;
    for (size_t k = 0; k < s->layer->n_top; k++)
        onnx_put_node(&e->w, "Identity", k == 0 ? s->name : s->tops[k], s->in, 1, s->tops[k]);
    return OK;
}

/* The sizes of the parts along the axis that they are cut at. ONNX has no parts without one. */
static int put_slice(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    const Caffe__SliceParameter *p = s->layer->slice_param;
    int64_t axis = !p ? 1 : p->has_slice_dim ? (int64_t)p->slice_dim : p->axis;
    size_t n = s->layer->n_top;
    if (n == 1)
        return put_copies(e, s, err);
    axis += axis < 0 ? (int64_t)s->x[0].n : 0;
    int64_t *size = arena_array(&e->w.arena, n, int64_t);
    if (!size)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t k = 0; k < n; k++)
        size[k] = (int64_t)s->y[k].dim[axis];
    const char *const in[] = {s->in[0],
                              onnx_put_list(&e->w, onnx_join(&e->w, s->name, "sizes"), size, n)};
    Onnx__NodeProto *node = onnx_put_node(&e->w, "Split", s->name, in, 2, s->out);
    onnx_put_int(&e->w, node, "axis", axis);
    for (size_t k = 1; k < n; k++)
        onnx_put_result(&e->w, node, s->tops[k]);
    return OK;
}

/* ---- the table ---- */

static const struct {
    const char *type;
    onnx_layer_writer *put;
    bool several; /* tops */
} writers[] = {
    {"AbsVal", put_absolute, false},
    {"BatchNorm", onnx_put_batch_norm, false},
    {"Bias", onnx_put_bias, false},
    {"Clip", put_clip, false},
    {"Concat", put_concat, false},
    {"Convolution", onnx_put_convolution, false},
    {"Deconvolution", onnx_put_convolution, false},
    {"Dropout", put_dropout, false},
    {"ELU", put_elu, false},
    {"Eltwise", put_eltwise, false},
    {"Embed", onnx_put_embed, false},
    {"Exp", put_exp, false},
    {"Flatten", put_reshape, false},
    {"GRU", onnx_put_recurrent, false},
    {"InnerProduct", onnx_put_inner_product, false},
    {"LRN", onnx_put_lrn, false},
    {"LSTM", onnx_put_recurrent, false},
    {"Log", put_log, false},
    {"PReLU", put_prelu, false},
    {"Pooling", onnx_put_pooling, false},
    {"Power", put_power, false},
    {"RNN", onnx_put_recurrent, false},
    {"ReLU", put_relu, false},
    {"Reshape", put_reshape, false},
    {"Scale", onnx_put_scale, false},
    {"Sigmoid", put_sigmoid, false},
    {"Slice", put_slice, true},
    {"Softmax", put_softmax, false},
    {"Split", put_copies, true},
    {"TanH", put_tanh, false},
};

onnx_layer_writer *onnx_writer_of(const char *type, bool *several)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        if (strcmp(writers[i].type, type) == 0) {
            *several = writers[i].several;
            return writers[i].put;
        }
    return NULL;
}
