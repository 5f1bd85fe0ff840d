#include "nn/repeat.h"

#include "nn/axes.h"

#include <stdio.h>
#include <string.h>

int repeat_param(const struct layer *layer, const char *name, int32_t axis, int32_t num_axes,
                 size_t *at, struct shape *shape, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    char field[64], text[128];
    *at = 0;
    *shape = (struct shape){0};
    if (num_axes == 0)
        return OK; /* wherever it begins */
    snprintf(field, sizeof field, "%s.axis", name);
    int rc = axes_in_record(layer, field, axis, at, err);
    if (rc != OK)
        return rc;
    size_t most = x->shape.n - *at, n = num_axes == -1 ? most : (size_t)num_axes;
    if (num_axes < -1 || n > most)
        return err_set(err, ERR_INPUT, "%s.num_axes: %d from axis %zu of bottom \"%.64s\", %s",
                       name, (int)num_axes, *at, x->name, shape_text(&x->shape, text, sizeof text));
    shape->n = n;
    memcpy(shape->dim, x->shape.dim + *at, n * sizeof shape->dim[0]);
    return OK;
}

static int check_second(const struct layer *layer, const char *name, size_t at, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob, *w = layer->bottom[1].blob;
    char a[128], b[128];
    bool fits = at + w->shape.n <= x->shape.n;
    for (size_t i = 0; i < w->shape.n && fits; i++)
        fits = w->shape.dim[i] == x->shape.dim[at + i];
    if (!fits)
        return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s, bottom \"%.64s\" %s from axis %zu",
                       w->name, shape_text(&w->shape, a, sizeof a), x->name,
                       shape_text(&x->shape, b, sizeof b), at);
    if (at > 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s.axis: %zu is not supported for bottom \"%.64s\", whose first axis has the "
            "records; only 0",
            name, at, w->name);
    return OK;
}

int repeat_second(const struct layer *layer, const char *name, int32_t axis,
                  const int32_t *num_axes, const Caffe__FillerParameter *filler, size_t *at,
                  struct err *err)
{
    const struct blob *w = layer->bottom[1].blob;
    char field[64];
    *at = 0;
    if (filler)
        return err_set(err, ERR_INPUT,
                       "%s.filler: bottom \"%.64s\" is there instead of a parameter", name,
                       w->name);
    if (num_axes && *num_axes != (int32_t)w->shape.n)
        return err_set(err, ERR_INPUT, "%s.num_axes: %d, but bottom \"%.64s\" has %zu axes", name,
                       (int)*num_axes, w->name, w->shape.n);
    if (w->shape.n == 0)
        return OK;
    snprintf(field, sizeof field, "%s.axis", name);
    int rc = layer_axis_at(layer, field, axis, at, err);
    return rc == OK ? check_second(layer, name, *at, err) : rc;
}

static struct op_args args_of(const struct layer *layer, const struct pass *pass)
{
    bool given = layer->n_bottom > 1;
    size_t b = given ? 0 : 1;
    return (struct op_args){
        .x = layer->bottom[0].blob->at,
        .w = given ? layer->bottom[1].blob->at : pass->x + layer->at[0].offset,
        .b = layer->n_at > b ? pass->x + layer->at[b].offset : NULL,
        .y = layer->top[0]->at,
    };
}

void repeat_forward(struct layer *layer, const struct pass *pass)
{
    struct op_args args = args_of(layer, pass);
    layer->op->ops->forward(layer->op, &args);
}

void repeat_backward(struct layer *layer, const struct pass *pass)
{
    struct op_args args = args_of(layer, pass);
    bool given = layer->n_bottom > 1;
    size_t b = given ? 0 : 1;
    args.dy = layer->top[0]->d;
    args.dx = layer->bottom[0].dx;
    args.dw = given ? layer->bottom[1].dx : pass->dx + layer->at[0].offset;
    args.db = layer->n_at > b ? pass->dx + layer->at[b].offset : NULL;
    if (given && args.dw) /* a bottom's gradient is written, a parameter's added to */
        memset(args.dw, 0, layer->bottom[1].blob->count * sizeof *args.dw);
    layer->op->ops->backward(layer->op, &args);
}
