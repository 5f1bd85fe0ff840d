#include "nn/net.h"

#include "base/fault.h"
#include "base/memory.h"
#include "nn/axes.h"
#include "nn/blocks.h"
#include "nn/cast.h"
#include "nn/fuse.h"
#include "nn/layers.h"
#include "nn/live_ranges.h"
#include "tensor/bf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double to_mebibytes(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0 * 1024.0);
}

static size_t parameters_of(const struct net *net, const struct layer *layer)
{
    size_t floats = 0;
    for (size_t k = 0; k < layer->n_at; k++)
        floats += layer->at[k].shared ? 0 : net->segments.at[layer->at[k].index].len;
    return floats * sizeof(float);
}

static size_t values_of(const struct layer *layer)
{
    size_t bytes = 0;
    for (size_t k = 0; k < layer->n_top; k++)
        bytes += layer->top[k]->count * dtype_size(layer->top[k]->dtype);
    return bytes;
}

/* Of the layers that were reached, the one that takes most. */
static void name_largest(const struct net *net, const struct net_options *options, struct err *err)
{
    const struct layer *largest = NULL;
    size_t most = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        size_t bytes = parameters_of(net, net->layer[i]) + values_of(net->layer[i]);
        if (bytes >= most) {
            most = bytes;
            largest = net->layer[i];
        }
    }
    const struct err what = *err;
    char by[64] = "";
    if (options->memory_by && strcmp(options->memory_by, MEMORY_ADDRESSES) == 0)
        snprintf(by, sizeof by, " allowed by " MEMORY_ADDRESSES);
    else if (options->memory_by)
        snprintf(by, sizeof by, " allowed by the container (%.32s)", options->memory_by);
    else if (options->budgeted)
        snprintf(by, sizeof by, " left of memory_budget");
    if (largest)
        err_set(err, ERR_NOMEM,
                "%.160s: there are %.2f GiB%s; the largest layer is \"%s\", with %.2f GiB of "
                "parameters and %.2f GiB of tops",
                what.text, to_mebibytes(options->memory_limit), by, largest->name,
                to_mebibytes(parameters_of(net, largest)), to_mebibytes(values_of(largest)));
}

static int check_bf16(const struct net_options *options, struct err *err)
{
    PL_ASSERT(!options->keep_all); /* only chains compute with bf16 */
    if (!options->kernels->has_bf16)
        return err_set(err, ERR_UNSUPPORTED, "precision: kernels \"%s\" have no bf16",
                       options->kernels->name);
    return bf16_check(err);
}

int net_build(const Caffe__NetParameter *param, const struct net_options *options, bool blocks,
              struct net **out, struct err *err)
{
    struct net *net = calloc(1, sizeof *net);
    if (!net)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    arena_init(&net->arena);
    arena_limit(&net->arena, options->memory_limit);
    net->phase = options->phase;
    net->N = options->batch;
    net->slice = options->slice;
    net->blocks = blocks;
    net->images = options->kernels->image_layout;
    int rc = graph_build(net, param, options, err);
    if (rc == OK)
        rc = fuse_chains(net, options, err);
    if (rc == OK)
        rc = plan_make(net, options, err);
    if (rc == ERR_NOMEM && options->memory_limit > 0)
        name_largest(net, options, err);
    if (rc != OK) {
        net_free(net);
        return rc;
    }
    *out = net;
    return OK;
}

/* The largest batch that fits: the requested one, halved as often as needed; 0: none fits. */
static size_t find_batch(const Caffe__NetParameter *param, const struct net_options *options)
{
    struct net_options smaller = *options;
    smaller.tuner = NULL;
    while ((smaller.batch /= 2) > 0) {
        struct net *net;
        struct err ignored;
        if (net_build(param, &smaller, false, &net, &ignored) == OK) {
            net_free(net);
            break;
        }
    }
    return smaller.batch;
}

/* While parameters are counted, pages are reserved and not touched; more than this, nobody has. */
#define COUNTED_MAX ((size_t)1 << 39)

