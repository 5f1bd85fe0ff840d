/* ONNX's operators on constants, above all those that compute shapes. */
#include "model/onnx_graph.h"

#include <string.h>

static int make_constant(struct onnx_graph *g, const struct onnx_node *node,
                         const Onnx__TensorProto *tensor, struct err *err)
{
    struct onnx_value *value;
    struct shape shape;
    int rc = onnx_tensor_shape(g, tensor, &shape, err);
    if (rc == OK)
        rc = onnx_add(g, node->proto->output[0], &value, err);
    if (rc != OK)
        return rc;
    value->shape = shape;
    value->tensor = tensor;
    return OK;
}

int onnx_constant(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    const Onnx__AttributeProto *a = node->proto->n_attribute ? node->proto->attribute[0] : NULL;
    const char *name = a && a->name ? a->name : "";
    bool list = strcmp(name, "value_floats") == 0 || strcmp(name, "value_ints") == 0;
    bool floats = strncmp(name, "value_float", 11) == 0;
    if (!onnx_has_output(node, 0) || node->proto->n_attribute != 1)
        return onnx_broken(g, node, err, "not one attribute and one output");
    if (strcmp(name, "value") == 0 && a->t)
        return make_constant(g, node, a->t, err);
    if (!list && strcmp(name, "value_float") != 0 && strcmp(name, "value_int") != 0)
        return onnx_refuse(g, node, err, "attribute %.60s", name);
    size_t n = !list ? 1 : floats ? a->n_floats : a->n_ints;
    const struct shape shape = {list ? 1 : 0, {n}};
    float *f;
    int64_t *i;
    int rc = floats ? onnx_result_floats(g, node, &shape, &f, err)
                    : onnx_result_integers(g, node, &shape, &i, err);
    for (size_t k = 0; k < n && rc == OK; k++) {
        if (floats)
            f[k] = list ? a->floats[k] : a->f;
        else
            i[k] = list ? a->ints[k] : a->i;
    }
    return rc;
}

/* The shape that a list of integers gives. One number fills it, so that 1 may stand for the number
 * of records, as in any operand that is repeated. */
static int listed_shape(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *list, struct shape *out, struct err *err)
{
    size_t n = shape_count(&list->shape);
    bool empty = false;
    *out = (struct shape){.n = n};
    if (list->shape.n != 1 || n > SHAPE_DIMS_MAX)
        return onnx_refuse(g, node, err, "a shape of more than %d dimensions", SHAPE_DIMS_MAX);
    for (size_t k = 0; k < n; k++) {
        int64_t dim = list->i[k] == ONNX_RECORDS ? 1 : list->i[k];
        if (dim < 0 || dim > INT32_MAX)
            return onnx_refuse(g, node, err, "dimension %lld", (long long)dim);
        out->dim[k] = (size_t)dim;
        empty |= list->i[k] == 0;
    }
    if (!empty && shape_count(out) == 0)
        return onnx_broken(g, node, err, "too large a shape");
    return OK;
}

int onnx_constant_of_shape(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *list, value = {0};
    struct shape shape, one;
    const Onnx__AttributeProto *a = onnx_attribute(node, "value");
    float *f = NULL;
    int64_t *i = NULL;
    int rc = onnx_integers(g, node, 0, &list, err);
    if (rc == OK)
        rc = listed_shape(g, node, list, &shape, err);
    if (rc == OK && a && a->t) {
        rc = onnx_tensor_shape(g, a->t, &one, err);
        value = (struct onnx_value){.name = "value", .shape = one, .tensor = a->t};
        if (rc == OK && shape_count(&one) != 1)
            return onnx_broken(g, node, err, "value is not one number");
        if (rc == OK)
            rc = onnx_read(g, &value, err);
    }
    if (rc != OK)
        return rc;
    size_t count = shape_count(&shape);
    rc = value.i ? onnx_result_integers(g, node, &shape, &i, err)
                 : onnx_result_floats(g, node, &shape, &f, err);
    for (size_t k = 0; k < count && rc == OK; k++) {
        if (i)
            i[k] = value.i[0];
        else
            f[k] = value.f ? value.f[0] : 0.0f;
    }
    return rc;
}

/* One number, repeated. */
int onnx_expand(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *value, *list;
    struct shape shape;
    float *f;
    int rc = onnx_floats(g, node, 0, &value, err);
    if (rc == OK)
        rc = onnx_integers(g, node, 1, &list, err);
    if (rc == OK)
        rc = listed_shape(g, node, list, &shape, err);
    if (rc != OK)
        return rc;
    if (shape_count(&value->shape) != 1)
        return onnx_refuse(g, node, err, "of more than one number");
    rc = onnx_result_floats(g, node, &shape, &f, err);
    for (size_t k = 0; rc == OK && k < shape_count(&shape); k++)
        f[k] = value->f[0];
    return rc;
}

