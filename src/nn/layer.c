#include "nn/layer.h"

#include "base/fault.h"
#include "nn/fold.h"
#include "nn/share.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static int check_range(const struct layer *layer, const char *verb, const char *what, size_t n,
                       size_t min, size_t max, struct err *err)
{
    if (n < min)
        return err_set(err, ERR_INPUT, "type \"%s\" %s %zu %s at least, not %zu", layer->type, verb,
                       min, what, n);
    if (max > 0 && n > max)
        return err_set(err, ERR_INPUT, "type \"%s\" %s %zu %s at most, not %zu", layer->type, verb,
                       max, what, n);
    return OK;
}

int layer_links_between(const struct layer *layer, size_t bottoms_min, size_t bottoms_max,
                        size_t tops_min, size_t tops_max, struct err *err)
{
    int rc = check_range(layer, "takes", "bottoms", layer->n_bottom, bottoms_min, bottoms_max, err);
    return rc == OK ? check_range(layer, "makes", "tops", layer->n_top, tops_min, tops_max, err)
                    : rc;
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

int layer_axis(const struct layer *layer, const char *field, int32_t axis, struct err *err)
{
    size_t n = layer->bottom[0].blob->shape.n;
    int64_t at = axis < 0 ? (int64_t)axis + (int64_t)n : axis;
    if (at == 1)
        return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: %d is not supported, only 1", field, (int)axis);
}

int layer_axis_at(const struct layer *layer, const char *field, int32_t axis, size_t *at,
                  struct err *err)
{
    const struct shape *x = &layer->bottom[0].blob->shape;
    int64_t n = (int64_t)x->n, i = axis < 0 ? axis + n : axis;
    char text[128];
    if (i < 0 || i >= n)
        return err_set(err, ERR_INPUT, "%s: %d is no axis of bottom \"%.64s\", %s", field,
                       (int)axis, layer->bottom[0].blob->name, shape_text(x, text, sizeof text));
    *at = (size_t)i;
    return OK;
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
    y->dtype = shape->n == 4 ? layer->dtype : DTYPE_F32;
    y->count = count;
    return OK;
}

static int check_multiplier(const char *field, float value, struct err *err)
{
    if (isfinite(value) && value >= 0.0f)
        return OK;
    return err_set(err, ERR_INPUT, "param.%s: %g is out of range, at least 0", field,
                   (double)value);
}

/* The multipliers of a `param` entry, which may be missing. */
static int check_spec(const Caffe__ParamSpec *spec, struct err *err)
{
    int rc = check_multiplier("lr_mult", spec->lr_mult, err);
    return rc == OK ? check_multiplier("decay_mult", spec->decay_mult, err) : rc;
}

static bool is_named(const Caffe__ParamSpec *spec)
{
    return spec->name && spec->name[0];
}

struct columns layer_columns(const struct blob *blob, bool is_whole, size_t axis, size_t units,
                             struct range own)
{
    bool plain = blob->layout == LAYOUT_PLAIN;
    size_t pixels = plain ? shape_count_from(&blob->shape, axis + 1) : 1;
    size_t parts = is_whole ? units : own.len, each = blob->shape.dim[axis] / parts * pixels;
    PL_ASSERT(plain || axis == 1);
    return (struct columns){
        .rows = blob->count / (parts * each), .units = units, .each = each, .own = own};
}

int layer_share_units(struct layer *layer, const struct setup *setup, size_t units,
                      const char *what, struct err *err)
{
    const struct model_slice *slice = &setup->slice;
    layer->shares_out = true;
    if (slice->count > units)
        return err_set(err, ERR_INPUT,
                       "slices: %zu are more than its %zu %s, of which each slice needs one; "
                       "write at most that many",
                       slice->count, units, what);
    if (slice->count <= 1)
        return OK;
    layer->outputs = units;
    layer->own = slice_units(slice, units);
    PL_ASSERT(!layer_is_cut(layer) || layer->dtype == DTYPE_F32); /* a job has no slices in bf16 */
    return OK;
}

int layer_share_out(struct layer *layer, const struct setup *setup, size_t axis, size_t units,
                    const char *what, struct err *err)
{
    struct blob *top = layer->top[0];
    int rc = layer_share_units(layer, setup, units, what, err);
    if (rc != OK || layer->outputs == 0)
        return rc;
    top->units = units;
    top->unit_axis = axis;
    top->own = layer->own;
    top->shape.dim[axis] = layer_own_of(layer, top->shape.dim[axis]);
    top->count = shape_count(&top->shape);
    return OK;
}

int layer_share_in(struct layer *layer, const struct setup *setup, struct err *err)
{
    if (!layer_is_cut(layer))
        return OK;
    layer->group = layer_columns(layer->bottom[0].blob, true, 1, layer->outputs, layer->own);
    size_t floats = columns_floats(&layer->group);
    layer->inputs = arena_array(setup->arena, floats, float);
    layer->inputs_dx = arena_array(setup->arena, floats, float);
    if (!layer->inputs || !layer->inputs_dx)
        return err_set(err, ERR_NOMEM, "out of memory for %zu floats of a slice", floats);
    layer->buffer_bytes += 2 * floats * sizeof(float);
    return OK;
}

/* The other inputs have no gradient from this slice's outputs. */
static void put_inputs(const struct layer *layer, float *dx)
{
    memset(dx, 0, layer->bottom[0].blob->count * sizeof *dx);
    columns_put(&layer->group, layer->inputs_dx, dx);
}

/* The net's part of a parameter and the whole of it, of which one is declared. */
static struct shape part_of(const struct layer *layer, const struct shape *declared)
{
    struct shape part = *declared;
    size_t axis = layer->by_column && part.n > 1 ? 1 : 0;
    if (!layer->by_channel && part.n > 0)
        part.dim[axis] = layer_own_of(layer, part.dim[axis]);
    return part;
}

static struct shape whole_of(const struct layer *layer, const struct shape *declared)
{
    struct shape whole = *declared;
    if (layer->by_channel && layer_is_cut(layer) && whole.n > 0)
        whole.dim[0] = whole.dim[0] / layer->own.len * layer->outputs;
    return whole;
}

/* In the table of the whole model slices have parts of the segment. */
static void share_segment(const struct layer *layer, struct segment *whole)
{
    const struct shape *shape = &whole->shape;
    whole->units = layer->outputs;
    whole->blocks = whole->units == 0                  ? 1
                    : layer->by_gate                   ? shape->dim[0] / whole->units
                    : layer->by_column && shape->n > 1 ? shape->dim[0]
                                                       : 1;
}

/* A segment of its own. */
static int own_parameter(struct layer *layer, const struct setup *setup, const struct shape *shape,
                         const Caffe__ParamSpec *spec, struct err *err)
{
    struct layer_param *p = &layer->at[layer->n_at];
    char text[128], name[SEGMENT_NAME_MAX];
    snprintf(name, sizeof name, "%.*s.%zu", SEGMENT_NAME_MAX - 8, layer->name, layer->n_at);
    const struct shape part = part_of(layer, shape), all = whole_of(layer, shape);
    struct segment *segment =
        segments_add(setup->segments, setup->arena, name, &part, spec->lr_mult, spec->decay_mult);
    struct segment *whole = setup->whole ? segments_add(setup->whole, setup->arena, name, &all,
                                                        spec->lr_mult, spec->decay_mult)
                                         : segment;
    if (!segment || !whole)
        return err_set(err, ERR_NOMEM, "out of memory for parameters of %s",
                       shape_text(shape, text, sizeof text));
    share_segment(layer, whole);
    p->index = setup->segments->count - 1;
    p->offset = segment->offset;
    return is_named(spec)
               ? shares_add(setup->shares, setup->arena, spec, layer->name, p->index, err)
               : OK;
}

/* The segment of the layer that used the name first. */
static int join_shared(struct layer *layer, const struct setup *setup, struct share *share,
                       const struct shape *shape, const Caffe__ParamSpec *spec, struct err *err)
{
    struct layer_param *p = &layer->at[layer->n_at];
    struct segment *segment = &setup->segments->at[share->segment];
    if (setup->options->slice.count > 1 && !setup->data_parallel)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: weights that layers share by name (\"%.64s\") are not supported",
                       spec->name);
    p->index = share->segment;
    p->offset = segment->offset;
    p->shared = true;
    return shares_join(share, segment, spec, shape, err);
}

/* The caller makes x and, in training, dx: the net may use the rest of the limit. */
static int leave_room(const struct setup *setup, struct err *err)
{
    size_t limit = setup->options->memory_limit, size = sizeof(float);
    size *= setup->options->phase == PHASE_TRAIN ? 2 : 1;
    if (limit == 0)
        return OK;
    if (setup->segments->total >= limit / size)
        return err_set(err, ERR_NOMEM, "out of memory for parameters");
    arena_limit(setup->arena, limit - setup->segments->total * size);
    return OK;
}

int layer_param(struct layer *layer, const struct setup *setup, const struct shape *shape,
                const char *field, const Caffe__FillerParameter *filler, struct err *err)
{
    PL_ASSERT(layer->n_at < LAYER_PARAMS_MAX);
    if (setup->slice.count > 1 && !layer->shares_out && !layer->by_channel &&
        !layer->ops->small_params)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: weights of type \"%s\" cannot be shared out among slices; those of "
                       "InnerProduct, Convolution, Embed and recurrent layers can",
                       layer->type);
    static const Caffe__ParamSpec none = CAFFE__PARAM_SPEC__INIT;
    const Caffe__ParamSpec *spec = &none;
    char text[128];
    if (layer->n_at < layer->param->n_param)
        spec = layer->param->param[layer->n_at];
    if (shape_count(shape) == 0)
        return err_set(err, ERR_INPUT, "parameters of %s are empty or too large",
                       shape_text(shape, text, sizeof text));
    const struct shape whole = whole_of(layer, shape);
    int rc = filler_read(filler, &whole, &layer->at[layer->n_at].filler, err);
    if (rc != OK) {
        err_prefix(err, "%s", field);
        return rc;
    }
    if ((rc = check_spec(spec, err)) != OK)
        return rc;
    struct share *share = is_named(spec) ? shares_find(setup->shares, spec->name) : NULL;
    rc = share ? join_shared(layer, setup, share, shape, spec, err)
               : own_parameter(layer, setup, shape, spec, err);
    if (rc != OK)
        return rc;
    layer->n_at++;
    return leave_room(setup, err);
}