/* Bytes of the parameters and, in training, of their gradients; 0: unknown. */
static size_t count_bytes(const Caffe__NetParameter *param, const struct net_options *options)
{
    struct net_options alone = *options;
    struct net *net;
    struct err ignored;
    alone.phase =
        PHASE_TEST; /* which has the same parameters; these kernels make no copies there */
    alone.kernels = &kernels_ref;
    alone.dtype = DTYPE_F32;
    alone.tuner = NULL;
    alone.memory_limit = COUNTED_MAX;
    alone.batch = 1;
    if (net_build(param, &alone, false, &net, &ignored) != OK)
        return 0;
    size_t bytes = net->segments.total * sizeof(float);
    net_free(net);
    return bytes * (options->phase == PHASE_TRAIN ? 2 : 1);
}

static void name_batch(const Caffe__NetParameter *param, const struct net_options *options,
                       struct err *err)
{
    const struct err what = *err;
    size_t batch = find_batch(param, options), bytes = batch > 0 ? 0 : count_bytes(param, options);
    if (batch > 0)
        err_set(err, ERR_NOMEM, "%.400s; lower batch from %zu: %zu fits (--batch %zu)", what.text,
                options->batch, batch, batch);
    else if (bytes > 0)
        err_set(err, ERR_NOMEM,
                "%.400s; no smaller batch fits: take a smaller net, or more slices of this one "
                "(--set slices): its parameters alone need %zu bytes%s",
                what.text, bytes, options->phase == PHASE_TRAIN ? ", with their gradients" : "");
    else
        err_set(err, ERR_NOMEM, "%.400s; no smaller batch fits: take a smaller net", what.text);
}

/* Where that is faster. Nothing is lost where it cannot be had. */
static void put_in_blocks(const Caffe__NetParameter *param, const struct net_options *options,
                          struct net **net)
{
    struct err ignored;
    struct net *nhwc = *net, *blocks = NULL;
    if (net_build(param, options, true, &blocks, &ignored) != OK)
        return;
    bool win = blocks_win(nhwc, blocks);
    *net = win ? blocks : nhwc;
    net_free(win ? nhwc : blocks);
}

int net_create(const Caffe__NetParameter *param, const struct net_options *options,
               struct net **out, struct err *err)
{
    PL_ASSERT(options->kernels);
    if (options->batch == 0)
        return err_set(err, ERR_INPUT, "net: a batch must have at least one record");
    if (options->dtype == DTYPE_BF16 && options->phase == PHASE_TRAIN) {
        int rc = check_bf16(options, err);
        if (rc != OK)
            return rc;
    }
    int rc = net_build(param, options, false, out, err);
    if (rc == ERR_NOMEM && options->memory_limit > 0)
        name_batch(param, options, err);
    if (rc == OK && blocks_may_help(*out, options))
        put_in_blocks(param, options, out);
    return rc;
}

void net_free(struct net *net)
{
    if (!net)
        return;
    bool listed = net->file.layer; /* else it was not finished */
    struct layer **layer = listed ? net->file.layer : net->layer;
    for (size_t i = 0; i < (listed ? net->file.n_layers : net->n_layers); i++)
        op_release(layer[i]->op);
    arena_release(&net->arena);
    free(net);
}

size_t net_room(const struct net *net)
{
    return net->room_floats;
}

void net_take_room(struct net *net, float *room)
{
    net->room = room;
    net->count = 0;
    live_ranges_finish(net);
}

const struct segments *net_segments(const struct net *net)
{
    return &net->segments;
}

const struct segments *net_state_segments(const struct net *net)
{
    return &net->states;
}

const struct segments *net_whole_segments(const struct net *net)
{
    return slice_is_part(&net->slice) ? &net->whole : &net->segments;
}

const struct segment *net_layer_param(const struct net *net, const char *name, size_t k)
{
    for (size_t i = net->n_own; i < net->file.n_layers; i++) {
        const struct layer *layer = net->file.layer[i];
        if (!layer->inserted && strcmp(layer->name, name) == 0)
            return k < layer->n_at ? &net->segments.at[layer->at[k].index] : NULL;
    }
    return NULL;
}

/* Block by block, as a slice has them. */
static void fill_param(const struct net *net, const struct layer_param *p, uint64_t seed, float *at)
{
    const struct segment *whole = &net_whole_segments(net)->at[p->index];
    for (size_t block = 0; block < slice_blocks(whole); block++) {
        struct range own = slice_of_block(&net->slice, whole, block);
        filler_fill(&p->filler, seed, p->index, own.from, at, own.len);
        at += own.len;
    }
}

