#include "nn/recast.h"

#include "nn/axes.h"

#include <string.h>

/* One channel, or one pixel: all layouts are the same memory. */
static bool count_reorders(const struct shape *shape, enum layout layout)
{
    return layout != LAYOUT_PLAIN && shape->dim[1] > 1 && shape_count_from(shape, 2) > 1;
}

int recast_init(struct recast *r, struct layer *layer, const struct setup *setup,
                const struct recast_end *from, const struct recast_end *to, struct err *err)
{
    bool same = shape_equal(&from->shape, &to->shape) && from->layout == to->layout;
    unsigned ways = setup->options->phase == PHASE_TRAIN ? 2 : 1;
    *r = (struct recast){*from, *to, shape_count(&from->shape), NULL};
    r->from.reorders = !same && count_reorders(&from->shape, from->layout);
    r->to.reorders = !same && count_reorders(&to->shape, to->layout);
    layer->reorders += ways * ((unsigned)r->from.reorders + (unsigned)r->to.reorders);
    if (!r->from.reorders || !r->to.reorders)
        return OK;
    r->plain = arena_array(setup->arena, r->count, float);
    if (!r->plain)
        return err_set(err, ERR_NOMEM, "out of memory for %zu floats of scratch", r->count);
    layer->buffer_bytes += r->count * sizeof(float);
    return OK;
}

bool recast_is_copy(const struct recast *r)
{
    return !r->from.reorders && !r->to.reorders;
}

void recast_forth(const struct recast *r, const float *x, float *y)
{
    float *plain = r->to.reorders ? r->plain : y;
    if (recast_is_copy(r) && y != x)
        memcpy(y, x, r->count * sizeof *y);
    if (r->from.reorders)
        kernels_reorder(&r->from.shape, r->from.layout, x, LAYOUT_PLAIN, plain);
    if (r->to.reorders)
        kernels_reorder(&r->to.shape, LAYOUT_PLAIN, r->from.reorders ? plain : x, r->to.layout, y);
}

void recast_back(const struct recast *r, const float *y, float *x)
{
    const struct recast back = {.from = r->to, .to = r->from, r->count, r->plain};
    recast_forth(&back, y, x);
}

int recast_layer(struct layer *layer, const struct setup *setup, const struct shape *to,
                 struct err *err)
{
    struct layer_recast *self = (struct layer_recast *)layer;
    struct blob *x = layer->bottom[0].blob;
    const struct recast_end from = {x->shape, x->layout, false};
    const struct recast_end end = {*to, axes_layout(setup, to), false};
    int rc = recast_init(&self->recast, layer, setup, &from, &end, err);
    if (rc == OK)
        rc = layer_top(layer, 0, to, end.layout, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    layer->top[0]->is_labels = x->is_labels;
    layer->top[0]->is_numbers = x->is_numbers;
    layer->top[0]->is_whole = x->is_whole;
    layer->in_place = recast_is_copy(&self->recast);
    layer->top[0]->over = layer->in_place ? x : NULL;
    return OK;
}

void recast_layer_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct recast *r = &((const struct layer_recast *)layer)->recast;
    recast_forth(r, layer->bottom[0].blob->at, layer->top[0]->at);
}

void recast_layer_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct recast *r = &((const struct layer_recast *)layer)->recast;
    recast_back(r, layer->top[0]->d, layer->bottom[0].dx);
}
