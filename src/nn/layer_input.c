/* Data enters the net: tops are the records' values and, second, their labels; where records have
 * fields, tops are the fields of their names, and a second top without one is the label. All of
 * Caffe's data layers become this one: a net computes on its caller's batches. The data folder
 * reads and transforms records: transform_param, data_param, image_data_param, hdf5_data_param and
 * the rest of memory_data_param are accepted here if the type has them, and read there. A stated
 * shape is that of a record: its first dimension, and each batch_size, are ignored. */
#include "base/fault.h"
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/bf16.h"
#include "tensor/record_fields.h"

#include <stdio.h>
#include <string.h>

/* The values of a top: a range of each record's. */
struct part {
    size_t from, floats, record_floats;
    bool same; /* the range and the top have the same layout in memory */
    bool is_label;
};

struct layer_input {
    struct layer layer;
    const struct op_scratch *scratch; /* room to gather and reorder values */
    struct part part[FIELDS_MAX + 1]; /* of each top */
};

static const char *const types[] = {"Data", "HDF5Data", "ImageData", "Input", "MemoryData", NULL};
static const char *const messages[] = {"data_param",  "hdf5_data_param", "image_data_param",
                                       "input_param", "transform_param", "memory_data_param",
                                       NULL};

/* Each type has its own message, and all but two have transform_param. */
static int check_messages(const struct layer *layer, struct err *err)
{
    const Caffe__LayerParameter *p = layer->param;
    const char *type = layer->type;
    bool maps = strcmp(type, "Input") != 0 && strcmp(type, "HDF5Data") != 0;
    const struct {
        const char *field;
        bool given, wanted;
    } cases[] = {
        {"data_param", p->data_param, strcmp(type, "Data") == 0},
        {"hdf5_data_param", p->hdf5_data_param, strcmp(type, "HDF5Data") == 0},
        {"image_data_param", p->image_data_param, strcmp(type, "ImageData") == 0},
        {"input_param", p->input_param, strcmp(type, "Input") == 0},
        {"memory_data_param", p->memory_data_param, strcmp(type, "MemoryData") == 0},
        {"transform_param", p->transform_param, maps},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].given && !cases[i].wanted)
            return err_set(err, ERR_UNSUPPORTED, "%s means nothing to type \"%s\"", cases[i].field,
                           type);
    return OK;
}

/* MemoryData states all three, or leaves them to the data. */
static int stated_by_memory(const Caffe__MemoryDataParameter *p, struct shape *out, struct err *err)
{
    *out = (struct shape){0};
    if (!p->has_channels && !p->has_height && !p->has_width)
        return OK;
    *out = (struct shape){3, {p->channels, p->height, p->width}};
    if (p->channels == 0 || p->height == 0 || p->width == 0)
        return err_set(err, ERR_INPUT,
                       "memory_data_param: channels, height and width must all be positive");
    return OK;
}

/* The shape of one record that the message states for top i; n = 0 when it states none. */
static int read_shape(const struct layer *layer, size_t i, struct shape *out, struct err *err)
{
    const Caffe__InputParameter *param = layer->param->input_param;
    *out = (struct shape){0};
    if (layer->param->memory_data_param && i == 0)
        return stated_by_memory(layer->param->memory_data_param, out, err);
    if (!param || param->n_shape == 0)
        return OK;
    if (param->n_shape != 1 && param->n_shape != layer->n_top)
        return err_set(err, ERR_INPUT, "input_param: %zu shapes for %zu tops", param->n_shape,
                       layer->n_top);
    const Caffe__BlobShape *shape = param->shape[param->n_shape == 1 ? 0 : i];
    if (shape->n_dim < 1 || shape->n_dim > SHAPE_DIMS_MAX)
        return err_set(err, ERR_INPUT, "input_param: %zu dimensions, 1 to %d allowed", shape->n_dim,
                       SHAPE_DIMS_MAX);
    for (size_t k = 0; k < shape->n_dim; k++)
        if (shape->dim[k] <= 0 || shape->dim[k] > INT32_MAX)
            return err_set(err, ERR_INPUT, "input_param: dimension %lld is out of range",
                           (long long)shape->dim[k]);
    out->n = shape->n_dim - 1;
    for (size_t k = 0; k < out->n; k++)
        out->dim[k] = (size_t)shape->dim[k + 1];
    return OK;
}

