/* ONNX's operators on single values, on channels, and along an axis. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A layer from input 0 to output 0, of the same shape. */
static int add_unit(struct onnx_graph *g, const struct onnx_node *node, const char *type,
                    Caffe__LayerParameter **layer, struct err *err)
{
    struct onnx_value *x;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    *layer = onnx_layer(g, node, type, x);
    return onnx_result(g, node, 0, &x->shape, err);
}

static int add_plain(struct onnx_graph *g, const struct onnx_node *node, const char *type,
                     struct err *err)
{
    Caffe__LayerParameter *layer;
    return add_unit(g, node, type, &layer, err);
}

int onnx_relu(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "ReLU", err);
}

int onnx_sigmoid(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "Sigmoid", err);
}

int onnx_tanh(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "TanH", err);
}

int onnx_abs(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "AbsVal", err);
}

int onnx_exp(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "Exp", err);
}

int onnx_log(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_plain(g, node, "Log", err);
}

int onnx_leaky_relu(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    Caffe__LayerParameter *layer;
    int rc = add_unit(g, node, "ReLU", &layer, err);
    if (rc != OK)
        return rc;
    layer->relu_param = build_message(&g->build, &caffe__re_luparameter__descriptor);
    if (!layer->relu_param)
        return onnx_no_memory(g, err);
    BUILD_SET(layer->relu_param, negative_slope, onnx_float(node, "alpha", 0.01f));
    return OK;
}

int onnx_elu(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    Caffe__LayerParameter *layer;
    int rc = add_unit(g, node, "ELU", &layer, err);
    if (rc != OK)
        return rc;
    layer->elu_param = build_message(&g->build, &caffe__eluparameter__descriptor);
    if (!layer->elu_param)
        return onnx_no_memory(g, err);
    BUILD_SET(layer->elu_param, alpha, onnx_float(node, "alpha", 1.0f));
    return OK;
}

/* A slope for all, or one a channel: (C, 1, 1), and (C) for rows. */
int onnx_prelu(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *slope;
    Caffe__LayerParameter *layer;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &slope, err);
    if (rc != OK)
        return rc;
    size_t n = shape_count(&slope->shape), at = 0;
    while (at < slope->shape.n && slope->shape.dim[at] == 1)
        at++;
    bool by_channel =
        x->shape.n >= 2 && n == x->shape.dim[1] && slope->shape.n - at == x->shape.n - 1;
    if (n != 1 && !by_channel)
        return onnx_refuse(g, node, err, "%zu slopes, neither one nor one a channel", n);
    rc = add_unit(g, node, "PReLU", &layer, err);
    if (rc != OK)
        return rc;
    layer->prelu_param = build_message(&g->build, &caffe__pre_luparameter__descriptor);
    if (!layer->prelu_param)
        return onnx_no_memory(g, err);
    if (n == 1)
        BUILD_SET(layer->prelu_param, channel_shared, true);
    onnx_weights(g, &(struct shape){n == 1 ? 0 : 1, {n}}, slope->f);
    return OK;
}

/* ---- (shift + scale x) ^ power ---- */

static int add_power(struct onnx_graph *g, const struct onnx_node *node, float power, float scale,
                     struct err *err)
{
    Caffe__LayerParameter *layer;
    int rc = add_unit(g, node, "Power", &layer, err);
    if (rc != OK)
        return rc;
    layer->power_param = build_message(&g->build, &caffe__power_parameter__descriptor);
    if (!layer->power_param)
        return onnx_no_memory(g, err);
    BUILD_SET(layer->power_param, power, power);
    BUILD_SET(layer->power_param, scale, scale);
    return OK;
}

int onnx_neg(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_power(g, node, 1.0f, -1.0f, err);
}

int onnx_sqrt(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_power(g, node, 0.5f, 1.0f, err);
}

int onnx_reciprocal(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_power(g, node, -1.0f, 1.0f, err);
}

int onnx_pow(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *power;
    int rc = onnx_floats(g, node, 1, &power, err);
    if (rc != OK)
        return rc;
    if (shape_count(&power->shape) != 1)
        return onnx_refuse(g, node, err, "more than one exponent");
    return add_power(g, node, power->f[0], 1.0f, err);
}

/* A bound: an attribute, or from opset 11 on an input, which may be missing. */
static int read_bound(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                      const char *attribute, float *out, struct err *err)
{
    struct onnx_value *value;
    *out = onnx_float(node, attribute, *out);
    if (!onnx_has(node, k))
        return OK;
    int rc = onnx_floats(g, node, k, &value, err);
    if (rc != OK)
        return rc;
    if (shape_count(&value->shape) != 1)
        return onnx_broken(g, node, err, "input %zu is not one number", k);
    *out = value->f[0];
    return OK;
}

