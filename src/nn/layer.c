#include "nn/layer.h"

#include "base/fault.h"

#include <math.h>
#include <stdio.h>

int layer_links(const struct layer *layer, size_t bottoms, size_t tops, struct err *err)
{
    if (layer->n_bottom != bottoms)
        return err_set(err, ERR_INPUT, "type \"%s\" takes %zu bottoms, not %zu", layer->type,
                       bottoms, layer->n_bottom);
    if (layer->n_top != tops)
        return err_set(err, ERR_INPUT, "type \"%s\" makes %zu tops, not %zu", layer->type, tops,
                       layer->n_top);
    return OK;
}

int layer_image(const struct layer *layer, const char *what, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n == 4)
        return OK;
    return err_set(err, ERR_INPUT, "bottom \"%.64s\" is %s; %s takes NxCxHxW", x->name,
                   shape_text(&x->shape, text, sizeof text), what);
}

int layer_matrix(const struct layer *layer, struct shape *matrix, struct err *err)
{
    const struct blob *x = layer->bottom[0].blob;
    char text[128];
    if (x->shape.n < 2 || shape_count_from(&x->shape, 2) != 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "bottom \"%.64s\" is %s; type \"%s\" takes NxC or NxCx1x1", x->name,
                       shape_text(&x->shape, text, sizeof text), layer->type);
    *matrix = (struct shape){2, {x->shape.dim[0], x->shape.dim[1]}};
    return OK;
}

int layer_axis(const struct layer *layer, const char *field, int32_t axis, struct err *err)
{
    size_t n = layer->bottom[0].blob->shape.n;
    int64_t at = axis < 0 ? (int64_t)axis + (int64_t)n : axis;
    if (at == 1)
        return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: %d is not supported, only 1", field, (int)axis);
}

int layer_top(struct layer *layer, size_t i, const struct shape *shape, enum layout layout,
              struct err *err)
{
    struct blob *y = layer->top[i];
    char text[128];
    size_t count = shape_count(shape);
    if (count == 0)
        return err_set(err, ERR_INPUT, "top \"%.64s\" would be %s: %s", y->name,
                       shape_text(shape, text, sizeof text), "empty or too large");
    y->shape = *shape;
    y->layout = layout;
    y->count = count;
    return OK;
}

static int multiplier(const char *field, float value, struct err *err)
{
    if (isfinite(value) && value >= 0.0f)
        return OK;
    return err_set(err, ERR_INPUT, "param.%s: %g is out of range, at least 0", field,
                   (double)value);
}

int layer_param(struct layer *layer, const struct setup *setup, const struct shape *shape,
                const char *field, const Caffe__FillerParameter *filler, struct err *err)
{
    PL_ASSERT(layer->n_at < LAYER_PARAMS_MAX);
    char text[128], name[SEGMENT_NAME_MAX];
    if (shape_count(shape) == 0)
        return err_set(err, ERR_INPUT, "parameters of %s are empty or too large",
                       shape_text(shape, text, sizeof text));
    struct layer_param *p = &layer->at[layer->n_at];
    int rc = filler_read(filler, shape, &p->filler, err);
    if (rc != OK) {
        err_prefix(err, "%s", field);
        return rc;
    }
    float lr_mult = 1.0f, decay_mult = 1.0f;
    if (layer->n_at < layer->param->n_param) {
        const Caffe__ParamSpec *spec = layer->param->param[layer->n_at];
        lr_mult = spec->lr_mult;
        decay_mult = spec->decay_mult;
        if ((rc = multiplier("lr_mult", lr_mult, err)) != OK ||
            (rc = multiplier("decay_mult", decay_mult, err)) != OK)
            return rc;
        if (spec->name && spec->name[0])
            return err_set(err, ERR_UNSUPPORTED,
                           "param.name: \"%.64s\": shared parameters are not supported",
                           spec->name);
    }
    snprintf(name, sizeof name, "%.*s.%zu", SEGMENT_NAME_MAX - 8, layer->name, layer->n_at);
    const struct segment *segment =
        segments_add(setup->segments, setup->arena, name, shape, lr_mult, decay_mult);
    if (!segment)
        return err_set(err, ERR_NOMEM, "out of memory for parameters of %s",
                       shape_text(shape, text, sizeof text));
    p->index = setup->segments->count - 1;
    p->offset = segment->offset;
    layer->n_at++;
    return OK;
}

int layer_state(const struct layer *layer, const struct setup *setup, size_t k,
                const struct shape *shape, size_t *offset, struct err *err)
{
    char text[128], name[SEGMENT_NAME_MAX];
    snprintf(name, sizeof name, "%.*s.%zu", SEGMENT_NAME_MAX - 8, layer->name, k);
    const struct segment *segment =
        segments_add(setup->states, setup->arena, name, shape, 0.0f, 0.0f);
    if (!segment)
        return err_set(err, ERR_NOMEM, "out of memory for state of %s",
                       shape_text(shape, text, sizeof text));
    *offset = segment->offset;
    return OK;
}

int layer_params_done(const struct layer *layer, struct err *err)
{
    if (layer->param->n_param <= layer->n_at)
        return OK;
    return err_set(err, ERR_INPUT, "%zu param entries, but %zu blobs of parameters",
                   layer->param->n_param, layer->n_at);
}

void layer_op_forward(struct layer *layer, const struct pass *pass)
{
    struct op_args args = {
        .x = layer->bottom[0].blob->at,
        .w = layer->n_at > 0 ? pass->x + layer->at[0].offset : NULL,
        .b = layer->n_at > 1 ? pass->x + layer->at[1].offset : NULL,
        .y = layer->top[0]->at,
    };
    layer->op->ops->forward(layer->op, &args);
}

void layer_op_backward(struct layer *layer, const struct pass *pass)
{
    struct op_args args = {
        .x = layer->bottom[0].blob->at,
        .w = layer->n_at > 0 ? pass->x + layer->at[0].offset : NULL,
        .b = layer->n_at > 1 ? pass->x + layer->at[1].offset : NULL,
        .y = layer->top[0]->at,
        .dy = layer->top[0]->d,
        .dx = layer->bottom[0].dx,
        .dw = layer->n_at > 0 ? pass->dx + layer->at[0].offset : NULL,
        .db = layer->n_at > 1 ? pass->dx + layer->at[1].offset : NULL,
    };
    layer->op->ops->backward(layer->op, &args);
}
