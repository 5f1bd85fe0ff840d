/* ONNX's Transpose, of constants and of sequences. A sequence knows the order of its axes, so that
 * no layer turns it. */
#include "model/onnx_graph.h"

static int read_order(struct onnx_graph *g, const struct onnx_node *node, size_t n,
                      int64_t perm[SHAPE_DIMS_MAX], struct err *err)
{
    bool seen[SHAPE_DIMS_MAX] = {false};
    for (size_t k = 0; k < n; k++)
        perm[k] = (int64_t)(n - 1 - k);
    if (!onnx_ints(node, "perm", n, perm))
        return onnx_broken(g, node, err, "perm is not of %zu axes", n);
    for (size_t k = 0; k < n; k++) {
        if (perm[k] < 0 || perm[k] >= (int64_t)n || seen[perm[k]])
            return onnx_broken(g, node, err, "perm is no order of %zu axes", n);
        seen[perm[k]] = true;
    }
    return OK;
}

static int transpose_constant(struct onnx_graph *g, const struct onnx_node *node,
                              struct onnx_value *x, const int64_t *perm, struct err *err)
{
    struct shape y = {.n = x->shape.n};
    size_t step[SHAPE_DIMS_MAX] = {0}, at[SHAPE_DIMS_MAX] = {0};
    float *to;
    int rc = onnx_floats(g, node, 0, &x, err);
    for (size_t k = 0; k < y.n; k++) {
        y.dim[k] = x->shape.dim[perm[k]];
        step[k] = shape_count_from(&x->shape, (size_t)perm[k] + 1);
    }
    if (rc == OK)
        rc = onnx_result_floats(g, node, &y, &to, err);
    if (rc != OK)
        return rc;
    size_t count = shape_count(&y), from = 0;
    for (size_t j = 0; j < count; j++) {
        to[j] = x->f[from];
        for (size_t k = y.n; k-- > 0;) {
            from += step[k];
            if (++at[k] < y.dim[k])
                break;
            from -= step[k] * y.dim[k];
            at[k] = 0;
        }
    }
    return OK;
}

/* (T, directions, N, H): to (T, N, directions, H), or (N, T, directions, H). */
static int transpose_directions(struct onnx_graph *g, const struct onnx_node *node,
                                const struct onnx_value *x, const int64_t *perm, struct err *err)
{
    bool steps = perm[0] == 0 && perm[1] == 2 && perm[2] == 1;
    bool records = perm[0] == 2 && perm[1] == 0 && perm[2] == 1;
    struct shape y = {.n = x->shape.n};
    for (size_t k = 0; k < y.n; k++)
        y.dim[k] = x->shape.dim[perm[k]];
    if (!steps && !records)
        return onnx_refuse(g, node, err, "of directions; only perm 0, 2, 1, 3 or 2, 0, 1, 3");
    int rc = onnx_result_like(g, node, x, &y, err);
    if (rc != OK)
        return rc;
    struct onnx_value *out = onnx_find(g, node->proto->output[0]);
    out->directed = false;
    out->by_step = steps;
    return OK;
}

int onnx_transpose(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    int64_t perm[SHAPE_DIMS_MAX];
    int rc = onnx_input(g, node, 0, &x, err);
    size_t n = rc == OK ? x->shape.n : 0;
    if (rc == OK)
        rc = read_order(g, node, n, perm, err);
    if (rc != OK)
        return rc;
    if (!x->is_blob)
        return transpose_constant(g, node, x, perm, err);
    if (x->directed)
        return transpose_directions(g, node, x, perm, err);
    bool same = true, swap = (n == 3 || (n == 4 && x->by_step)) && perm[0] == 1 && perm[1] == 0;
    for (size_t k = 0; k < n; k++) {
        same = same && perm[k] == (int64_t)k;
        swap = swap && (k < 2 || perm[k] == (int64_t)k);
    }
    if (!same && !swap)
        return onnx_refuse(g, node, err, "of values of layers; only perm 1, 0, 2 of a sequence");
    struct shape y = x->shape;
    if (swap) {
        y.dim[0] = x->shape.dim[1];
        y.dim[1] = x->shape.dim[0];
        if (!x->by_step && (rc = onnx_settle(g, x, err)) != OK)
            return rc;
    }
    rc = onnx_result_like(g, node, x, &y, err);
    if (rc == OK && swap) {
        struct onnx_value *out = onnx_find(g, node->proto->output[0]);
        out->by_step = !x->by_step;
    }
    return rc;
}
