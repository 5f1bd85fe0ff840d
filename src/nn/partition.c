#include "nn/partition.h"

#include "base/fault.h"
#include "nn/insert.h"
#include "nn/layers.h"

#include <string.h>

/* ---- the range ---- */

/* The first layer of that name, or with `last` the last one; n_layer: there is none. */
static size_t find_layer(const Caffe__NetParameter *param, const char *name, bool last)
{
    size_t found = param->n_layer;
    for (size_t i = 0; i < param->n_layer && (last || found == param->n_layer); i++)
        if (param->layer[i]->name && strcmp(param->layer[i]->name, name) == 0)
            found = i;
    return found;
}

static int find_end(const Caffe__NetParameter *param, const char *field, const char *name,
                    size_t *at, struct err *err)
{
    if (!name)
        return OK;
    *at = find_layer(param, name, strcmp(field, "slices_to") == 0);
    if (*at < param->n_layer)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: the net has no layer \"%.64s\"; `paceline model FILE --params` lists them",
                   field, name);
}

int partition_find_range(struct net *net, const Caffe__NetParameter *param,
                         const struct net_options *options, struct err *err)
{
    net->range = (struct file_range){0, SIZE_MAX};
    net->records = (struct range){0, net->N};
    int rc = find_end(param, "slices_from", options->slices_from, &net->range.from, err);
    if (rc == OK)
        rc = find_end(param, "slices_to", options->slices_to, &net->range.to, err);
    if (rc != OK)
        return rc;
    if (net->range.to < net->range.from)
        return err_set(err, ERR_INPUT,
                       "slices_to: layer \"%.64s\" is before \"%.64s\", slices_from",
                       options->slices_to, options->slices_from);
    bool few = options->slice.count > net->N;
    if (net->range.from > 0 && few && options->phase == PHASE_TRAIN)
        return err_set(err, ERR_INPUT,
                       "slices: %zu are more than the %zu records of a batch, of which each slice "
                       "needs one for the layers before \"%.64s\", slices_from; write a larger "
                       "batch",
                       options->slice.count, net->N, options->slices_from);
    net->divides_records = net->range.from > 0 && options->slice.count > 1 && !few;
    if (net->divides_records)
        net->records = slice_units(&options->slice, net->N);
    return OK;
}

void partition_place_layer(const struct net *net, size_t i, struct setup *setup)
{
    bool cut = i >= net->range.from && i <= net->range.to;
    setup->slice = cut ? setup->options->slice : (struct model_slice){SLICE_ALL, 1};
    setup->data_parallel = i < net->range.from && net->divides_records;
}

struct range net_own_records(const struct net *net, size_t count)
{
    struct range own = net->records;
    size_t end = own.from + own.len < count ? own.from + own.len : count;
    return (struct range){own.from, end > own.from ? end - own.from : 0};
}

double partition_slices_of(const struct net *net, const struct layer *layer)
{
    if (layer->data_parallel)
        return (double)net->N / (double)net->records.len;
    return layer_is_cut(layer) ? (double)layer->outputs / (double)layer->own.len : 1.0;
}

/* ---- the layers between ---- */

struct layer_between {
    struct layer layer;
    struct columns columns; /* the slice's part of all; the columns of records are one row */
    bool records;
};

static void take_forward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_between *self = (const struct layer_between *)layer;
    columns_get(&self->columns, layer->bottom[0].blob->at, layer->top[0]->at);
}

/* A batch may end before the slice's records, none of which are then computed. */
static void gather_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_between *self = (const struct layer_between *)layer;
    const struct blob *x = layer->bottom[0].blob;
    if (self->records && pass->batch->count <= self->columns.own.from)
        memset(x->at, 0, x->count * sizeof(float));
    columns_put(&self->columns, x->at, layer->top[0]->at);
}

static void gather_backward(struct layer *layer, const struct pass *pass)
{
    (void)pass;
    const struct layer_between *self = (const struct layer_between *)layer;
    columns_get(&self->columns, layer->top[0]->d, layer->bottom[0].dx);
}

