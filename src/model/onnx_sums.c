/* ONNX's operators on two or more values: sums, products, maxima, concatenations.
 *
 * A constant next to a blob becomes a layer that learns it: a bias or a scale; or the bias of the
 * product that made the blob. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <stdlib.h>
#include <string.h>

enum binary { BINARY_PLUS, BINARY_MINUS, BINARY_TIMES, BINARY_DIVIDE };

/* ---- a blob and a constant ---- */

/* The axes of x over which the constant, at its end, extends; all others are 1 in it. */
static bool find_axes(const struct shape *x, const struct shape *c, size_t *axis, size_t *count)
{
    size_t first = SHAPE_DIMS_MAX, last = 0;
    if (c->n > x->n)
        return false;
    for (size_t k = 0; k < c->n; k++) {
        size_t at = x->n - c->n + k;
        if (c->dim[k] == 1)
            continue;
        if (c->dim[k] != x->dim[at] || at == 0)
            return false;
        first = first == SHAPE_DIMS_MAX ? at : first;
        last = at;
    }
    for (size_t at = first; at <= last; at++) /* 1 in the constant, and not in x */
        if (c->dim[at - (x->n - c->n)] != x->dim[at])
            return false;
    *axis = first;
    *count = last - first + 1;
    return first != SHAPE_DIMS_MAX;
}

static int add_power(struct onnx_graph *g, const struct onnx_node *node, const struct onnx_value *x,
                     float scale, float shift, float power, struct err *err)
{
    Caffe__LayerParameter *layer = onnx_layer(g, node, "Power", x);
    Caffe__PowerParameter *param =
        layer ? build_message(&g->build, &caffe__power_parameter__descriptor) : NULL;
    if (!param)
        return onnx_no_memory(g, err);
    layer->power_param = param;
    BUILD_SET(param, scale, scale);
    BUILD_SET(param, shift, shift);
    BUILD_SET(param, power, power);
    return onnx_result(g, node, 0, &x->shape, err);
}

/* One number. */
static int add_number(struct onnx_graph *g, const struct onnx_node *node, enum binary op,
                      const struct onnx_value *x, float c, bool first, struct err *err)
{
    switch (op) {
    case BINARY_PLUS: return add_power(g, node, x, 1, c, 1, err);
    case BINARY_MINUS:
        return first ? add_power(g, node, x, -1, c, 1, err) : add_power(g, node, x, 1, -c, 1, err);
    case BINARY_TIMES: return add_power(g, node, x, c, 0, 1, err);
    default: break;
    }
    if (c == 0.0f)
        return onnx_refuse(g, node, err, "0 in a quotient");
    return first ? add_power(g, node, x, 1 / c, 0, -1, err)
                 : add_power(g, node, x, 1 / c, 0, 1, err);
}

/* May the numbers become the bias of the layer that made x? */
static bool can_be_bias(struct onnx_graph *g, const struct onnx_value *x, size_t axis, size_t count,
                        Caffe__LayerParameter **out)
{
    Caffe__LayerParameter *layer = x->layer ? g->build.net->layer[x->layer - 1] : NULL;
    if (!layer || strcmp(x->name, x->blob) != 0 || layer->n_blobs != 1 || count != 1 ||
        onnx_readers(g, x->name) != 1)
        return false;
    *out = layer;
    const Caffe__InnerProductParameter *inner = layer->inner_product_param;
    if (strcmp(layer->type, "InnerProduct") == 0)
        return !inner->bias_term && axis == (size_t)inner->axis && axis == x->shape.n - 1;
    if (strcmp(layer->type, "Embed") == 0)
        return !layer->embed_param->bias_term && axis == x->shape.n - 1;
    if (strcmp(layer->type, "Convolution") == 0 || strcmp(layer->type, "Deconvolution") == 0)
        return !layer->convolution_param->bias_term && axis == 1;
    return false;
}

static void put_bias(struct onnx_graph *g, Caffe__LayerParameter *layer, const struct shape *shape,
                     const float *at)
{
    if (layer->inner_product_param)
        BUILD_SET(layer->inner_product_param, bias_term, true);
    else if (layer->embed_param)
        BUILD_SET(layer->embed_param, bias_term, true);
    else
        BUILD_SET(layer->convolution_param, bias_term, true);
    onnx_weights_of(g, layer, shape, at);
}

