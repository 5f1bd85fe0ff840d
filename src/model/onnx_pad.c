/* Zeros around images, as a convolution of each channel with one weight of 1, which does not train.
 * With a before and b behind, its padding is max(a, b), and its window has |a - b| + 1 pixels, of
 * which the weight's place is max(a, b) - a. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

enum { SIDES = 2, WINDOW_MAX = 1 << 12 };

struct margins {
    size_t before[SIDES], after[SIDES];
};

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The axes that have pads, from opset 18 on an input; the others have none. */
static int read_some(struct onnx_graph *g, const struct onnx_node *node, size_t axes,
                     const struct onnx_value *pads, int64_t *out, struct err *err)
{
    struct onnx_value *list;
    int rc = onnx_integers(g, node, 3, &list, err);
    if (rc != OK)
        return rc;
    size_t n = shape_count(&list->shape);
    if (2 * n != shape_count(&pads->shape))
        return onnx_broken(g, node, err, "%zu axes for %zu pads", n, shape_count(&pads->shape));
    for (size_t k = 0; k < n; k++) {
        int64_t axis = list->i[k] < 0 ? list->i[k] + (int64_t)axes : list->i[k];
        if (axis < 0 || axis >= (int64_t)axes)
            return onnx_broken(g, node, err, "axis %lld of %zu", (long long)list->i[k], axes);
        out[axis] = pads->i[k];
        out[axis + (int64_t)axes] = pads->i[n + k];
    }
    return OK;
}

/* The numbers of pads: an attribute, and from opset 11 on an input. */
static int read_numbers(struct onnx_graph *g, const struct onnx_node *node, size_t axes,
                        int64_t *out, struct err *err)
{
    struct onnx_value *value;
    if (g->opset < 11)
        return onnx_ints(node, "pads", 2 * axes, out)
                   ? OK
                   : onnx_broken(g, node, err, "pads needs %zu numbers", 2 * axes);
    int rc = onnx_integers(g, node, 1, &value, err);
    if (rc == OK && onnx_has(node, 3))
        return read_some(g, node, axes, value, out, err);
    if (rc == OK && shape_count(&value->shape) != 2 * axes)
        rc = onnx_broken(g, node, err, "pads needs %zu numbers", 2 * axes);
    for (size_t k = 0; rc == OK && k < 2 * axes; k++)
        out[k] = value->i[k];
    return rc;
}

static int check_zeros(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *value = NULL;
    int rc = onnx_text_is(node, "mode", "constant", "constant")
                 ? OK
                 : onnx_refuse(g, node, err, "mode: only constant");
    if (rc == OK && g->opset >= 11 && onnx_has(node, 2))
        rc = onnx_floats(g, node, 2, &value, err);
    float with = g->opset < 11                              ? onnx_float(node, "value", 0)
                 : value && shape_count(&value->shape) == 1 ? value->f[0]
                                                            : 0;
    if (rc == OK && with != 0.0f)
        rc = onnx_refuse(g, node, err, "pads that are not 0");
    return rc;
}

static int read_margins(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *x, struct margins *out, struct err *err)
{
    int64_t pads[2 * SHAPE_DIMS_MAX] = {0};
    size_t axes = x->shape.n;
    int rc = read_numbers(g, node, axes, pads, err);
    for (size_t k = 0; rc == OK && k < 2 * axes; k++)
        if (pads[k] < 0 || pads[k] >= WINDOW_MAX || (pads[k] > 0 && (axes != 4 || k % axes < 2)))
            rc = onnx_refuse(g, node, err, "pads other than 0 to %d pixels around images",
                             WINDOW_MAX - 1);
    for (size_t k = 0; rc == OK && axes == 4 && k < SIDES; k++) {
        out->before[k] = (size_t)pads[2 + k];
        out->after[k] = (size_t)pads[axes + 2 + k];
    }
    return rc;
}

static int put_convolution(struct onnx_graph *g, const struct onnx_node *node,
                           const struct onnx_value *x, const struct margins *m, struct err *err)
{
    struct build *b = &g->build;
    size_t C = x->shape.dim[1], pad[SIDES], kernel[SIDES];
    for (size_t k = 0; k < SIDES; k++) {
        pad[k] = larger_of(m->before[k], m->after[k]);
        kernel[k] = 1 + 2 * pad[k] - m->before[k] - m->after[k];
    }
    size_t pixels = kernel[0] * kernel[1];
    size_t at = (pad[0] - m->before[0]) * kernel[1] + pad[1] - m->before[1];
    float *weights = arena_array(&g->arena, C * pixels, float);
    Caffe__LayerParameter *layer = onnx_layer(g, node, "Convolution", x);
    Caffe__ConvolutionParameter *p =
        layer && weights ? build_message(b, &caffe__convolution_parameter__descriptor) : NULL;
    if (!p)
        return onnx_no_memory(g, err);
    layer->convolution_param = p;
    BUILD_SET(p, num_output, (uint32_t)C);
    BUILD_SET(p, group, (uint32_t)C);
    BUILD_SET(p, bias_term, false);
    BUILD_SET(p, kernel_h, (uint32_t)kernel[0]);
    BUILD_SET(p, kernel_w, (uint32_t)kernel[1]);
    BUILD_SET(p, pad_h, (uint32_t)pad[0]);
    BUILD_SET(p, pad_w, (uint32_t)pad[1]);
    for (size_t c = 0; c < C; c++)
        weights[c * pixels + at] = 1;
    onnx_state(g, &(struct shape){4, {C, 1, kernel[0], kernel[1]}}, weights);
    return b->failed ? onnx_no_memory(g, err) : OK;
}

int onnx_pad(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    struct margins m = {{0}, {0}};
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = check_zeros(g, node, err);
    if (rc == OK)
        rc = read_margins(g, node, x, &m, err);
    if (rc != OK)
        return rc;
    struct shape y = x->shape;
    if (m.before[0] + m.before[1] + m.after[0] + m.after[1] == 0)
        return onnx_result_like(g, node, x, &y, err);
    for (size_t k = 0; k < SIDES; k++)
        y.dim[2 + k] += m.before[k] + m.after[k];
    rc = put_convolution(g, node, x, &m, err);
    return rc == OK ? onnx_result(g, node, 0, &y, err) : rc;
}
