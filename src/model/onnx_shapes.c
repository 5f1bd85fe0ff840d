/* ONNX's operators that change the shape of values, and not their numbers. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- constants keep their numbers ---- */

static int reshape_constant(struct onnx_graph *g, const struct onnx_node *node,
                            struct onnx_value *value, const struct shape *shape, struct err *err)
{
    char a[128], b[128];
    int rc = onnx_read(g, value, err);
    if (rc != OK)
        return rc;
    if (shape_count(shape) != shape_count(&value->shape))
        return onnx_broken(g, node, err, "%s cannot be %s", shape_text(&value->shape, a, sizeof a),
                           shape_text(shape, b, sizeof b));
    return onnx_result_like(g, node, value, shape, err);
}

int onnx_identity(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *value;
    int rc = onnx_input(g, node, 0, &value, err);
    if (rc == OK && !value->is_blob)
        rc = onnx_read(g, value, err);
    return rc == OK ? onnx_result_like(g, node, value, &value->shape, err) : rc;
}

/* Between types of floats, of integers, or from integers to floats; blobs are floats, which Embed
 * and losses truncate to integers themselves. */
int onnx_cast(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *value;
    int64_t to = onnx_int(node, "to", 0);
    bool floats = to == 1 || to == 10 || to == 11 || to == 16, wide = to == 6 || to == 7;
    int rc = onnx_input(g, node, 0, &value, err);
    if (rc != OK)
        return rc;
    bool integers =
        wide && onnx_has_output(node, 0) && onnx_are_integers(g, node->proto->output[0]);
    if (value->is_blob && !floats && !integers)
        return onnx_refuse(g, node, err, "to type %lld: values of layers are floats",
                           (long long)to);
    if (!value->is_blob)
        rc = floats ? onnx_floats(g, node, 0, &value, err) : onnx_integers(g, node, 0, &value, err);
    return rc == OK ? onnx_result_like(g, node, value, &value->shape, err) : rc;
}

/* ---- Reshape, Flatten ---- */

/* Is this the dimension of the records? */
static bool is_records(const struct onnx_value *x, int64_t dim, bool zero_is_none)
{
    return dim == ONNX_RECORDS || (dim == 0 && !zero_is_none) ||
           (dim > 0 && (size_t)dim == x->shape.dim[0]);
}

/* The dimensions behind the first; *rest: where -1 stood, or SHAPE_DIMS_MAX. */
static int read_dims(struct onnx_graph *g, const struct onnx_node *node, const struct onnx_value *x,
                     const struct onnx_value *to, struct shape *y, size_t *rest, struct err *err)
{
    bool zero_is_none = onnx_int(node, "allowzero", 0) != 0;
    for (size_t k = 1; k < y->n; k++) {
        int64_t dim = to->i[k];
        if (dim == 0 && !zero_is_none && k < x->shape.n)
            dim = (int64_t)x->shape.dim[k];
        if (dim == -1 && *rest == SHAPE_DIMS_MAX) {
            *rest = k;
            dim = 1;
        }
        if (dim < 1 || dim > INT32_MAX)
            return onnx_refuse(g, node, err, "dimension %zu of the new shape", k);
        y->dim[k] = (size_t)dim;
    }
    return OK;
}

/* A sequence with the steps first: its two first axes stay. */
static int reshape_steps(struct onnx_graph *g, const struct onnx_node *node,
                         const struct onnx_value *x, const struct onnx_value *to, struct err *err)
{
    struct shape y = x->shape;
    size_t own = shape_count_from(&x->shape, 2);
    bool stay = to->shape.n == 1 && shape_count(&to->shape) == 3 && !x->directed &&
                onnx_int(node, "allowzero", 0) == 0;
    for (size_t k = 0; k < 2 && stay; k++)
        stay = to->i[k] == 0 || to->i[k] == (int64_t)x->shape.dim[k] ||
               (k == 1 && (to->i[k] == ONNX_RECORDS || (to->i[k] == -1 && to->i[2] != -1)));
    if (!stay || (to->i[2] != -1 && to->i[2] != (int64_t)own))
        return onnx_refuse(g, node, err,
                           "a sequence with the steps first, but to three axes, of which the first "
                           "two stay");
    y.n = 3;
    y.dim[2] = own;
    return onnx_result_like(g, node, x, &y, err);
}