/* A layer Bias or Scale from `axis` on. */
static int add_repeated(struct onnx_graph *g, const struct onnx_node *node, bool scales,
                        const struct onnx_value *x, size_t axis, const struct shape *shape,
                        const float *at, struct err *err)
{
    struct build *b = &g->build;
    Caffe__LayerParameter *layer = onnx_layer(g, node, scales ? "Scale" : "Bias", x);
    if (!layer)
        return onnx_no_memory(g, err);
    if (scales) {
        layer->scale_param = build_message(b, &caffe__scale_parameter__descriptor);
        if (!layer->scale_param)
            return onnx_no_memory(g, err);
        BUILD_SET(layer->scale_param, axis, (int32_t)axis);
        BUILD_SET(layer->scale_param, num_axes, (int32_t)shape->n);
    } else {
        layer->bias_param = build_message(b, &caffe__bias_parameter__descriptor);
        if (!layer->bias_param)
            return onnx_no_memory(g, err);
        BUILD_SET(layer->bias_param, axis, (int32_t)axis);
        BUILD_SET(layer->bias_param, num_axes, (int32_t)shape->n);
    }
    onnx_weights(g, shape, at);
    return onnx_result(g, node, 0, &x->shape, err);
}

/* As a sum or a product: c, -c or 1/c. */
static int make_operand(struct onnx_graph *g, const struct onnx_node *node, enum binary op,
                        const struct onnx_value *c, const float **out, struct err *err)
{
    size_t n = shape_count(&c->shape);
    *out = c->f;
    if (op == BINARY_PLUS || op == BINARY_TIMES)
        return OK;
    float *at = arena_array(&g->arena, n, float);
    if (!at)
        return onnx_no_memory(g, err);
    for (size_t k = 0; k < n; k++) {
        if (op == BINARY_DIVIDE && c->f[k] == 0.0f)
            return onnx_refuse(g, node, err, "0 in a quotient");
        at[k] = op == BINARY_MINUS ? -c->f[k] : 1.0f / c->f[k];
    }
    *out = at;
    return OK;
}

/* `first`: the constant is input 0. */
static int add_constant(struct onnx_graph *g, const struct onnx_node *node, enum binary op,
                        struct onnx_value *x, const struct onnx_value *c, bool first,
                        struct err *err)
{
    size_t axis = 0, count = 0;
    const float *at = NULL;
    char a[128], b[128];
    Caffe__LayerParameter *layer;
    if (shape_count(&c->shape) == 1 && c->shape.n <= x->shape.n)
        return add_number(g, node, op, x, c->f[0], first, err);
    bool fits = find_axes(&x->shape, &c->shape, &axis, &count);
    if (!fits || (first && (op == BINARY_MINUS || op == BINARY_DIVIDE)))
        return onnx_refuse(g, node, err, "a constant of %s with values of %s",
                           shape_text(&c->shape, a, sizeof a), shape_text(&x->shape, b, sizeof b));
    int rc = make_operand(g, node, op, c, &at, err);
    if (rc != OK)
        return rc;
    struct shape shape = {.n = count};
    memcpy(shape.dim, x->shape.dim + axis, count * sizeof shape.dim[0]);
    bool scales = op == BINARY_TIMES || op == BINARY_DIVIDE;
    if (scales || !can_be_bias(g, x, axis, count, &layer))
        return add_repeated(g, node, scales, x, axis, &shape, at, err);
    put_bias(g, layer, &shape, at);
    return onnx_result_like(g, node, x, &x->shape, err);
}

/* ---- blobs ---- */

static int add_eltwise(struct onnx_graph *g, const struct onnx_node *node,
                       Caffe__EltwiseParameter__EltwiseOp op, const char *const *bottom, size_t n,
                       const float *coeff, const struct shape *shape, struct err *err)
{
    struct build *b = &g->build;
    size_t before = b->net ? b->net->n_layer : 0;
    build_eltwise(b, node->name, op, bottom, n, coeff);
    if (b->failed || b->net->n_layer == before)
        return onnx_no_memory(g, err);
    Caffe__LayerParameter *layer = b->net->layer[before];
    free(layer->top[0]); /* which has the layer's name */
    layer->top[0] = NULL;
    build_set_string(b, &layer->top[0], node->proto->output[0]);
    return onnx_result(g, node, 0, shape, err);
}