/* No gradient passes: data have none. */
static const struct layer_ops take_ops = {
    .size = sizeof(struct layer_between),
    .forward = take_forward,
};

static const struct layer_ops gather_ops = {
    .size = sizeof(struct layer_between),
    .forward = gather_forward,
    .backward = gather_backward,
};

static bool is_gather(const struct layer *layer)
{
    return layer->ops == &gather_ops;
}

static struct columns columns_of_records(const struct net *net, const struct blob *x)
{
    return (struct columns){
        .rows = 1,
        .units = net->N,
        .each = x->count / x->shape.dim[0],
        .own = net->records,
    };
}

static int insert_meeting(struct net *net, struct layer *layer, size_t k,
                          const struct columns *columns, bool records, struct err *err)
{
    const struct blob *x = layer->bottom[k].blob;
    bool takes = layer->data_parallel;
    struct insertion between = {
        .ops = takes ? &take_ops : &gather_ops,
        .type = takes ? "Take" : "Gather",
        .copy = takes     ? "a part of the records"
                : records ? "all records"
                          : "all channels",
        .shape = x->shape,
        .dtype = x->dtype,
    };
    size_t *cut = &between.shape.dim[records ? 0 : x->unit_axis];
    *cut = takes ? net->records.len : *cut / columns->own.len * columns->units;
    PL_ASSERT(x->dtype == DTYPE_F32 && x->shape.n > 0 && !x->is_whole);
    int rc = insert_layer(net, layer, k, &between, err);
    if (rc != OK)
        return rc;
    struct layer_between *made = (struct layer_between *)layer->bottom[k].blob->maker;
    layer->bottom[k].blob->data_parallel = takes;
    if (!records) { /* where parts of rows repeat, so do rows */
        layer->bottom[k].blob->numbers = x->numbers;
        layer->bottom[k].blob->kinds = x->kinds;
    }
    made->columns = *columns;
    made->records = records;
    return OK;
}

/* May the layer have a part of the channels, and no more? Not where its values are a loss. */
static bool takes_part(const struct layer *layer, const struct setup *setup)
{
    const struct layer_ops *ops = layer->ops;
    return setup->slice.count > 1 && layer->n_bottom == 1 && layer->param->n_loss_weight == 0 &&
           layer->bottom[0].blob->unit_axis == 1 &&
           (ops->by_channel_for ? ops->by_channel_for(layer->param) : ops->by_channel);
}

int partition_bottoms(struct net *net, struct layer *layer, const struct setup *setup,
                      struct err *err)
{
    int rc = OK;
    layer->data_parallel =
        setup->data_parallel && slice_is_part(&setup->options->slice) && layer->n_bottom > 0;
    for (size_t k = 0; k < layer->n_bottom && rc == OK; k++) {
        const struct blob *x = layer->bottom[k].blob;
        if (x->data_parallel != layer->data_parallel) {
            const struct columns records = columns_of_records(net, x);
            rc = insert_meeting(net, layer, k, &records, true, err);
        } else if (x->units > 0 && takes_part(layer, setup)) {
            layer->by_channel = true;
            layer->outputs = x->units;
            layer->own = x->own;
        } else if (x->own.len < x->units) {
            const struct columns channels = layer_columns(x, false, x->unit_axis, x->units, x->own);
            rc = insert_meeting(net, layer, k, &channels, false, err);
        }
    }
    return rc;
}

static int check_parallel(struct net *net, struct layer *layer, struct err *err)
{
    bool judges = layer->ops->is_loss || layer->top_k > 0;
    for (size_t i = 0; i < layer->n_top; i++) {
        judges |= layer->top[i]->weight != 0.0f;
        layer->top[i]->data_parallel = layer->data_parallel;
    }
    if (judges)
        return err_set(err, ERR_UNSUPPORTED,
                       "slices: a loss or an Accuracy before the layers that slices share out has "
                       "a part of the records on each; let slices_from begin before it");
    net->parallel = (struct net_parallel){
        .floats = net->segments.total,
        .segments = net->segments.count,
        .states = net->states.total,
    };
    return OK;
}

