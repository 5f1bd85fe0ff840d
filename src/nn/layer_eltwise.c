/* Eltwise: the sum (with a coefficient for each bottom), product or maximum of the bottoms. */
#include "base/fault.h"
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/combine.h"

#include <math.h>

struct layer_eltwise {
    struct layer layer;
    struct combine combine;
    const float **x; /* of the pass */
    size_t records;
};

static const char *const types[] = {"Eltwise", NULL};
static const char *const messages[] = {"eltwise_param", NULL};

static int check_fields(const struct layer *layer, const Caffe__EltwiseParameter *p,
                        struct err *err)
{
    bool sums = p->operation == CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__SUM;
    if (p->n_coeff > 0 && !sums)
        return err_set(err, ERR_INPUT, "eltwise_param.coeff needs operation SUM");
    if (p->n_coeff > 0 && p->n_coeff != layer->n_bottom)
        return err_set(err, ERR_INPUT, "eltwise_param: %zu coeff for %zu bottoms", p->n_coeff,
                       layer->n_bottom);
    for (size_t k = 0; k < p->n_coeff; k++)
        if (!isfinite(p->coeff[k]))
            return err_set(err, ERR_INPUT, "eltwise_param.coeff: %g is out of range",
                           (double)p->coeff[k]);
    if (p->has_stable_prod_grad && p->operation != CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD)
        return err_set(err, ERR_INPUT, "eltwise_param.stable_prod_grad needs operation PROD");
    return OK;
}

static int check_shapes(const struct layer *layer, struct err *err)
{
    const struct blob *first = layer->bottom[0].blob;
    for (size_t k = 1; k < layer->n_bottom; k++) {
        const struct blob *x = layer->bottom[k].blob;
        char a[128], b[128];
        if (!shape_equal(&x->shape, &first->shape))
            return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s, but bottom \"%.64s\" is %s",
                           first->name, shape_text(&first->shape, a, sizeof a), x->name,
                           shape_text(&x->shape, b, sizeof b));
        PL_ASSERT(x->layout == first->layout);
    }
    return OK;
}

static enum combine_kind kind_of(const Caffe__EltwiseParameter *p)
{
    switch (p->operation) {
    case CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__PROD: return COMBINE_PRODUCT;
    case CAFFE__ELTWISE_PARAMETER__ELTWISE_OP__MAX: return COMBINE_MAX;
    default: return COMBINE_SUM;
    }
}

/* Can the layer be part of a chain (fuse.h)? */
static bool adds_two(const Caffe__EltwiseParameter *p, size_t bottoms)
{
    bool plain = true;
    for (size_t k = 0; p && k < p->n_coeff; k++)
        plain = plain && p->coeff[k] == 1.0f;
    return bottoms == 2 && plain && (!p || kind_of(p) == COMBINE_SUM);
}

static enum layer_takes takes_for(const Caffe__LayerParameter *param)
{
    return adds_two(param->eltwise_param, param->n_bottom) ? TAKES_EITHER : TAKES_F32;
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_eltwise *self = (struct layer_eltwise *)layer;
    Caffe__EltwiseParameter none = CAFFE__ELTWISE_PARAMETER__INIT;
    const Caffe__EltwiseParameter *p = layer->param->eltwise_param;
    p = p ? p : &none;
    int rc = layer_links_between(layer, 2, 0, 1, 1, err);
    if (rc == OK)
        rc = check_fields(layer, p, err);
    if (rc == OK)
        rc = check_shapes(layer, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    const struct blob *x = rc == OK ? layer->bottom[0].blob : NULL;
    if (rc == OK)
        rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc != OK)
        return rc;
    float *coeff = arena_array(setup->arena, layer->n_bottom, float);
    self->x = arena_array(setup->arena, layer->n_bottom, const float *);
    if (!coeff || !self->x)
        return err_set(err, ERR_NOMEM, "out of memory for %zu bottoms", layer->n_bottom);
    for (size_t k = 0; k < layer->n_bottom; k++)
        coeff[k] = p->n_coeff > 0 ? p->coeff[k] : 1.0f;
    self->combine =
        (struct combine){kind_of(p), layer->n_bottom, x->count, coeff, !p->stable_prod_grad};
    layer->in_place = self->combine.kind == COMBINE_SUM; /* over one of the first two bottoms */
    layer->n_over = 2;
    layer->reads_bottom = !layer->in_place;
    if (adds_two(p, layer->n_bottom))
        layer->part = CHAIN_SUM;
    return OK;
}

/* Where they are now: in backward it may be elsewhere than in forward. */
static void find_bottoms(struct layer_eltwise *self)
{
    for (size_t k = 0; k < self->layer.n_bottom; k++)
        self->x[k] = self->layer.bottom[k].blob->at;
}

static void eltwise_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_eltwise *self = (struct layer_eltwise *)layer;
    self->records = pass->batch->count;
    find_bottoms(self);
    combine_forward(&self->combine, self->x, layer->top[0]->at);
}

static void backward_to(const struct layer *layer, size_t k)
{
    const struct layer_eltwise *self = (const struct layer_eltwise *)layer;
    const struct link *x = &layer->bottom[k];
    const float *dy = layer->top[0]->d;
    if (x->dx == dy && self->combine.coeff[k] == 1.0f)
        return;
    combine_backward(&self->combine, k, self->x, dy, x->dx);
    if (layer->reads_bottom) /* a quotient may be no number there */
        axes_clear_rest(x->blob, self->records, x->dx);
}

/* The bottom that uses dy's memory is last. */
static void eltwise_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const float *dy = layer->top[0]->d;
    find_bottoms((struct layer_eltwise *)layer);
    for (size_t k = 0; k < layer->n_bottom; k++)
        if (layer->bottom[k].dx && layer->bottom[k].dx != dy)
            backward_to(layer, k);
    for (size_t k = 0; k < layer->n_bottom; k++)
        if (layer->bottom[k].dx == dy)
            backward_to(layer, k);
}

const struct layer_ops layer_eltwise = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_eltwise),
    .takes_for = takes_for,
    .takes_blocks = true,
    .setup = setup,
    .forward = eltwise_forward,
    .backward = eltwise_backward,
};