int onnx_clip(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    float least = -INFINITY, most = INFINITY;
    int rc = read_bound(g, node, 1, "min", &least, err);
    if (rc == OK)
        rc = read_bound(g, node, 2, "max", &most, err);
    if (rc != OK)
        return rc;
    if (least == 0.0f && most >= 3e38f)
        return onnx_relu(g, node, err);
    Caffe__LayerParameter *layer;
    if (!(least <= most))
        return onnx_broken(g, node, err, "min %g and max %g", (double)least, (double)most);
    rc = add_unit(g, node, "Clip", &layer, err);
    if (rc != OK)
        return rc;
    layer->clip_param = build_message(&g->build, &caffe__clip_parameter__descriptor);
    if (!layer->clip_param)
        return onnx_no_memory(g, err);
    BUILD_SET(layer->clip_param, min, least < -FLT_MAX ? -FLT_MAX : least);
    BUILD_SET(layer->clip_param, max, most > FLT_MAX ? FLT_MAX : most);
    return OK;
}

/* ---- along an axis ---- */

/* Below opset 13 all axes from the given one on are one, and the default is 1. */
static int read_softmax_axis(struct onnx_graph *g, const struct onnx_node *node,
                             const struct onnx_value *x, size_t *out, struct err *err)
{
    int64_t n = (int64_t)x->shape.n, axis = onnx_int(node, "axis", g->opset < 13 ? 1 : -1);
    axis += axis < 0 ? n : 0;
    if (axis < 1 || axis >= n)
        return onnx_refuse(g, node, err, "axis %lld of %lld; axis 0 has the records",
                           (long long)onnx_int(node, "axis", -1), (long long)n);
    if (g->opset < 13 && shape_count_from(&x->shape, (size_t)axis + 1) != 1)
        return onnx_refuse(g, node, err, "several axes together");
    *out = (size_t)axis;
    return OK;
}

static int add_softmax(struct onnx_graph *g, const struct onnx_node *node, bool log,
                       struct err *err)
{
    struct onnx_value *x;
    size_t axis = 0;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = read_softmax_axis(g, node, x, &axis, err);
    if (rc != OK)
        return rc;
    const char *inner = log ? onnx_name(g, node, "softmax") : NULL;
    Caffe__LayerParameter *layer = log ? onnx_inner_layer(g, "Softmax", inner, x->blob, inner)
                                       : onnx_layer(g, node, "Softmax", x);
    if (layer && axis != 1) {
        layer->softmax_param = build_message(&g->build, &caffe__softmax_parameter__descriptor);
        if (layer->softmax_param)
            BUILD_SET(layer->softmax_param, axis, (int32_t)axis);
    }
    if (log)
        onnx_layer(g, node, "Log", &(struct onnx_value){.blob = inner});
    return onnx_result(g, node, 0, &x->shape, err);
}

int onnx_softmax(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_softmax(g, node, false, err);
}

int onnx_log_softmax(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_softmax(g, node, true, err);
}

/* ---- channels ---- */

int onnx_lrn(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    Caffe__LayerParameter *layer;
    int64_t size = onnx_int(node, "size", 0);
    if (size < 1 || size > 9999 || size % 2 == 0)
        return onnx_refuse(g, node, err, "size %lld: only odd ones", (long long)size);
    int rc = add_unit(g, node, "LRN", &layer, err);
    if (rc != OK)
        return rc;
    Caffe__LRNParameter *lrn = build_message(&g->build, &caffe__lrnparameter__descriptor);
    layer->lrn_param = lrn;
    if (!lrn)
        return onnx_no_memory(g, err);
    BUILD_SET(lrn, local_size, (uint32_t)size);
    BUILD_SET(lrn, alpha, onnx_float(node, "alpha", 0.0001f));
    BUILD_SET(lrn, beta, onnx_float(node, "beta", 0.75f));
    BUILD_SET(lrn, k, onnx_float(node, "bias", 1.0f));
    return OK;
}

/* Training drops values; the operator itself does so only in its training mode. */
int onnx_dropout(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *value;
    Caffe__LayerParameter *layer;
    float ratio = 0.5f;
    int rc = read_bound(g, node, 1, "ratio", &ratio, err);
    if (rc == OK)
        rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc == OK && onnx_has(node, 2))
        rc = onnx_integers(g, node, 2, &value, err);
    if (rc != OK)
        return rc;
    bool training = onnx_has(node, 2) && shape_count(&value->shape) == 1 && value->i[0] != 0;
    if (training && ratio != 0.0f)
        return onnx_refuse(g, node, err, "training_mode: values at random");
    if (!(ratio >= 0.0f && ratio < 1.0f))
        return onnx_broken(g, node, err, "ratio %g is not 0 to 1", (double)ratio);
    if (ratio == 0.0f)
        return onnx_result_like(g, node, x, &x->shape, err);
    rc = add_unit(g, node, "Dropout", &layer, err);
    if (rc != OK)
        return rc;
    layer->dropout_param = build_message(&g->build, &caffe__dropout_parameter__descriptor);
    if (!layer->dropout_param)
        return onnx_no_memory(g, err);
    BUILD_SET(layer->dropout_param, dropout_ratio, ratio);
    return OK;
}

