/* ONNX's matrix products with constant matrices: InnerProduct. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <string.h>

/* w is (I, O), or with `turned` (O, I): becomes (O, I), times `alpha`. */
static int turn_weights(struct onnx_graph *g, const struct onnx_value *w, bool turned, float alpha,
                        const float **out, struct err *err)
{
    size_t I = w->shape.dim[turned ? 1 : 0], O = w->shape.dim[turned ? 0 : 1];
    if (turned && alpha == 1.0f) {
        *out = w->f;
        return OK;
    }
    float *at = arena_array(&g->arena, I * O, float);
    if (!at)
        return onnx_no_memory(g, err);
    for (size_t o = 0; o < O; o++)
        for (size_t i = 0; i < I; i++)
            at[o * I + i] = alpha * w->f[turned ? o * I + i : i * O + o];
    *out = at;
    return OK;
}

/* A layer without its biases. */
static int add_product(struct onnx_graph *g, const struct onnx_node *node,
                       const struct onnx_value *x, const struct shape *w, const float *at,
                       size_t axis, bool bias, struct err *err)
{
    struct build *b = &g->build;
    Caffe__LayerParameter *layer = onnx_layer(g, node, "InnerProduct", x);
    Caffe__InnerProductParameter *inner =
        layer ? build_message(b, &caffe__inner_product_parameter__descriptor) : NULL;
    if (!inner)
        return onnx_no_memory(g, err);
    layer->inner_product_param = inner;
    BUILD_SET(inner, num_output, (uint32_t)w->dim[0]);
    if (axis != 1)
        BUILD_SET(inner, axis, (int32_t)axis);
    if (!bias)
        BUILD_SET(inner, bias_term, false);
    inner->weight_filler = build_message(b, &caffe__filler_parameter__descriptor);
    if (inner->weight_filler)
        build_set_string(b, &inner->weight_filler->type, "xavier");
    onnx_weights(g, w, at);
    return OK;
}

/* `turned`: the matrix is (O, I). */
static int check_matrix(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *w, bool turned, size_t I, struct err *err)
{
    char text[128];
    if (w->shape.n != 2 || shape_count(&w->shape) == 0)
        return onnx_refuse(g, node, err, "input 1 is %s, not a matrix",
                           shape_text(&w->shape, text, sizeof text));
    if (w->shape.dim[turned ? 1 : 0] != I)
        return onnx_broken(g, node, err, "input 1 is %s, input 0 has rows of %zu",
                           shape_text(&w->shape, text, sizeof text), I);
    return OK;
}

/* beta·C: one number, or one for each output. */
static int add_gemm_bias(struct onnx_graph *g, const struct onnx_node *node, size_t O,
                         struct err *err)
{
    struct onnx_value *c;
    float beta = onnx_float(node, "beta", 1.0f);
    int rc = onnx_floats(g, node, 2, &c, err);
    if (rc != OK)
        return rc;
    size_t n = shape_count(&c->shape), last = c->shape.n > 0 ? c->shape.dim[c->shape.n - 1] : 1;
    if ((n != O && n != 1) || n != last)
        return onnx_refuse(g, node, err, "input 2 has %zu numbers, not one for each of %zu outputs",
                           n, O);
    float *at = arena_array(&g->arena, O, float);
    if (!at)
        return onnx_no_memory(g, err);
    for (size_t o = 0; o < O; o++)
        at[o] = beta * c->f[n == 1 ? 0 : o];
    onnx_weights(g, &(struct shape){1, {O}}, at);
    return OK;
}

int onnx_gemm(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *w;
    const float *at = NULL;
    char text[128];
    bool turned = onnx_int(node, "transB", 0) != 0, bias = onnx_has(node, 2);
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &w, err);
    if (rc != OK)
        return rc;
    if (onnx_int(node, "transA", 0) != 0)
        return onnx_refuse(g, node, err, "transA: the first axis of input 0 has the records");
    if (x->shape.n != 2)
        return onnx_broken(g, node, err, "input 0 is %s, not a matrix",
                           shape_text(&x->shape, text, sizeof text));
    rc = check_matrix(g, node, w, turned, x->shape.dim[1], err);
    if (rc == OK)
        rc = turn_weights(g, w, turned, onnx_float(node, "alpha", 1.0f), &at, err);
    if (rc != OK)
        return rc;
    const struct shape shape = {2, {w->shape.dim[turned ? 0 : 1], x->shape.dim[1]}};
    rc = add_product(g, node, x, &shape, at, 1, bias, err);
    if (rc == OK && bias)
        rc = add_gemm_bias(g, node, shape.dim[0], err);
    const struct shape y = {2, {x->shape.dim[0], shape.dim[0]}};
    return rc == OK ? onnx_result(g, node, 0, &y, err) : rc;
}

int onnx_matmul(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *w;
    const float *at = NULL;
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc == OK && x->shape.n != 2)
        rc = onnx_settle(g, x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &w, err);
    if (rc != OK)
        return rc;
    if (x->shape.n < 2)
        return onnx_refuse(g, node, err, "input 0 has no rows");
    struct shape y = x->shape;
    size_t last = y.n - 1, I = y.dim[last];
    rc = check_matrix(g, node, w, false, I, err);
    if (rc == OK)
        rc = turn_weights(g, w, false, 1.0f, &at, err);
    if (rc != OK)
        return rc;
    const struct shape shape = {2, {w->shape.dim[1], I}};
    y.dim[last] = shape.dim[0];
    rc = add_product(g, node, x, &shape, at, last, false, err);
    return rc == OK ? onnx_result(g, node, 0, &y, err) : rc;
}