static int reshape_blob(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *x, const struct onnx_value *to, struct err *err)
{
    struct shape y = {.n = shape_count(&to->shape)};
    size_t rest = SHAPE_DIMS_MAX;
    char text[128];
    if (x->by_step)
        return reshape_steps(g, node, x, to, err);
    if (y.n < 1 || y.n > SHAPE_DIMS_MAX || to->shape.n != 1)
        return onnx_refuse(g, node, err, "to %zu dimensions, 1 to %d", y.n, SHAPE_DIMS_MAX);
    int rc = read_dims(g, node, x, to, &y, &rest, err);
    if (rc != OK)
        return rc;
    bool first = is_records(x, to->i[0], onnx_int(node, "allowzero", 0) != 0) ||
                 (to->i[0] == -1 && rest == SHAPE_DIMS_MAX);
    y.dim[0] = x->shape.dim[0];
    size_t own = shape_count_from(&x->shape, 1), count = shape_count_from(&y, 1);
    if (first && rest < SHAPE_DIMS_MAX && count > 0 && own % count == 0) {
        y.dim[rest] = own / count;
        count = own;
    }
    if (!first || count != own)
        return onnx_refuse(g, node, err, "from %s: the first axis has the records, and must stay",
                           shape_text(&x->shape, text, sizeof text));
    return onnx_result_like(g, node, x, &y, err);
}

/* The new shape of a constant. */
static int constant_dims(struct onnx_graph *g, const struct onnx_node *node,
                         const struct onnx_value *x, const struct onnx_value *to, struct shape *y,
                         struct err *err)
{
    size_t rest = SHAPE_DIMS_MAX, count = shape_count(&x->shape);
    *y = (struct shape){.n = shape_count(&to->shape)};
    if (y->n > SHAPE_DIMS_MAX || to->shape.n != 1)
        return onnx_refuse(g, node, err, "to more than %d dimensions", SHAPE_DIMS_MAX);
    for (size_t k = 0; k < y->n; k++) {
        int64_t dim = to->i[k];
        if (dim == 0 && k < x->shape.n)
            dim = (int64_t)x->shape.dim[k];
        if (dim == -1 && rest == SHAPE_DIMS_MAX) {
            rest = k;
            dim = 1;
        }
        if (dim < 0 || dim > INT32_MAX)
            return onnx_refuse(g, node, err, "dimension %zu of the new shape", k);
        y->dim[k] = (size_t)dim;
    }
    if (rest < SHAPE_DIMS_MAX && shape_count(y) > 0)
        y->dim[rest] = count / shape_count(y);
    return OK;
}

int onnx_reshape(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *to;
    struct shape y;
    int rc = onnx_input(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_integers(g, node, 1, &to, err);
    if (rc != OK)
        return rc;
    if (x->is_blob)
        return reshape_blob(g, node, x, to, err);
    rc = constant_dims(g, node, x, to, &y, err);
    return rc == OK ? reshape_constant(g, node, x, &y, err) : rc;
}

int onnx_flatten(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    int64_t n = (int64_t)x->shape.n, axis = onnx_int(node, "axis", 1);
    axis += axis < 0 ? n : 0;
    if (axis != 1)
        return onnx_refuse(g, node, err, "axis %lld: only 1, the records stay apart",
                           (long long)axis);
    const struct shape y = {2, {x->shape.dim[0], shape_count_from(&x->shape, 1)}};
    return onnx_result_like(g, node, x, &y, err);
}

/* ---- Squeeze, Unsqueeze ---- */

int onnx_named_axes(struct onnx_graph *g, const struct onnx_node *node, size_t n,
                    bool is[SHAPE_DIMS_MAX], struct err *err)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, "axes");
    const int64_t *axes = a ? a->ints : NULL;
    size_t count = a ? a->n_ints : 0;
    struct onnx_value *input;
    if (!a && onnx_has(node, 1)) {
        int rc = onnx_integers(g, node, 1, &input, err);
        if (rc != OK)
            return rc;
        axes = input->i;
        count = shape_count(&input->shape);
    }
    if (count == 0)
        return onnx_refuse(g, node, err, "no axes are named");
    memset(is, 0, SHAPE_DIMS_MAX * sizeof *is);
    for (size_t k = 0; k < count; k++) {
        int64_t axis = axes[k] < 0 ? axes[k] + (int64_t)n : axes[k];
        if (axis < 0 || axis >= (int64_t)n || is[axis])
            return onnx_broken(g, node, err, "axis %lld of %zu", (long long)axes[k], n);
        is[axis] = true;
    }
    return OK;
}