/* "NAME" of a tensor that is called "NAME.0", as ours are; else "NODE/scale". */
static const char *scale_name(struct onnx_graph *g, const struct onnx_node *node,
                              const struct onnx_value *scale)
{
    size_t n = strlen(scale->name);
    if (n < 3 || strcmp(scale->name + n - 2, ".0") != 0)
        return onnx_name(g, node, "scale");
    char *name = arena_strdup(&g->arena, scale->name);
    if (!name) {
        g->build.failed = true;
        return "";
    }
    name[n - 2] = '\0';
    return name;
}

/* The state has sums and their divisor: a power of two, so that means keep their bits, near
 * 1/(1 - momentum), where the divisor comes to rest: then further training continues the running
 * means as the other program would have. */
static int add_statistics(struct onnx_graph *g, const struct onnx_node *node, size_t C,
                          float fraction, const struct onnx_value *mean,
                          const struct onnx_value *variance, struct err *err)
{
    float count = 1.0f;
    while (count < 1024.0f && 2.0f * count * (1.0f - fraction) <= 1.0f)
        count *= 2.0f;
    float *at = arena_array(&g->arena, 2 * C, float);
    if (!at || g->build.failed)
        return onnx_no_memory(g, err);
    for (size_t c = 0; c < C; c++) {
        at[c] = count * mean->f[c];
        at[C + c] = count * variance->f[c];
        if (!(variance->f[c] >= 0.0f) || !isfinite(at[c]) || !isfinite(at[C + c]))
            return onnx_broken(g, node, err, "channel %zu: mean %g and variance %g", c,
                               (double)mean->f[c], (double)variance->f[c]);
    }
    const struct shape each = {1, {C}};
    onnx_state(g, &each, at);
    onnx_state(g, &each, at + C);
    onnx_state(g, &(struct shape){1, {1}}, &count);
    return OK;
}

static int add_norm(struct onnx_graph *g, const struct onnx_node *node, const struct onnx_value *x,
                    struct onnx_value *const part[4], struct err *err)
{
    float eps = onnx_float(node, "epsilon", 1e-5f), fraction = onnx_float(node, "momentum", 0.9f);
    if (!(fraction >= 0.0f && fraction <= 1.0f) || !(eps > 0.0f))
        return onnx_broken(g, node, err, "momentum %g and epsilon %g", (double)fraction,
                           (double)eps);
    const char *inner = onnx_name(g, node, "norm");
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "BatchNorm", node->name, x->blob, inner);
    Caffe__BatchNormParameter *norm =
        layer ? build_message(&g->build, &caffe__batch_norm_parameter__descriptor) : NULL;
    if (!norm)
        return onnx_no_memory(g, err);
    layer->batch_norm_param = norm;
    BUILD_SET(norm, eps, eps);
    BUILD_SET(norm, moving_average_fraction, fraction);
    size_t C = x->shape.dim[1];
    int rc = add_statistics(g, node, C, fraction, part[2], part[3], err);
    if (rc != OK)
        return rc;
    layer =
        onnx_inner_layer(g, "Scale", scale_name(g, node, part[0]), inner, node->proto->output[0]);
    Caffe__ScaleParameter *scale =
        layer ? build_message(&g->build, &caffe__scale_parameter__descriptor) : NULL;
    if (!scale)
        return onnx_no_memory(g, err);
    layer->scale_param = scale;
    BUILD_SET(scale, bias_term, true);
    onnx_weights(g, &(struct shape){1, {C}}, part[0]->f);
    onnx_weights(g, &(struct shape){1, {C}}, part[1]->f);
    return onnx_result(g, node, 0, &x->shape, err);
}

int onnx_batch_norm(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *part[4];
    int rc = onnx_blob(g, node, 0, &x, err);
    for (size_t k = 0; k < 4 && rc == OK; k++)
        rc = onnx_floats(g, node, 1 + k, &part[k], err);
    if (rc != OK)
        return rc;
    if (onnx_int(node, "training_mode", 0) != 0 || node->proto->n_output != 1)
        return onnx_refuse(g, node, err, "training_mode, or outputs besides the first");
    if (x->shape.n < 2)
        return onnx_broken(g, node, err, "input 0 has no channels");
    for (size_t k = 0; k < 4; k++)
        if (part[k]->shape.n != 1 || part[k]->shape.dim[0] != x->shape.dim[1])
            return onnx_broken(g, node, err, "input %zu is not one number a channel, %zu", 1 + k,
                               x->shape.dim[1]);
    return add_norm(g, node, x, part, err);
}