/* Without the 1s at its end. */
static int trim_shape(struct onnx_graph *g, const struct onnx_node *node,
                      const struct onnx_value *value, struct onnx_value *out, struct err *err)
{
    *out = *value;
    out->name = onnx_name(g, node, "operand");
    while (out->shape.n > 1 && out->shape.dim[out->shape.n - 1] == 1)
        out->shape.n--;
    return g->build.failed ? onnx_no_memory(g, err) : onnx_settle(g, out, err);
}

/* y has one number where x has several: (N, C, 1, 1) for (N, C, H, W). */
static bool is_repeated(const struct shape *x, const struct shape *y)
{
    size_t same = 0;
    while (same < y->n && same < x->n && x->dim[same] == y->dim[same])
        same++;
    for (size_t k = same; k < y->n; k++)
        if (y->dim[k] != 1)
            return false;
    return x->n == y->n && same > 0;
}

static int add_second(struct onnx_graph *g, const struct onnx_node *node, bool scales,
                      const struct onnx_value *x, const struct onnx_value *y, struct err *err)
{
    struct build *b = &g->build;
    struct onnx_value operand;
    int rc = trim_shape(g, node, y, &operand, err);
    if (rc != OK)
        return rc;
    Caffe__LayerParameter *layer = onnx_layer(g, node, scales ? "Scale" : "Bias", x);
    if (!layer)
        return onnx_no_memory(g, err);
    build_add_string(b, &layer->bottom, &layer->n_bottom, operand.blob);
    if (scales && (layer->scale_param = build_message(b, &caffe__scale_parameter__descriptor)))
        BUILD_SET(layer->scale_param, axis, 0);
    if (!scales && (layer->bias_param = build_message(b, &caffe__bias_parameter__descriptor)))
        BUILD_SET(layer->bias_param, axis, 0);
    return onnx_result(g, node, 0, &x->shape, err);
}

/* x / y as x · y^-1 */
static int add_quotient(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *x, const struct onnx_value *y, struct err *err)
{
    const char *inverse = onnx_name(g, node, "inverse");
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "Power", inverse, y->blob, inverse);
    Caffe__PowerParameter *power =
        layer ? build_message(&g->build, &caffe__power_parameter__descriptor) : NULL;
    if (!power)
        return onnx_no_memory(g, err);
    layer->power_param = power;
    BUILD_SET(power, power, -1.0f);
    const char *const bottom[] = {x->blob, inverse};
    return add_eltwise(g, node, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD, bottom, 2, NULL,
                       &x->shape, err);
}

static int add_blobs(struct onnx_graph *g, const struct onnx_node *node, enum binary op,
                     const struct onnx_value *x, const struct onnx_value *y, struct err *err)
{
    const char *const bottom[] = {x->blob, y->blob};
    const float minus[] = {1.0f, -1.0f};
    char a[128], b[128];
    bool scales = op == BINARY_TIMES, sums = op == BINARY_PLUS;
    if (shape_equal(&x->shape, &y->shape) && op == BINARY_DIVIDE)
        return add_quotient(g, node, x, y, err);
    if (shape_equal(&x->shape, &y->shape))
        return add_eltwise(g, node,
                           scales ? CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD
                                  : CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM,
                           bottom, 2, op == BINARY_MINUS ? minus : NULL, &x->shape, err);
    if ((scales || sums) && is_repeated(&x->shape, &y->shape))
        return add_second(g, node, scales, x, y, err);
    if ((scales || sums) && is_repeated(&y->shape, &x->shape))
        return add_second(g, node, scales, y, x, err);
    return onnx_refuse(g, node, err, "values of %s and of %s", shape_text(&x->shape, a, sizeof a),
                       shape_text(&y->shape, b, sizeof b));
}

static int add_binary(struct onnx_graph *g, const struct onnx_node *node, enum binary op,
                      struct err *err)
{
    struct onnx_value *in[2];
    int rc = onnx_input(g, node, 0, &in[0], err);
    if (rc == OK)
        rc = onnx_input(g, node, 1, &in[1], err);
    if (rc != OK)
        return rc;
    size_t constant = !in[0]->is_blob ? 0 : !in[1]->is_blob ? 1 : 2;
    if (!in[0]->is_blob && !in[1]->is_blob)
        return onnx_refuse(g, node, err, "two constants");
    for (size_t k = 0; k < 2 && rc == OK; k++)
        rc = k == constant ? onnx_floats(g, node, k, &in[k], err)
                           : onnx_blob(g, node, k, &in[k], err);
    if (rc != OK)
        return rc;
    if (constant < 2)
        return add_constant(g, node, op, in[1 - constant], in[constant], constant == 0, err);
    return add_blobs(g, node, op, in[0], in[1], err);
}

