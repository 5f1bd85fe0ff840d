/* Flatten: the axes from `axis` to `end_axis` become one. */
#include "nn/axes.h"
#include "nn/layers.h"
#include "nn/recast.h"

static const char *const types[] = {"Flatten", NULL};
static const char *const messages[] = {"flatten_param", NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    Caffe__FlattenParameter none = CAFFE__FLATTEN_PARAMETER__INIT;
    const Caffe__FlattenParameter *p = layer->param->flatten_param;
    p = p ? p : &none;
    size_t first, last;
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK)
        rc = axes_in_record(layer, "flatten_param.axis", p->axis, &first, err);
    if (rc == OK)
        rc = axes_in_record(layer, "flatten_param.end_axis", p->end_axis, &last, err);
    if (rc != OK)
        return rc;
    if (last < first)
        return err_set(err, ERR_INPUT, "flatten_param.end_axis: %zu is before axis %zu", last,
                       first);
    const struct shape *x = &layer->bottom[0].blob->shape;
    struct shape y = {.n = first + 1};
    for (size_t i = 0; i < first; i++)
        y.dim[i] = x->dim[i];
    y.dim[first] = 1;
    for (size_t i = first; i <= last; i++)
        y.dim[first] *= x->dim[i];
    for (size_t i = last + 1; i < x->n; i++)
        y.dim[y.n++] = x->dim[i];
    return recast_layer(layer, setup, &y, err);
}

const struct layer_ops layer_flatten = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_recast),
    .setup = setup,
    .forward = recast_layer_forward,
    .backward = recast_layer_backward,
    .takes_whole = true,
};
