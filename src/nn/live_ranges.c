#include "nn/live_ranges.h"

#include "nn/fold.h"

#include <string.h>

static struct piece *begin_range(struct net *net, size_t floats)
{
    struct piece *piece = &net->piece[net->n_pieces++];
    *piece = (struct piece){.floats = floats, .first = 2 * net->n_layers};
    return piece;
}

/* Of memory, in the room's unit. */
static size_t floats_of(const struct blob *blob)
{
    return (blob->count * dtype_size(blob->dtype) + sizeof(float) - 1) / sizeof(float);
}

static void extend_range(struct piece *piece, size_t moment)
{
    piece->first = moment < piece->first ? moment : piece->first;
    piece->last = moment > piece->last ? moment : piece->last;
}

/* ---- values ---- */

static void live_at(const struct net *net, const struct layer *layer, const struct blob *blob,
                    bool is_read_back)
{
    extend_range(blob->values, layer->nth);
    if (is_read_back)
        extend_range(blob->repeated ? blob->repeated : blob->values,
                     live_ranges_backward(net, layer));
}

static void find_values(struct net *net)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *blob = net->blob[i];
        blob->values = blob->over ? blob->over->values : begin_range(net, floats_of(blob));
        blob->repeated = blob->rematerialised ? begin_range(net, floats_of(blob)) : NULL;
        if (blob->kept)
            extend_range(blob->values, 2 * net->n_layers);
    }
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_top; k++)
            live_at(net, layer, layer->top[k], layer->runs_backward && layer->reads_top);
        for (size_t k = 0; k < layer->n_bottom; k++) {
            const struct link *link = &layer->bottom[k];
            live_at(net, layer, link->blob, link_is_read_back(layer, link));
            if (link->blob->numbers)
                live_at(net, layer, link->blob->numbers, link_is_read_back(layer, link));
        }
    }
}

/* ---- gradients ---- */

static void find_gradients(struct net *net)
{
    for (size_t i = net->n_blobs; i-- > 0;) { /* in this order a blob follows those whose `under`
                                                 points to it */
        struct blob *blob = net->blob[i];
        if (!blob_has_gradient(blob))
            continue;
        if (!blob->gradient)
            blob->gradient = begin_range(net, floats_of(blob));
        if (blob->under)
            blob->under->gradient = blob->gradient;
    }
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        size_t moment = live_ranges_backward(net, layer);
        for (size_t k = 0; k < layer->n_top && layer->runs_backward; k++)
            if (layer->top[k]->gradient)
                extend_range(layer->top[k]->gradient, moment);
        for (size_t k = 0; k < layer->n_bottom; k++) {
            struct link *link = &layer->bottom[k];
            if (!link_wants_gradient(layer, link))
                continue;
            extend_range(link->blob->gradient, moment);
            link->scratch = link->adds ? begin_range(net, floats_of(link->blob)) : NULL;
            if (link->scratch)
                extend_range(link->scratch, moment);
            bool sums = layer_is_cut(layer); /* else it is a gather that is awaited */
            if (link->scratch && sums && layer->awaited_by)
                extend_range(link->scratch, live_ranges_backward(net, layer->awaited_by));
            if (link->blob->second_grad == link)
                extend_range(link->scratch, live_ranges_backward(net, link->blob->maker));
        }
    }
}

/* ---- scratch ---- */

static void find_scratch(struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        size_t floats = (layer->scratch_bytes + sizeof(float) - 1) / sizeof(float);
        for (int k = 0; k < 2 && floats > 0 && (k == 0 || layer->runs_backward); k++) {
            layer->scratch[k] = begin_range(net, floats);
            extend_range(layer->scratch[k], k == 0 ? layer->nth : live_ranges_backward(net, layer));
        }
        if (layer->fold) {
            layer->folded = begin_range(net, fold_floats(layer));
            extend_range(layer->folded, layer->nth);
        }
    }
}

/* ---- all together ---- */

/* The growth of the room for the buffers that were added since. */
static size_t grow_list(struct net *net, struct piece **order)
{
    size_t before = net->room_floats;
    size_t floats = memory_layout_assign(net->piece, net->n_pieces, order);
    net->room_floats = floats > before ? floats : before;
    return (net->room_floats - before) * sizeof(float);
}

int live_ranges_plan(struct net *net, struct err *err)
{
    size_t most = 3 * net->n_blobs + 3 * net->n_layers;
    for (size_t i = 0; i < net->n_layers; i++)
        most += net->layer[i]->n_bottom;
    net->piece = arena_array(&net->arena, most, struct piece);
    struct piece **order = arena_array(&net->arena, most, struct piece *);
    if (!net->piece || !order)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    find_values(net);
    net->memory.activations += grow_list(net, order);
    find_gradients(net);
    net->memory.gradients += grow_list(net, order);
    find_scratch(net);
    net->memory.scratch += grow_list(net, order);
    return OK;
}

void live_ranges_finish(struct net *net)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *blob = net->blob[i];
        blob->room = blob->at = net->room + blob->values->offset;
        blob->d = blob->gradient ? net->room + blob->gradient->offset : NULL;
    }
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        layer->folded_at = layer->folded ? net->room + layer->folded->offset : NULL;
        for (size_t k = 0; k < layer->n_bottom; k++) {
            struct link *link = &layer->bottom[k];
            if (link_wants_gradient(layer, link))
                link->dx = link->adds ? net->room + link->scratch->offset : link->blob->d;
        }
    }
}

void live_ranges_repeat(const struct net *net, struct blob *blob)
{
    blob->at = net->room + blob->repeated->offset;
}

void live_ranges_restart(struct blob *blob)
{
    blob->at = blob->room;
}

void *live_ranges_scratch(const struct net *net, const struct layer *layer, bool backward)
{
    const struct piece *piece = layer->scratch[backward];
    return piece ? net->room + piece->offset : NULL;
}

/* ---- poison ---- */

/* No number as a float, nor as two of bf16. */
static void poison_range(float *at, size_t floats)
{
    const uint32_t none = 0x7fc07fc0;
    for (size_t i = 0; i < floats; i++)
        memcpy(&at[i], &none, sizeof none);
}

void live_ranges_poison(const struct net *net)
{
    poison_range(net->room, net->room_floats);
}

void live_ranges_poison_after(const struct net *net, size_t moment)
{
    for (size_t i = 0; i < net->n_pieces; i++)
        if (net->piece[i].last == moment)
            poison_range(net->room + net->piece[i].offset, net->piece[i].floats);
}