int partition_finish_layer(struct net *net, struct layer *layer, const struct setup *setup,
                           struct err *err)
{
    if (setup->data_parallel)
        return check_parallel(net, layer, err);
    for (size_t i = 0; i < layer->n_top && layer->by_channel; i++) {
        layer->top[i]->units = layer->outputs;
        layer->top[i]->unit_axis = 1;
        layer->top[i]->own = layer->own;
    }
    for (size_t i = 0; i < layer->n_top; i++)
        if (layer->top[i]->weight != 0.0f && layer->shares_out && setup->slice.count > 1)
            return err_set(err, ERR_UNSUPPORTED,
                           "slices: loss_weight: each slice has a part of top \"%.64s\"; give it "
                           "to a layer behind, or end the range (slices_to) before",
                           layer->top[i]->name);
    return OK;
}

void partition_name_copies(struct net *net)
{
    for (size_t i = 0; i < net->n_blobs; i++)
        if (net->blob[i]->inserted && is_gather(net->blob[i]->maker))
            net->blob[i]->inserted = false;
}

/* ---- points ---- */

size_t partition_number(const struct layer *layer, size_t point)
{
    return LAYER_POINTS * layer->nth + point;
}

bool partition_forward(const struct layer *layer, struct net_point *point)
{
    const struct columns *c = &((const struct layer_between *)layer)->columns;
    if (!is_gather(layer))
        return false;
    *point = (struct net_point){
        .meeting = layer->awaited_by ? NET_GATHER_BEGINS : NET_GATHER,
        .number = partition_number(layer, POINT_TOP),
        .values = layer->top[0]->at,
        .rows = c->rows,
        .outputs = c->units,
        .each = c->each,
        .share = 1,
    };
    return true;
}

bool partition_sum(const struct layer *layer, size_t k, size_t number, struct net_point *point)
{
    const struct link *link = &layer->bottom[k];
    if (!link->dx)
        return false;
    *point = (struct net_point){
        .meeting = NET_SUM,
        .number = partition_number(layer, number),
        .values = link->dx,
        .rows = 1,
        .outputs = 1,
        .each = link->blob->count,
        .share = 1,
    };
    return true;
}

/* The gradient of a whole bottom has the contribution of this slice's outputs alone. */
bool partition_backward(const struct layer *layer, struct net_point *point)
{
    return layer_is_cut(layer) && !layer->by_channel &&
           partition_sum(layer, 0, POINT_BOTTOM, point);
}

static bool is_recurrent_part(const struct layer *layer)
{
    return layer_is_cut(layer) && layer->ops->forward_part;
}

static bool sums_bottom(const struct layer *layer)
{
    return layer_is_cut(layer) && !layer->by_channel && !layer->ops->backward_part &&
           layer->n_bottom == 1 && link_wants_gradient(layer, &layer->bottom[0]);
}

static bool is_reader(const struct layer *layer, const struct blob *blob)
{
    for (size_t k = 0; k < layer->n_bottom; k++)
        if (layer->bottom[k].blob == blob)
            return true;
    return false;
}

bool partition_sums_next(const struct layer *layer)
{
    const struct layer *next = layer->awaited_by;
    return sums_bottom(next) && next != layer->bottom[0].blob->maker;
}

/* Move it behind the layer that makes its values: layers that the file has between that one and the
 * reader may run during the gather. */
static void move_gather(struct net *net, struct layer *gather)
{
    size_t to = gather->bottom[0].blob->maker->nth + 1;
    for (size_t i = gather->nth; i > to; i--) {
        net->layer[i] = net->layer[i - 1];
        net->layer[i]->nth = i;
    }
    net->layer[to] = gather;
    gather->nth = to;
}

