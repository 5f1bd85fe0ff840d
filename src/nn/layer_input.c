/* Data enters the net: tops are the records' values and, second, their labels. All of Caffe's data
 * layers become this one: a net computes on its caller's batches. The data folder reads and
 * transforms records: transform_param, data_param, image_data_param, hdf5_data_param and the rest
 * of memory_data_param are accepted here if the type has them, and read there. A stated shape is
 * that of a record: its first dimension, and each batch_size, are ignored. */
#include "base/fault.h"
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/bf16.h"

#include <string.h>

struct layer_input {
    struct layer layer;
    const struct op_scratch *scratch; /* room to reorder values that are to be rounded */
    bool same;                        /* the input and the top have the same layout in memory */
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

static int setup_data(struct layer *layer, const struct setup *setup, struct err *err)
{
    struct layer_input *self = (struct layer_input *)layer;
    const struct shape *given = &setup->options->input;
    struct shape record, shape;
    int rc = read_shape(layer, 0, &record, err);
    if (rc != OK)
        return rc;
    if (record.n == 0)
        record = *given;
    char a[128], b[128];
    if (record.n == 0)
        return err_set(err, ERR_INPUT, "no shape is stated, and no data to take it from");
    if (given->n > 0 && shape_count(given) != shape_count(&record))
        return err_set(err, ERR_INPUT, "records are %s, but the data's are %s",
                       shape_text(&record, a, sizeof a), shape_text(given, b, sizeof b));
    rc = add_batch(&record, setup->options->batch, &shape, err);
    if (rc != OK)
        return rc;
    enum layout layout = shape.n == 4 ? setup->options->kernels->image_layout : LAYOUT_PLAIN;
    rc = layer_top(layer, 0, &shape, layout, err);
    if (rc != OK)
        return rc;
    layer->top[0]->is_borrowed = true;
    /* One channel, or one pixel: both layouts are the same memory. */
    self->same =
        layout == LAYOUT_PLAIN || shape.dim[1] == 1 || shape_count_from(&shape, 1) == shape.dim[1];
    layer->reorders = !self->same;
    self->scratch = setup->scratch;
    if (layer->top[0]->dtype == DTYPE_BF16 && !self->same)
        setup->scratch->bytes = layer->top[0]->count * sizeof(float);
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
    return layer_top(layer, 1, &shape, LAYOUT_PLAIN, err);
}

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    if (layer->n_bottom > 0 || layer->n_top < 1 || layer->n_top > 2)
        return err_set(err, ERR_INPUT,
                       "type \"%s\" takes no bottom and makes data and, if wanted, a label",
                       layer->type);
    int rc = check_messages(layer, err);
    if (rc == OK)
        rc = setup_data(layer, setup, err);
    if (rc == OK && layer->n_top > 1)
        rc = setup_labels(layer, setup, err);
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

static void order_values(const struct layer_input *self, const struct net_batch *batch, float *to)
{
    const struct blob *y = self->layer.top[0];
    struct shape shape = y->shape;
    shape.dim[0] = batch->count;
    kernels_reorder(&shape, LAYOUT_PLAIN, batch->data, y->layout, to);
}

static void round_data(struct layer_input *self, const struct net_batch *batch, size_t n)
{
    struct blob *y = self->layer.top[0];
    if (!self->same)
        order_values(self, batch, self->scratch->at);
    bf16_round(n, self->same ? batch->data : self->scratch->at, y->at);
    axes_clear_rest(y, batch->count, y->at);
}

static void forward_data(struct layer_input *self, const struct net_batch *batch)
{
    struct blob *y = self->layer.top[0];
    size_t N = y->shape.dim[0], floats = y->count / N, n = batch->count * floats;
    PL_ASSERT(batch->data && is_finite(batch->data, n));
    if (y->dtype == DTYPE_BF16) {
        round_data(self, batch, n);
        return;
    }
    if (self->same && batch->count == N) {
        y->at = (void *)(uintptr_t)batch->data; /* read only from here on: is_borrowed */
        return;
    }
    y->at = y->room; /* another layout is needed, or to be filled up */
    if (self->same)
        memcpy(y->at, batch->data, n * sizeof(float));
    else
        order_values(self, batch, y->at);
    axes_clear_rest(y, batch->count, y->at);
}

static void input_forward(struct layer *layer, const struct pass *pass)
{
    const struct net_batch *batch = pass->batch;
    forward_data((struct layer_input *)layer, batch);
    if (layer->n_top < 2)
        return;
    struct blob *labels = layer->top[1];
    float *label = labels->at;
    PL_ASSERT(batch->labels || labels->users == 0);
    for (size_t i = 0; i < labels->count; i++)
        label[i] = batch->labels && i < batch->count ? (float)batch->labels[i] : 0.0f;
}

const struct layer_ops layer_input = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer_input),
    .takes = TAKES_BF16,
    .setup = setup,
    .forward = input_forward,
};
