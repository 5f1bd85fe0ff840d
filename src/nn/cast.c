#include "nn/cast.h"

#include "nn/graph.h"
#include "tensor/bf16.h"

#include <stdio.h>

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

static struct blob *find_cast(const struct net *net, const struct blob *x)
{
    for (size_t i = 0; i < net->n_blobs; i++)
        if (net->blob[i]->is_cast && net->blob[i]->maker->bottom[0].blob == x)
            return net->blob[i];
    return NULL;
}

/* Insert the cast before the newest layer. */
static int insert_cast(struct net *net, struct layer *reader, struct blob *x, struct blob **out,
                       struct err *err)
{
    struct layer *layer = arena_new(&net->arena, struct layer);
    struct blob *y = arena_new(&net->arena, struct blob);
    struct link *link = arena_array(&net->arena, 1, struct link);
    struct blob **tops = arena_array(&net->arena, 1, struct blob *);
    char text[160];
    snprintf(text, sizeof text, "%.100s as %s", x->name, dtype_name(reader->dtype));
    const char *name = arena_strdup(&net->arena, text);
    if (!layer || !y || !link || !tops || !name)
        return err_set(err, ERR_NOMEM, "out of memory");
    *link = (struct link){.blob = x};
    *y = (struct blob){
        .name = x->name,
        .shape = x->shape,
        .layout = x->layout,
        .dtype = reader->dtype,
        .count = x->count,
        .maker = layer,
        .is_cast = true,
    };
    *tops = y;
    *layer = (struct layer){
        .ops = &ops,
        .name = name,
        .type = "Cast",
        .index = x->maker->index,
        .nth = reader->nth,
        .bottom = link,
        .n_bottom = 1,
        .top = tops,
        .n_top = 1,
        .dtype = y->dtype,
        .n_over = 1,
    };
    net->layer[layer->nth] = layer;
    net->layer[++reader->nth] = reader;
    net->n_layers++;
    net->blob[net->n_blobs++] = y;
    *out = y;
    return OK;
}

int cast_bottoms(struct net *net, struct layer *layer, const struct setup *setup, struct err *err)
{
    int rc = OK;
    layer->dtype = dtype_for(layer, setup);
    for (size_t k = 0; k < layer->n_bottom && rc == OK; k++) {
        struct link *link = &layer->bottom[k];
        struct blob *x = link->blob;
        if (x->shape.n != 4 || x->dtype == layer->dtype)
            continue;
        struct blob *y = find_cast(net, x);
        if (!y)
            rc = insert_cast(net, layer, x, &y, err);
        else
            x->users--; /* of x the cast is one user, however many have the cast */
        if (rc == OK) {
            y->users++;
            link->blob = y;
        }
    }
    return rc;
}