/* One meeting is under way at a time. NULL: nothing is computed until then. */
static struct layer *find_reader(const struct net *net, const struct layer *gather)
{
    bool computes = false;
    for (size_t i = gather->nth + 1; i < net->n_layers; i++) {
        struct layer *next = net->layer[i];
        if (is_gather(next) || is_reader(next, gather->top[0]) || is_recurrent_part(next))
            return computes ? next : NULL;
        computes |= next->products > 0;
    }
    return NULL;
}

void partition_hasten_gathers(struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (is_gather(net->layer[i]))
            move_gather(net, net->layer[i]);
    for (size_t i = 0; i < net->n_layers; i++)
        if (is_gather(net->layer[i]))
            net->layer[i]->awaited_by = find_reader(net, net->layer[i]);
}

/* Contributions to a gradient are added in the order of the layers, and one sum is under way at a
 * time. NULL: nothing is computed until then. */
static struct layer *find_awaiting(const struct net *net, const struct layer *layer)
{
    const struct blob *blob = layer->bottom[0].blob;
    bool computes = false;
    for (size_t i = layer->nth; i-- > 0;) {
        struct layer *next = net->layer[i];
        if (!next->runs_backward)
            continue;
        if (sums_bottom(next) && next != blob->maker)
            return next;
        if (next == blob->maker || is_reader(next, blob) || is_recurrent_part(next))
            return computes ? next : NULL;
        computes |= next->products > 0;
    }
    PL_ASSERT(!"a gradient has a reader");
    return NULL;
}

void partition_await_sums(struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (sums_bottom(net->layer[i]))
            net->layer[i]->awaited_by = find_awaiting(net, net->layer[i]);
}

size_t net_points(const struct net *net)
{
    return slice_is_part(&net->slice) ? LAYER_POINTS * net->n_layers + 2 : 0;
}

struct net_parallel net_parallel(const struct net *net)
{
    return slice_is_part(&net->slice) ? net->parallel : (struct net_parallel){0};
}

size_t net_common(const struct net *net)
{
    const struct segments *whole = net_whole_segments(net);
    size_t n = 0;
    for (size_t i = net_parallel(net).segments; slice_is_part(&net->slice) && i < whole->count; i++)
        n += whole->at[i].units == 0 ? whole->at[i].len : 0;
    return n;
}

bool net_ends_with_sum(const struct net *net, struct vec *dx, struct net_point *point)
{
    size_t n = net_parallel(net).floats;
    PL_ASSERT(dx->n >= n);
    *point = (struct net_point){
        .meeting = NET_SUM,
        .number = LAYER_POINTS * net->n_layers,
        .values = dx->at,
        .rows = 1,
        .outputs = 1,
        .each = n,
    };
    return n > 0;
}

static void keep_own_state(const struct net *net, const struct segment *segment, struct vec *s)
{
    const struct range all = {segment->offset, segment->len};
    struct range own = all;
    if (segment->offset < net->parallel.states) {
        vec_scale(s, 1.0f / (float)net->slice.count, all);
        return;
    }
    if (segment->units > 0) {
        own = slice_of_block(&net->slice, segment, 0);
        own.from += all.from;
    } else if (net->slice.index > 0) {
        own.len = 0;
    }
    vec_fill(s, (struct range){all.from, own.from - all.from}, 0);
    vec_fill(s, (struct range){own.from + own.len, all.from + all.len - own.from - own.len}, 0);
}

void net_keep_own_carried(const struct net *net, float *row, bool is_own)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->layer[i]->ops->keep_own_carried)
            net->layer[i]->ops->keep_own_carried(net->layer[i], &net->slice, row, is_own);
}

void net_keep_own_states(const struct net *net, struct vec *s)
{
    for (size_t i = 0; i < net->states.count; i++)
        keep_own_state(net, &net->states.at[i], s);
}