int layer_state(const struct layer *layer, const struct setup *setup, size_t k,
                const struct shape *shape, bool by_channel, size_t *offset, struct err *err)
{
    char text[128], name[SEGMENT_NAME_MAX];
    bool is_part = by_channel && layer->by_channel;
    if (setup->slice.count > 1 && !layer->ops->small_params)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: the state of type \"%s\" cannot be shared out among slices",
                       layer->type);
    snprintf(name, sizeof name, "%.*s.%zu", SEGMENT_NAME_MAX - 8, layer->name, k);
    const struct shape whole = is_part ? whole_of(layer, shape) : *shape;
    struct segment *segment = segments_add(setup->states, setup->arena, name, &whole, 0.0f, 0.0f);
    if (!segment)
        return err_set(err, ERR_NOMEM, "out of memory for state of %s",
                       shape_text(&whole, text, sizeof text));
    segment->units = is_part ? layer->outputs : 0;
    *offset = segment->offset + slice_of_block(&setup->slice, segment, 0).from;
    return OK;
}

int layer_params_done(const struct layer *layer, struct err *err)
{
    if (layer->param->n_param <= layer->n_at)
        return OK;
    return err_set(err, ERR_INPUT, "%zu param entries, but %zu blobs of parameters",
                   layer->param->n_param, layer->n_at);
}