/* Steps first: without the axis of directions, or of the one step that is left. */
static int squeeze_steps(struct onnx_graph *g, const struct onnx_node *node,
                         const struct onnx_value *x, const bool is[SHAPE_DIMS_MAX], struct shape *y,
                         struct err *err)
{
    int rc = onnx_result_like(g, node, x, y, err);
    struct onnx_value *out = rc == OK ? onnx_find(g, node->proto->output[0]) : NULL;
    if (!out)
        return rc;
    out->directed = false;
    if (x->shape.n == 3 && is[0] && !is[1]) /* (1, N, H): (N, H) */
        out->by_step = false;
    else if (!x->directed || is[0] || is[2] || is[3])
        return onnx_refuse(g, node, err, "other axes than that of the directions");
    return OK;
}

int onnx_squeeze(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    struct shape y = {0};
    bool is[SHAPE_DIMS_MAX];
    int rc = onnx_input(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_named_axes(g, node, x->shape.n, is, err);
    if (rc != OK)
        return rc;
    for (size_t k = 0; k < x->shape.n; k++) {
        if (is[k] && x->shape.dim[k] != 1)
            return onnx_broken(g, node, err, "axis %zu has %zu values", k, x->shape.dim[k]);
        if (!is[k])
            y.dim[y.n++] = x->shape.dim[k];
    }
    if (!x->is_blob)
        return reshape_constant(g, node, x, &y, err);
    if (x->by_step)
        return squeeze_steps(g, node, x, is, &y, err);
    if (is[0])
        return onnx_refuse(g, node, err, "axis 0, which has the records");
    return onnx_result_like(g, node, x, &y, err);
}

int onnx_unsqueeze(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    struct shape y = {0};
    bool is[SHAPE_DIMS_MAX];
    const Onnx__AttributeProto *a = onnx_attribute(node, "axes");
    struct onnx_value *axes = NULL;
    int rc = onnx_input(g, node, 0, &x, err);
    if (rc == OK && !a)
        rc = onnx_integers(g, node, 1, &axes, err);
    if (rc != OK)
        return rc;
    size_t count = a ? a->n_ints : shape_count(&axes->shape);
    y.n = x->shape.n + count;
    if (count > SHAPE_DIMS_MAX || y.n > SHAPE_DIMS_MAX)
        return onnx_refuse(g, node, err, "to more than %d dimensions", SHAPE_DIMS_MAX);
    rc = onnx_named_axes(g, node, y.n, is, err);
    if (rc != OK)
        return rc;
    for (size_t k = 0, from = 0; k < y.n; k++)
        y.dim[k] = is[k] ? 1 : x->shape.dim[from++];
    if (!x->is_blob)
        return reshape_constant(g, node, x, &y, err);
    if (is[0] || x->by_step)
        return onnx_refuse(g, node, err, "axis 0, which has the records");
    return onnx_result_like(g, node, x, &y, err);
}

/* ---- parts ---- */

static Caffe__LayerParameter *add_slice(struct onnx_graph *g, const char *name,
                                        const struct onnx_value *x, size_t axis,
                                        const uint32_t *point, size_t points, const char *top)
{
    struct build *b = &g->build;
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "Slice", name, x->blob, top);
    Caffe__SliceParameter *slice =
        layer ? build_message(b, &caffe__slice_parameter__descriptor) : NULL;
    if (!slice)
        return NULL;
    layer->slice_param = slice;
    BUILD_SET(slice, axis, (int32_t)axis);
    slice->slice_point = malloc((points + 1) * sizeof *point);
    if (!slice->slice_point) {
        b->failed = true;
        return NULL;
    }
    memcpy(slice->slice_point, point, points * sizeof *point);
    slice->n_slice_point = points;
    return layer;
}

/* The sizes of the parts: an attribute, from opset 13 on an input; equal ones without, but the
 * last, from opset 18 on, which may be smaller. */
static int read_sizes(struct onnx_graph *g, const struct onnx_node *node, size_t whole, size_t n,
                      uint32_t *point, struct err *err)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, "split");
    const int64_t *size = a ? a->ints : NULL;
    size_t count = a ? a->n_ints : n, at = 0;
    struct onnx_value *input;
    if (!a && onnx_has(node, 1)) {
        int rc = onnx_integers(g, node, 1, &input, err);
        if (rc != OK)
            return rc;
        size = input->i;
        count = shape_count(&input->shape);
    }
    if (count != n || (!size && whole % n != 0 && !onnx_attribute(node, "num_outputs")))
        return onnx_refuse(g, node, err, "%zu outputs of %zu values", n, whole);
    for (size_t k = 0; k < n; k++) {
        size_t equal = (whole + n - 1) / n;
        int64_t part = size ? size[k] : (int64_t)(equal < whole - at ? equal : whole - at);
        if (part < 1 || part > (int64_t)(whole - at))
            return onnx_broken(g, node, err, "part %zu of %lld values", k, (long long)part);
        point[k] = (uint32_t)(at += (size_t)part);
    }
    return at == whole ? OK : onnx_broken(g, node, err, "parts of %zu of %zu values", at, whole);
}

