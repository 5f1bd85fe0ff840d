#include "nn/repeat.h"

#include "nn/axes.h"

#include <stdio.h>
#include <string.h>

static int shape_of_param(const struct layer *layer, const struct repeat_fields *fields,
                          struct broadcast_spec *spec, struct err *err)
{
    const struct shape *x = &spec->x;
    char field[64], text[128];
    if (fields->num_axes == 0)
        return OK; /* wherever it begins */
    snprintf(field, sizeof field, "%s.axis", fields->message);
    int rc = axes_in_record(layer, field, fields->axis, &spec->axis, err);
    if (rc != OK)
        return rc;
    size_t most = x->n - spec->axis;
    size_t n = fields->num_axes == -1 ? most : (size_t)fields->num_axes;
    if (fields->num_axes < -1 || n > most)
        return err_set(err, ERR_INPUT, "%s.num_axes: %d from axis %zu of bottom \"%.64s\", %s",
                       fields->message, (int)fields->num_axes, spec->axis,
                       layer->bottom[0].blob->name, shape_text(x, text, sizeof text));
    spec->w.n = n;
    memcpy(spec->w.dim, x->dim + spec->axis, n * sizeof x->dim[0]);
    return OK;
}

static int learnt_of(struct layer *layer, const struct setup *setup,
                     const struct repeat_fields *fields, struct broadcast_spec *spec,
                     struct err *err)
{
    Caffe__FillerParameter constant = CAFFE__FILLER_PARAMETER__INIT;
    constant.value = fields->begin;
    int rc = shape_of_param(layer, fields, spec, err);
    return rc == OK ? layer_param(layer, setup, &spec->w, "filler",
                                  fields->filler ? fields->filler : &constant, err)
                    : rc;
}

static int check_second(const struct layer *layer, const char *message, size_t at, struct err *err)
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
            message, at, w->name);
    return OK;
}

static int given_of(const struct layer *layer, const struct repeat_fields *fields,
                    struct broadcast_spec *spec, struct err *err)
{
    const struct blob *w = layer->bottom[1].blob;
    char field[64];
    spec->w = w->shape;
    spec->w_layout = w->layout;
    if (fields->filler)
        return err_set(err, ERR_INPUT, "%s.filler: bottom \"%.64s\" replaces the parameter",
                       fields->message, w->name);
    if (fields->has_num_axes && fields->num_axes != (int32_t)w->shape.n)
        return err_set(err, ERR_INPUT, "%s.num_axes: %d, but bottom \"%.64s\" has %zu axes",
                       fields->message, (int)fields->num_axes, w->name, w->shape.n);
    if (w->shape.n == 0)
        return OK;
    snprintf(field, sizeof field, "%s.axis", fields->message);
    int rc = layer_axis_at(layer, field, fields->axis, &spec->axis, err);
    return rc == OK ? check_second(layer, fields->message, spec->axis, err) : rc;
}

int repeat_read(struct layer *layer, const struct setup *setup, const struct repeat_fields *fields,
                struct broadcast_spec *spec, struct err *err)
{
    int rc = layer_links_between(layer, 1, 2, 1, 1, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    spec->x = x->shape;
    spec->layout = x->layout;
    rc = layer->n_bottom == 1 ? learnt_of(layer, setup, fields, spec, err)
                              : given_of(layer, fields, spec, err);
    return rc == OK ? layer_top(layer, 0, &x->shape, x->layout, err) : rc;
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