/* A batch of records. */
static int add_batch(const struct shape *record, size_t N, struct shape *out, struct err *err)
{
    if (record->n + 1 > SHAPE_DIMS_MAX)
        return err_set(err, ERR_INPUT, "records have %zu dimensions, at most %d", record->n,
                       SHAPE_DIMS_MAX - 1);
    *out = (struct shape){.n = record->n + 1, .dim = {N}};
    memcpy(out->dim + 1, record->dim, record->n * sizeof record->dim[0]);
    return OK;
}

/* The shape of top i's values in a record: `given` by the data, and stated by the message. */
static int record_shape(const struct layer *layer, size_t i, const struct shape *given,
                        struct shape *record, struct err *err)
{
    char a[128], b[128];
    int rc = read_shape(layer, i, record, err);
    if (rc != OK)
        return rc;
    if (record->n == 0)
        *record = *given;
    if (record->n == 0)
        return err_set(err, ERR_INPUT, "no shape is stated, and no data to take it from");
    if (given->n > 0 && shape_count(given) != shape_count(record))
        return err_set(err, ERR_INPUT, "records are %s, but the data's are %s",
                       shape_text(record, a, sizeof a), shape_text(given, b, sizeof b));
    return OK;
}

/* Top i has the values of `field`; NULL: the whole record. */
static int setup_values(struct layer *layer, size_t i, const struct field *field,
                        const struct setup *setup, struct err *err)
{
    struct layer_input *self = (struct layer_input *)layer;
    struct blob *top = layer->top[i];
    struct part *part = &self->part[i];
    struct shape record, shape;
    int rc = record_shape(layer, i, field ? &field->shape : &setup->options->input, &record, err);
    if (rc == OK)
        rc = add_batch(&record, setup->options->batch, &shape, err);
    if (rc != OK)
        return rc;
    enum layout layout = shape.n == 4 ? setup->options->kernels->image_layout : LAYOUT_PLAIN;
    rc = layer_top(layer, i, &shape, layout, err);
    if (rc != OK)
        return rc;
    if (field && field->is_integer)
        top->dtype = DTYPE_F32;
    top->is_numbers = field && field->is_integer;
    top->is_borrowed = !field;
    /* One channel, or one pixel: both layouts are the same memory. */
    *part = (struct part){
        .from = field ? field->from : 0,
        .floats = shape_count(&record),
        .record_floats = shape_count(field ? &setup->options->input : &record),
        .same = layout == LAYOUT_PLAIN || shape.dim[1] == 1 ||
                shape_count_from(&shape, 1) == shape.dim[1],
    };
    layer->reorders |= !part->same;
    self->scratch = setup->scratch;
    size_t gathers = field ? 1 : 0, rounds = top->dtype == DTYPE_BF16 && !part->same ? 1 : 0;
    size_t bytes = (gathers + rounds) * top->count * sizeof(float);
    setup->scratch->bytes = bytes > setup->scratch->bytes ? bytes : setup->scratch->bytes;
    return OK;
}

static int setup_labels(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct blob *labels = layer->top[1];
    struct shape record = {0}, shape = {1, {setup->options->batch}};
    const Caffe__InputParameter *param = layer->param->input_param;
    if (param && param->n_shape > 0) { /* a single one is that of all tops */
        int rc = read_shape(layer, 1, &record, err);
        if (rc != OK)
            return rc;
    }
    char text[128];
    if (shape_count(&record) != 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "label \"%.64s\" of a record is %s; one class number is supported",
                       labels->name, shape_text(&record, text, sizeof text));
    labels->is_labels = true;
    ((struct layer_input *)layer)->part[1].is_label = true;
    return layer_top(layer, 1, &shape, LAYOUT_PLAIN, err);
}