void layer_loss(struct layer *layer, const struct pass *pass, double sum)
{
    struct blob *top = layer->top[0];
    *(float *)top->at = (float)(sum / (double)pass->batch->count);
    if (top->weight != 0.0f)
        pass->result->loss += (double)top->weight * sum;
}

int layer_folds(struct layer *layer, const struct setup *setup, size_t n, bool *bias,
                struct err *err)
{
    if (setup->options->phase != PHASE_TEST || setup->options->keep_all || layer_is_cut(layer))
        return OK;
    layer->folds = true;
    if (!*bias && !(layer->zeros = arena_array(setup->arena, n, float)))
        return err_set(err, ERR_NOMEM, "out of memory for a bias of %zu", n);
    *bias = true;
    return OK;
}

void layer_params(const struct layer *layer, const struct pass *pass, struct op_args *args)
{
    args->w = layer->n_at > 0 ? pass->x + layer->at[0].offset : NULL;
    args->b = layer->n_at > 1 ? pass->x + layer->at[1].offset : layer->zeros;
    if (layer->fold)
        fold_make(layer, pass, layer->folded_at, args);
}

void layer_op_forward(struct layer *layer, const struct pass *pass)
{
    struct op_args args = {
        .x = layer->bottom[0].blob->at,
        .y = layer->top[0]->at,
    };
    layer_params(layer, pass, &args);
    if (layer->inputs) {
        columns_get(&layer->group, args.x, layer->inputs);
        args.x = layer->inputs;
    }
    layer->op->ops->forward(layer->op, &args);
}

void layer_pick_gradients(const struct pass *pass, struct op_args *args)
{
    if (pass->gradients == GRADIENTS_BOTTOMS)
        args->dw = args->db = NULL;
    else if (pass->gradients == GRADIENTS_PARAMS)
        args->dx = NULL;
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
    layer_pick_gradients(pass, &args);
    if (layer->inputs) {
        args.x = layer->inputs; /* as forward has left them */
        args.dx = args.dx ? layer->inputs_dx : NULL;
    }
    layer->op->ops->backward(layer->op, &args);
    if (args.dx && layer->inputs)
        put_inputs(layer, layer->bottom[0].dx);
}
