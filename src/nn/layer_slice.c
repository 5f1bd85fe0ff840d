/* Slice: the bottom cut along an axis, at the slice_points or into equal parts: Concat backwards.
 */
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/span.h"

struct layer_slice {
    struct layer layer;
    size_t axis;
};

static const char *const types[] = {"Slice", NULL};
static const char *const messages[] = {"slice_param", NULL};

/* The end of top i along an axis of length n. */
static int cut_at(const struct layer *layer, const Caffe__SliceParameter *p, size_t i, size_t n,
                  size_t *end, struct err *err)
{
    if (p->n_slice_point == 0 && n % layer->n_top != 0)
        return err_set(err, ERR_INPUT, "%zu places cannot be cut into %zu equal tops", n,
                       layer->n_top);
    if (p->n_slice_point == 0)
        *end = n / layer->n_top * (i + 1);
    else
        *end = i < p->n_slice_point ? p->slice_point[i] : n;
    return OK;
}

static int setup_tops(struct layer *layer, const Caffe__SliceParameter *p, size_t axis,
                      struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    size_t n = x->shape.dim[axis], from = 0;
    if (p->n_slice_point > 0 && p->n_slice_point != layer->n_top - 1)
        return err_set(err, ERR_INPUT, "slice_param: %zu slice_point for %zu tops, not %zu",
                       p->n_slice_point, layer->n_top, layer->n_top - 1);
    for (size_t i = 0; i < layer->n_top; i++) {
        struct shape y = x->shape;
        size_t end = 0;
        int rc = cut_at(layer, p, i, n, &end, err);
        if (rc != OK)
            return rc;
        if (end <= from || end > n)
            return err_set(err, ERR_INPUT,
                           "slice_param.slice_point: a top from position %zu to %zu of %zu", from,
                           end, n);
        y.dim[axis] = end - from;
        if ((rc = layer_top(layer, i, &y, x->layout, err)) != OK)
            return rc;
        from = end;
    }
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    (void)setup;
    struct layer_slice *self = (struct layer_slice *)layer;
    Caffe__SliceParameter none = CAFFE__SLICE_PARAMETER__INIT;
    const Caffe__SliceParameter *p = layer->param->slice_param;
    p = p ? p : &none;
    const struct axes_either field = {
        "slice_param.axis", "slice_param.slice_dim", p->axis, p->slice_dim,
        p->has_axis,        p->has_slice_dim,
    };
    int rc = layer_links_between(layer, 1, 1, 1, 0, err);
    if (rc == OK)
        rc = axes_in_record_either(layer, &field, &self->axis, err);
    if (rc == OK)
        rc = setup_tops(layer, p, self->axis, err);
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static struct span span_along(const struct layer *layer, const struct blob *blob)
{
    return span_of(&blob->shape, blob->layout, ((const struct layer_slice *)layer)->axis);
}

static void slice_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *x = layer->bottom[0].blob;
    struct span whole = span_along(layer, x);
    for (size_t k = 0, at = 0; k < layer->n_top; k++) {
        struct span part = span_along(layer, layer->top[k]);
        span_get(&whole, x->at, &part, at, layer->top[k]->at);
        at += part.n;
    }
}

/* A top that leads to no loss leaves zeros. */
static void slice_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct link *x = &layer->bottom[0];
    struct span whole = span_along(layer, x->blob);
    for (size_t k = 0, at = 0; k < layer->n_top; k++) {
        struct span part = span_along(layer, layer->top[k]);
        span_put(&part, layer->top[k]->d, &whole, at, x->dx);
        at += part.n;
    }
}

const struct layer_ops layer_slice = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_slice),
    .setup = setup,
    .forward = slice_forward,
    .backward = slice_backward,
};
