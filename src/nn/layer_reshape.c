/* Reshape: num_axes axes of the bottom, from `axis` on, become those of `shape`: 0 is the bottom's
 * dimension at that axis, -1 the rest. The first axis stays: it has the records. */
#include "nn/layers.h"
#include "nn/recast.h"

#include <string.h>

static const char *const types[] = {"Reshape", NULL};
static const char *const messages[] = {"reshape_param", NULL};

/* The axes to replace, [*first, *end); a negative axis counts from one past the last. */
static int read_range(const struct layer *layer, const Caffe__ReshapeParameter *p, size_t *first,
                      size_t *end, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    int64_t n = (int64_t)x->shape.n, from = p->axis < 0 ? n + 1 + p->axis : p->axis;
    char text[128];
    shape_text(&x->shape, text, sizeof text);
    if (from < 0 || from > n)
        return err_set(err, ERR_INPUT, "reshape_param.axis: %d is no axis of bottom \"%.64s\", %s",
                       (int)p->axis, x->name, text);
    if (p->num_axes < -1 || from + p->num_axes > n)
        return err_set(err, ERR_INPUT,
                       "reshape_param.num_axes: %d from axis %d of bottom \"%.64s\", %s",
                       (int)p->num_axes, (int)from, x->name, text);
    *first = (size_t)from;
    *end = p->num_axes == -1 ? x->shape.n : (size_t)(from + p->num_axes);
    return OK;
}

/* One dimension that is put at y->dim[at]. */
static int read_dim(const struct shape *x, int64_t dim, size_t at, struct shape *y, size_t *rest,
                    struct err *err)
{
    if (dim < -1 || dim > INT32_MAX)
        return err_set(err, ERR_INPUT, "reshape_param.shape: dimension %lld is out of range",
                       (long long)dim);
    if (dim == 0 && at >= x->n)
        return err_set(err, ERR_INPUT, "reshape_param.shape: 0 where the bottom has no axis %zu",
                       at);
    if (dim == -1 && *rest < SHAPE_DIMS_MAX)
        return err_set(err, ERR_INPUT, "reshape_param.shape: -1 is given twice");
    if (dim == -1)
        *rest = at;
    y->dim[at] = dim == -1 ? 1 : dim == 0 ? x->dim[at] : (size_t)dim;
    return OK;
}

/* Compute the dimension of -1, and check that the number of values is the same. */
static int complete_shape(const struct blob *x, struct shape *y, size_t rest, struct err *err)
{
    char a[128], b[128];
    size_t count = shape_count(y);
    bool fits = count > 0 && x->count % count == 0;
    if (fits && rest < SHAPE_DIMS_MAX)
        y->dim[rest] = x->count / count;
    else if (count != x->count)
        fits = false;
    if (!fits)
        return err_set(err, ERR_INPUT,
                       "reshape_param.shape: bottom \"%.64s\" is %s and cannot be %s", x->name,
                       shape_text(&x->shape, a, sizeof a), shape_text(y, b, sizeof b));
    if (y->n == 0 || x->shape.n == 0 || y->dim[0] != x->shape.dim[0])
        return err_set(
            err, ERR_UNSUPPORTED,
            "reshape_param.shape: bottom \"%.64s\" is %s and would be %s; the first axis "
            "has the records, and stays as it is (0)",
            x->name, shape_text(&x->shape, a, sizeof a), shape_text(y, b, sizeof b));
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__ReshapeParameter none = CAFFE__RESHAPE_PARAMETER__INIT;
    const Caffe__ReshapeParameter *p = layer->param->reshape_param;
    p = p ? p : &none;
    const int64_t *dim = p->shape ? p->shape->dim : NULL;
    size_t dims = p->shape ? p->shape->n_dim : 0, first = 0, end = 0, rest = SHAPE_DIMS_MAX;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = read_range(layer, p, &first, &end, err);
    if (rc != OK)
        return rc;
    const struct shape *x = &layer->bottom[0].blob->shape;
    if (dims > SHAPE_DIMS_MAX - (first + x->n - end))
        return err_set(err, ERR_INPUT, "reshape_param.shape: %zu dimensions, at most %d in all",
                       first + dims + x->n - end, SHAPE_DIMS_MAX);
    struct shape y = {.n = first + dims + x->n - end};
    memcpy(y.dim, x->dim, first * sizeof y.dim[0]);
    memcpy(y.dim + first + dims, x->dim + end, (x->n - end) * sizeof y.dim[0]);
    for (size_t i = 0; i < dims && rc == OK; i++)
        rc = read_dim(x, dim[i], first + i, &y, &rest, err);
    if (rc == OK)
        rc = complete_shape(layer->bottom[0].blob, &y, rest, err);
    return rc == OK ? recast_layer(layer, setup, &y, err) : rc;
}

const struct layer_ops layer_reshape = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_recast),
    .setup = setup,
    .forward = recast_layer_forward,
    .backward = recast_layer_backward,
    .takes_whole = true,
};