void net_init(const struct net *net, uint64_t seed, struct vec *x, struct vec *s)
{
    PL_ASSERT(x->n >= net->segments.total && s->n >= net->states.total);
    vec_fill(x, vec_all(x), 0.0f);
    vec_fill(s, vec_all(s), 0.0f);
    for (size_t i = 0; i < net->file.n_layers; i++) {
        const struct layer *layer = net->file.layer[i];
        for (size_t k = 0; k < layer->n_at; k++)
            if (!layer->at[k].shared)
                fill_param(net, &layer->at[k], seed, x->at + layer->at[k].offset);
    }
}

static const struct blob *newest_blob(const struct net *net, const char *name)
{
    for (size_t i = net->file.n_blobs; i-- > 0;)
        if (!net->file.blob[i]->inserted && strcmp(net->file.blob[i]->name, name) == 0)
            return net->file.blob[i];
    return NULL;
}

bool net_keeps(const struct net *net, const char *name)
{
    const struct blob *blob = newest_blob(net, name);
    return blob && blob->kept;
}

bool net_by_records(const struct net *net, const char *name)
{
    const struct blob *blob = newest_blob(net, name);
    return blob && !blob->is_whole && blob->shape.n > 0;
}

bool net_blob_is_part(const struct net *net, const char *name)
{
    const struct blob *blob = newest_blob(net, name);
    return blob && (blob->own.len < blob->units || blob->data_parallel);
}

size_t net_blob(const struct net *net, const char *name, float *out, size_t size,
                struct shape *shape)
{
    const struct blob *blob = newest_blob(net, name);
    if (!blob)
        return 0;
    struct shape actual = blob->shape;
    if (net->count > 0 && axes_live(blob, net->count) < blob->count)
        actual.dim[0] = net->count;
    size_t n = shape_count(&actual);
    if (shape)
        *shape = actual;
    if (size < n)
        return n;
    PL_ASSERT(blob->kept);
    if (blob->dtype == DTYPE_BF16)
        cast_out(&actual, blob->layout, blob->at, out);
    else if (blob->layout == LAYOUT_PLAIN)
        memcpy(out, blob->at, n * sizeof(float));
    else
        kernels_reorder(&actual, blob->layout, blob->at, LAYOUT_PLAIN, out);
    return n;
}

struct net_memory net_memory(const struct net *net)
{
    return net->memory;
}

static void add_copies(struct net_copies *sum, const struct op_reorders *op)
{
    sum->reorders += op->images;
    sum->weights += op->weights;
}

struct net_copies net_copies(const struct net *net)
{
    struct net_copies sum = {0};
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        sum.reorders += layer->reorders;
        sum.casts += cast_is(layer) ? 1u + layer->runs_backward : 0;
        if (layer->op)
            add_copies(&sum, &layer->op->forward);
        if (layer->op && layer->runs_backward)
            add_copies(&sum, &layer->op->backward);
    }
    return sum;
}

size_t net_classes(const struct net *net)
{
    return net->classes;
}

bool net_lacks(const struct net *net, size_t numbers, struct net_shortage *out)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (layer->numbers == 0 || layer->numbers >= numbers)
            continue;
        *out = (struct net_shortage){layer->name, layer->numbers, layer->ops->is_loss};
        return true;
    }
    return false;
}

size_t net_carried(const struct net *net)
{
    return net->carried;
}

const char *net_layout(const struct net *net)
{
    return net->blocks ? "nchw16c" : net->images == LAYOUT_NHWC ? "nhwc" : "nchw";
}

bool net_normalises(const struct net *net)
{
    static const char *const types[] = {"BatchNorm", "Power", "Scale", "Bias"};
    const struct layer *first = NULL;
    for (size_t i = 0; i < net->n_layers && !first; i++)
        if (net->layer[i]->ops != &layer_input)
            first = net->layer[i];
    for (size_t i = 0; first && i < sizeof types / sizeof *types; i++)
        if (strcmp(first->type, types[i]) == 0)
            return true;
    return false;
}

bool net_judges(const struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->layer[i]->judges)
            return true;
    return false;
}
