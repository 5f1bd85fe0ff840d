/* Concat: the bottoms one after another along an axis. */
#include "base/fault.h"
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/span.h"

#include <stdio.h>

struct layer_concat {
    struct layer layer;
    size_t axis;
};

static const char *const types[] = {"Concat", NULL};
static const char *const messages[] = {"concat_param", NULL};

/* All axes but `axis` are the first bottom's; the top's is the sum. */
static int check_shapes(const struct layer *layer, size_t axis, struct shape *y, struct err *err)
{
    const struct blob *first = layer->bottom[0].blob;
    *y = first->shape;
    for (size_t k = 1; k < layer->n_bottom; k++) {
        const struct blob *x = layer->bottom[k].blob;
        struct shape rest = x->shape;
        char a[128], b[128];
        if (rest.n == first->shape.n)
            rest.dim[axis] = first->shape.dim[axis];
        if (!shape_equal(&rest, &first->shape))
            return err_set(
                err, ERR_INPUT,
                "bottom \"%.64s\" is %s, bottom \"%.64s\" %s: they differ in more than axis %zu",
                first->name, shape_text(&first->shape, a, sizeof a), x->name,
                shape_text(&x->shape, b, sizeof b), axis);
        PL_ASSERT(x->layout == first->layout);
        if (__builtin_add_overflow(y->dim[axis], x->shape.dim[axis], &y->dim[axis]))
            return err_set(err, ERR_INPUT, "the bottoms are too large together");
    }
    return OK;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    (void)setup;
    struct layer_concat *self = (struct layer_concat *)layer;
    Caffe__ConcatParameter none = CAFFE__CONCAT_PARAMETER__INIT;
    const Caffe__ConcatParameter *p = layer->param->concat_param;
    p = p ? p : &none;
    const struct axes_either field = {
        "concat_param.axis", "concat_param.concat_dim", p->axis, p->concat_dim,
        p->has_axis,         p->has_concat_dim,
    };
    struct shape y;
    int rc = layer_links_between(layer, 1, 0, 1, 1, err);
    if (rc == OK)
        rc = axes_in_record_either(layer, &field, &self->axis, err);
    if (rc == OK)
        rc = check_shapes(layer, self->axis, &y, err);
    if (rc == OK)
        rc = layer_top(layer, 0, &y, layer->bottom[0].blob->layout, err);
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static struct span span_along(const struct layer *layer, const struct blob *blob)
{
    struct span span =
        span_of(&blob->shape, blob->layout, ((const struct layer_concat *)layer)->axis);
    span.dtype = blob->dtype;
    return span;
}

static void concat_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *y = layer->top[0];
    struct span whole = span_along(layer, y);
    for (size_t k = 0, at = 0; k < layer->n_bottom; k++) {
        const struct blob *x = layer->bottom[k].blob;
        struct span part = span_along(layer, x);
        span_put(&part, x->at, &whole, at, y->at);
        at += part.n;
    }
}

static void concat_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *y = layer->top[0];
    struct span whole = span_along(layer, y);
    for (size_t k = 0, at = 0; k < layer->n_bottom; k++) {
        const struct link *x = &layer->bottom[k];
        struct span part = span_along(layer, x->blob);
        if (x->dx)
            span_get(&whole, y->d, &part, at, x->dx);
        at += part.n;
    }
}

const struct layer_ops layer_concat = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_concat),
    .takes = TAKES_EITHER,
    .setup = setup,
    .forward = concat_forward,
    .backward = concat_backward,
};