static const struct field *find_field(const struct fields *fields, const char *name)
{
    for (size_t i = 0; fields && i < fields->n; i++)
        if (strcmp(fields->field[i].name, name) == 0)
            return &fields->field[i];
    return NULL;
}

static int refuse_top(const struct blob *top, const struct fields *fields, struct err *err)
{
    char names[256] = "";
    for (size_t i = 0; i < fields->n && strlen(names) + FIELD_NAME_MAX + 2 < sizeof names; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 fields->field[i].name);
    return err_set(err, ERR_INPUT, "top \"%.64s\" is no field of the records; they have: %s",
                   top->name, names);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct fields *fields = setup->options->fields;
    bool has_fields = fields && fields->n > 0;
    size_t most = has_fields ? fields->n + 1 : 2;
    if (layer->n_bottom > 0 || layer->n_top < 1 || layer->n_top > most)
        return err_set(err, ERR_INPUT,
                       "type \"%s\" takes no bottom and makes data and, if wanted, a label",
                       layer->type);
    int rc = check_messages(layer, err);
    for (size_t i = 0; rc == OK && i < layer->n_top; i++) {
        const struct field *field = find_field(fields, layer->top[i]->name);
        if (!field && i == 1)
            rc = setup_labels(layer, setup, err);
        else if (!field && has_fields)
            rc = refuse_top(layer->top[i], fields, err);
        else
            rc = setup_values(layer, i, field, setup, err);
    }
    return rc;
}

/* Not finite: all bits of the exponent are set. Written so that it vectorises. */
static bool is_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

static void order_values(const struct blob *y, size_t count, const float *from, float *to)
{
    struct shape shape = y->shape;
    shape.dim[0] = count;
    kernels_reorder(&shape, LAYOUT_PLAIN, from, y->layout, to);
}

/* A part of each record, one after another. */
static void gather_rows(const struct part *part, const struct net_batch *batch, float *to)
{
    for (size_t i = 0; i < batch->count; i++)
        memcpy(to + i * part->floats, batch->data + i * part->record_floats + part->from,
               part->floats * sizeof *to);
}

static void forward_values(const struct layer_input *self, size_t top,
                           const struct net_batch *batch)
{
    const struct part *part = &self->part[top];
    struct blob *y = self->layer.top[top];
    size_t N = y->shape.dim[0], n = batch->count * part->floats;
    const float *x = batch->data;
    float *room = self->scratch->at;
    PL_ASSERT(x);
    if (!y->is_borrowed) {
        gather_rows(part, batch, room);
        x = room;
        room += y->count;
    }
    PL_ASSERT(is_finite(x, n));
    if (y->dtype == DTYPE_F32 && y->is_borrowed && part->same && batch->count == N) {
        y->at = (void *)(uintptr_t)x; /* read only from here on: is_borrowed */
        return;
    }
    y->at = y->room; /* another layout is needed, or to be filled up */
    if (y->dtype == DTYPE_F32 && !part->same) {
        order_values(y, batch->count, x, y->at);
    } else if (y->dtype == DTYPE_F32) {
        memcpy(y->at, x, n * sizeof(float));
    } else {
        if (!part->same)
            order_values(y, batch->count, x, room);
        bf16_round(n, part->same ? x : room, y->at);
    }
    axes_clear_rest(y, batch->count, y->at);
}

static void forward_labels(const struct blob *labels, const struct net_batch *batch)
{
    float *label = labels->at;
    PL_ASSERT(batch->labels || labels->users == 0);
    for (size_t i = 0; i < labels->count; i++)
        label[i] = batch->labels && i < batch->count ? (float)batch->labels[i] : 0.0f;
}

static void input_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_input *self = (const struct layer_input *)layer;
    for (size_t i = 0; i < layer->n_top; i++)
        if (self->part[i].is_label)
            forward_labels(layer->top[i], pass->batch);
        else
            forward_values(self, i, pass->batch);
}

const struct layer_ops layer_input = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_input),
    .takes = TAKES_BF16,
    .setup = setup,
    .forward = input_forward,
};