int onnx_plus(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_binary(g, node, BINARY_PLUS, err);
}

int onnx_minus(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_binary(g, node, BINARY_MINUS, err);
}

int onnx_times(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_binary(g, node, BINARY_TIMES, err);
}

int onnx_divide(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_binary(g, node, BINARY_DIVIDE, err);
}

/* ---- any number of blobs ---- */

/* The names of all inputs' blobs; those after the first have its shape, along `axis` apart. */
static int list_blobs(struct onnx_graph *g, const struct onnx_node *node, size_t axis,
                      const char ***out, struct shape *shape, struct err *err)
{
    size_t n = node->proto->n_input;
    const char **name = arena_array(&g->arena, n, const char *);
    if (!name)
        return onnx_no_memory(g, err);
    for (size_t k = 0; k < n; k++) {
        struct onnx_value *x;
        int rc = onnx_blob(g, node, k, &x, err);
        if (rc != OK)
            return rc;
        name[k] = x->blob;
        if (k == 0) {
            *shape = x->shape;
            continue;
        }
        struct shape a = *shape, b = x->shape;
        if (axis < a.n && a.n == b.n)
            a.dim[axis] = b.dim[axis];
        if (!shape_equal(&a, &b))
            return onnx_refuse(g, node, err, "values of different shapes");
        if (axis < shape->n)
            shape->dim[axis] += x->shape.dim[axis];
    }
    *out = name;
    return OK;
}

/* `share`: what is added of each input; 1: all of it. */
static int add_all(struct onnx_graph *g, const struct onnx_node *node,
                   Caffe__EltwiseParameter__EltwiseOp op, float share, struct err *err)
{
    const char **bottom;
    struct shape shape;
    struct onnx_value *x;
    size_t n = node->proto->n_input;
    float *coeff = share == 1 ? NULL : arena_array(&g->arena, n, float);
    if (share != 1 && !coeff)
        return onnx_no_memory(g, err);
    for (size_t i = 0; coeff && i < n; i++)
        coeff[i] = share;
    if (n == 1) {
        int rc = onnx_raw_blob(g, node, 0, &x, err);
        return rc == OK ? onnx_result_like(g, node, x, &x->shape, err) : rc;
    }
    if (n == 0)
        return onnx_broken(g, node, err, "no inputs");
    int rc = list_blobs(g, node, SHAPE_DIMS_MAX, &bottom, &shape, err);
    return rc == OK ? add_eltwise(g, node, op, bottom, n, coeff, &shape, err) : rc;
}

int onnx_sum(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_all(g, node, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM, 1, err);
}

int onnx_mean(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    size_t n = node->proto->n_input;
    float share = n > 0 ? 1 / (float)n : 1;
    return add_all(g, node, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM, share, err);
}

int onnx_max(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_all(g, node, CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__MAX, 1, err);
}

int onnx_concat_blobs(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    const char **bottom;
    struct shape shape;
    struct onnx_value *x;
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    int64_t n = (int64_t)x->shape.n, axis = onnx_int(node, "axis", 0);
    axis += axis < 0 ? n : 0;
    if (axis < 1 || axis >= n)
        return onnx_refuse(g, node, err, "axis %lld of %lld; axis 0 has the records",
                           (long long)axis, (long long)n);
    rc = list_blobs(g, node, (size_t)axis, &bottom, &shape, err);
    if (rc != OK)
        return rc;
    struct build *b = &g->build;
    Caffe__LayerParameter *layer =
        onnx_layer(g, node, "Concat", &(struct onnx_value){.blob = bottom[0]});
    for (size_t k = 1; layer && k < node->proto->n_input; k++)
        build_add_string(b, &layer->bottom, &layer->n_bottom, bottom[k]);
    if (layer && axis != 1 &&
        (layer->concat_param = build_message(b, &caffe__concat_parameter__descriptor)))
        BUILD_SET(layer->concat_param, axis, (int32_t)axis);
    return onnx_result(g, node, 0, &shape, err);
}