int onnx_split(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    size_t n = node->proto->n_output;
    int rc = onnx_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    int64_t axis = onnx_int(node, "axis", 0);
    axis += axis < 0 ? (int64_t)x->shape.n : 0;
    uint32_t *point = arena_array(&g->arena, n + 1, uint32_t);
    if (!point)
        return onnx_no_memory(g, err);
    for (size_t k = 0; k < n; k++)
        if (!onnx_has_output(node, k))
            return onnx_broken(g, node, err, "output %zu is missing", k);
    if (axis < 1 || axis >= (int64_t)x->shape.n || n < 2)
        return onnx_refuse(g, node, err, "axis %lld into %zu parts; axis 0 has the records",
                           (long long)axis, n);
    rc = read_sizes(g, node, x->shape.dim[axis], n, point, err);
    if (rc != OK)
        return rc;
    Caffe__LayerParameter *layer =
        add_slice(g, node->name, x, (size_t)axis, point, n - 1, node->proto->output[0]);
    for (size_t k = 1; k < n && layer; k++)
        build_add_string(&g->build, &layer->top, &layer->n_top, node->proto->output[k]);
    struct shape y = x->shape;
    for (size_t k = 0; k < n && rc == OK; k++) {
        y.dim[axis] = point[k] - (k ? point[k - 1] : 0);
        rc = onnx_result(g, node, k, &y, err);
    }
    return rc;
}

static const char *rest_name(struct onnx_graph *g, const char *top, const char *suffix)
{
    size_t size = strlen(top) + strlen(suffix) + 2;
    char *name = arena_array(&g->arena, size, char);
    if (!name) {
        g->build.failed = true;
        return top;
    }
    snprintf(name, size, "%s/%s", top, suffix);
    return name;
}

/* The other values go to a Silence, since no layer reads them. */
int onnx_take_part(struct onnx_graph *g, const char *name, const char *top,
                   const struct onnx_value *x, size_t axis, struct range range, struct err *err)
{
    struct build *b = &g->build;
    size_t end = range.from + range.len, n = 0, points = 0;
    uint32_t point[2];
    const char *part[3];
    if (range.from > 0) {
        point[points++] = (uint32_t)range.from;
        part[n++] = rest_name(g, top, "before");
    }
    part[n++] = top;
    if (end < x->blob_shape.dim[axis]) {
        point[points++] = (uint32_t)end;
        part[n++] = rest_name(g, top, "after");
    }
    Caffe__LayerParameter *layer = add_slice(g, name, x, axis, point, points, part[0]);
    for (size_t k = 1; k < n && layer; k++)
        build_add_string(b, &layer->top, &layer->n_top, part[k]);
    for (size_t k = 0; k < n && layer && !b->failed; k++) {
        if (part[k] == top)
            continue;
        Caffe__LayerParameter *silence = onnx_inner_layer(g, "Silence", part[k], part[k], part[k]);
        if (silence)
            free(silence->top[--silence->n_top]);
    }
    return b->failed ? onnx_no_memory(g, err) : OK;
}

int onnx_gather_blob(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x, *index;
    int rc = onnx_input(g, node, 0, &x, err);
    if (rc == OK && !x->by_step)
        rc = onnx_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = onnx_integers(g, node, 1, &index, err);
    if (rc != OK)
        return rc;
    int64_t axis = onnx_int(node, "axis", 0), steps = x->by_step ? 0 : 1;
    int64_t T = x->shape.n == 3 ? (int64_t)x->shape.dim[steps] : 0;
    axis += axis < 0 ? (int64_t)x->shape.n : 0;
    if (axis != steps || T < 2 || index->shape.n != 0)
        return onnx_refuse(g, node, err, "only one step, axis %lld, of a sequence of two or more",
                           (long long)steps);
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    int64_t step = index->i[0] < 0 ? index->i[0] + T : index->i[0];
    if (step < 0 || step >= T)
        return onnx_broken(g, node, err, "step %lld of %lld", (long long)index->i[0], (long long)T);
    const struct shape y = {3, {x->shape.dim[1 - steps], 1, x->shape.dim[2]}};
    rc = onnx_take_part(g, node->name, node->proto->output[0], x, 1,
                        (struct range){(size_t)step, 1}, err);
    if (rc == OK)
        rc = onnx_result(g, node, 0, &y, err);
    if (rc == OK)
        onnx_find(g, node->proto->output[0])->shape = (struct shape){2, {y.dim[0], y.dim[2]}};
    return rc;
}