int onnx_shape(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    int64_t *i;
    int rc = onnx_input(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    int64_t n = (int64_t)x->shape.n, from = onnx_int(node, "start", 0),
            to = onnx_int(node, "end", n);
    from = from < -n ? 0 : from < 0 ? from + n : from > n ? n : from;
    to = to < -n ? 0 : to < 0 ? to + n : to > n ? n : to;
    const struct shape shape = {1, {to > from ? (size_t)(to - from) : 0}};
    rc = onnx_result_integers(g, node, &shape, &i, err);
    for (int64_t k = from; k < to && rc == OK; k++) {
        bool records = x->is_blob && k == (x->by_step ? 1 : 0);
        i[k - from] = records ? ONNX_RECORDS : (int64_t)x->shape.dim[k];
    }
    return rc;
}

/* Numbers out of a list of integers. */
int onnx_gather(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *list, *index;
    int64_t *to;
    int rc = onnx_input(g, node, 0, &list, err);
    if (rc == OK && list->is_blob)
        return onnx_gather_blob(g, node, err);
    if (rc == OK)
        rc = onnx_input(g, node, 1, &index, err);
    if (rc == OK && index->is_blob)
        return onnx_embed(g, node, err);
    if (rc == OK)
        rc = onnx_integers(g, node, 0, &list, err);
    if (rc == OK)
        rc = onnx_integers(g, node, 1, &index, err);
    if (rc != OK)
        return rc;
    int64_t n = list->shape.n == 1 ? (int64_t)list->shape.dim[0] : 0;
    if (list->shape.n != 1 || onnx_int(node, "axis", 0) != 0)
        return onnx_refuse(g, node, err, "only out of a list");
    rc = onnx_result_integers(g, node, &index->shape, &to, err);
    for (size_t k = 0; k < shape_count(&index->shape) && rc == OK; k++) {
        int64_t at = index->i[k] < 0 ? index->i[k] + n : index->i[k];
        if (at < 0 || at >= n)
            return onnx_broken(g, node, err, "number %lld of %lld", (long long)index->i[k],
                               (long long)n);
        to[k] = list->i[at];
    }
    return rc;
}

int onnx_concat(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    size_t total = 0;
    int64_t *to;
    for (size_t k = 0; k < node->proto->n_input; k++) {
        int rc = onnx_input(g, node, k, &x, err);
        if (rc != OK)
            return rc;
        if (x->is_blob)
            return onnx_concat_blobs(g, node, err);
        rc = onnx_integers(g, node, k, &x, err);
        if (rc != OK)
            return rc;
        if (x->shape.n != 1)
            return onnx_refuse(g, node, err, "constants that are no lists");
        total += x->shape.dim[0];
    }
    int rc = onnx_result_integers(g, node, &(struct shape){1, {total}}, &to, err);
    for (size_t k = 0; k < node->proto->n_input && rc == OK; k++) {
        rc = onnx_integers(g, node, k, &x, err);
        if (rc != OK)
            break;
        memcpy(to, x->i, x->shape.dim[0] * sizeof *to);
        to += x->shape.dim[0];
    }
    return rc;
}

/* Numbers from..to of a list, or one in so many; inputs from opset 10 on, attributes before. */
int onnx_slice(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *list, *bound;
    int64_t range[2] = {0, 0}, step = 1, *out;
    bool ok = onnx_ints(node, "starts", 1, &range[0]) && onnx_ints(node, "ends", 1, &range[1]);
    int rc = onnx_integers(g, node, 0, &list, err);
    for (size_t k = 0; k < 2 && rc == OK && !onnx_attribute(node, "starts"); k++) {
        rc = onnx_integers(g, node, 1 + k, &bound, err);
        if (rc == OK && (ok = shape_count(&bound->shape) == 1))
            range[k] = bound->i[0];
        if (!ok)
            break;
    }
    if (rc == OK && onnx_has(node, 4)) {
        rc = onnx_integers(g, node, 4, &bound, err);
        ok = ok && rc == OK && shape_count(&bound->shape) == 1 && bound->i[0] > 0;
        step = ok ? bound->i[0] : 1;
    }
    if (rc != OK)
        return rc;
    if (!ok || list->shape.n != 1)
        return onnx_refuse(g, node, err, "only a range of a list");
    int64_t n = (int64_t)list->shape.dim[0];
    for (size_t k = 0; k < 2; k++) {
        range[k] = range[k] < -n ? -n : range[k] > n ? n : range[k];
        range[k] += range[k] < 0 ? n : 0;
    }
    size_t count = range[1] > range[0] ? (size_t)((range[1] - range[0] - 1) / step) + 1 : 0;
    rc = onnx_result_integers(g, node, &(struct shape){1, {count}}, &out, err);
    for (size_t k = 0; k < count && rc == OK; k++)
        out[k] = list->i[range[0] + (int64_t)k * step];
    return rc;
}
