#include "nn/cast.h"

#include "nn/insert.h"
#include "tensor/bf16.h"

/* ---- elements ---- */

void cast_add(enum dtype dtype, size_t n, const void *x, void *y)
{
    if (dtype == DTYPE_BF16)
        bf16_add(n, x, y);
    else
        vec_host_add_all(y, x, n);
}

void cast_add_number(enum dtype dtype, float number, size_t n, void *y)
{
    float *wide = y;
    bf16 *half = y;
    for (size_t i = 0; i < n; i++)
        if (dtype == DTYPE_BF16)
            half[i] = bf16_nearest(bf16_float(half[i]) + number);
        else
            wide[i] += number;
}

float cast_element(enum dtype dtype, const void *x, size_t i)
{
    return dtype == DTYPE_BF16 ? bf16_float(((const bf16 *)x)[i]) : ((const float *)x)[i];
}

void cast_out(const struct shape *shape, enum layout layout, const bf16 *x, float *y)
{
    size_t C = shape->dim[1], S = shape_count_from(shape, 2), R = C * S;
    for (size_t i = 0; i < shape_count(shape); i++) {
        size_t n = i / R, c = i % R / S, s = i % S;
        y[i] = bf16_float(layout == LAYOUT_NHWC ? x[n * R + s * C + c] : x[i]);
    }
}

/* ---- the layer ---- */

static void convert_values(const struct blob *from, const void *x, const struct blob *to, void *y)
{
    if (to->dtype == DTYPE_BF16)
        bf16_round(from->count, x, y);
    else
        bf16_widen(from->count, x, y);
}

static void cast_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *x = layer->bottom[0].blob, *y = layer->top[0];
    convert_values(x, x->at, y, y->at);
}

static void cast_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct blob *x = layer->bottom[0].blob, *y = layer->top[0];
    convert_values(y, y->d, x, layer->bottom[0].dx);
}

static const struct layer_ops ops = {
    .size = sizeof(struct layer),
    .forward = cast_forward,
    .backward = cast_backward,
};

bool cast_is(const struct layer *layer)
{
    return layer->ops == &ops;
}

/* ---- putting it between ---- */

static enum dtype dtype_for(const struct layer *layer, const struct setup *setup)
{
    enum layer_takes takes = layer->ops->takes;
    if (setup->options->dtype == DTYPE_F32 || setup->options->phase == PHASE_TEST)
        return DTYPE_F32;
    if (layer->ops->takes_for)
        takes = layer->ops->takes_for(layer->param);
    for (size_t k = 0; k < layer->n_bottom && takes == TAKES_EITHER; k++)
        if (layer->bottom[k].blob->dtype == DTYPE_BF16)
            return DTYPE_BF16;
    return takes == TAKES_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

int cast_bottoms(struct net *net, struct layer *layer, const struct setup *setup, struct err *err)
{
    int rc = OK;
    layer->dtype = dtype_for(layer, setup);
    for (size_t k = 0; k < layer->n_bottom && rc == OK; k++) {
        const struct blob *x = layer->bottom[k].blob;
        const struct insertion cast = {
            .ops = &ops,
            .type = "Cast",
            .copy = dtype_name(layer->dtype),
            .shape = x->shape,
            .dtype = layer->dtype,
        };
        if (x->shape.n == 4 && x->dtype != layer->dtype)
            rc = insert_layer(net, layer, k, &cast, err);
    }
    return rc;
}
