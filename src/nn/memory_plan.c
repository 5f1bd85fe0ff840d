/* The memory plan: which blobs need a gradient, which layers work in place, and the offset of every
 * buffer. */
#include "nn/live_ranges.h"
#include "nn/partition.h"

#include "base/fault.h"

#include <string.h>

static void mark_needs(struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        bool needs = false;
        for (size_t k = 0; k < layer->n_at; k++)
            needs = needs || !param_frozen(net, &layer->at[k]);
        for (size_t k = 0; k < layer->n_bottom; k++)
            needs = needs || (layer->bottom[k].blob->needs && !layer->bottom[k].stops);
        layer->runs_backward = needs && layer->ops->backward && net->phase == PHASE_TRAIN;
        for (size_t k = 0; k < layer->n_top; k++)
            layer->top[k]->needs = layer->runs_backward && top_leads_back(layer, k);
    }
}

/* Losses are where a weight is; a layer leads there when one of its tops does. */
static void mark_leads(struct net *net)
{
    for (size_t i = 0; i < net->n_blobs; i++)
        net->blob[i]->leads = net->blob[i]->weight != 0.0f;
    for (size_t i = net->n_layers; i-- > 0;) {
        struct layer *layer = net->layer[i];
        bool leads = false;
        for (size_t k = 0; k < layer->n_top; k++)
            leads = leads || (layer->top[k]->leads && top_leads_back(layer, k));
        layer->runs_backward = layer->runs_backward && leads;
        for (size_t k = 0; k < layer->n_bottom; k++)
            if (leads && link_leads_back(layer, k))
                layer->bottom[k].blob->leads = true;
    }
}

/* Labels, targets, numbers and marks cannot be learnt. */
static bool has_gradient(const struct layer *layer, size_t k)
{
    return !layer->bottom[k].no_gradient && !(layer->ops->first_only && k > 0);
}

static int check_gradients(const struct net *net, struct err *err)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom && layer->runs_backward; k++)
            if (!has_gradient(layer, k) && layer->bottom[k].blob->needs && !layer->bottom[k].stops)
                return err_set(err, ERR_INPUT,
                               "layer \"%s\": type \"%s\" has no gradient for bottom \"%.64s\", "
                               "which depends on parameters; propagate_down: false stops it there",
                               layer->name, layer->type, layer->bottom[k].blob->name);
    }
    return OK;
}

static bool newest_of_name(const struct net *net, size_t i)
{
    for (size_t k = i + 1; k < net->n_blobs; k++)
        if (!net->blob[k]->inserted && strcmp(net->blob[k]->name, net->blob[i]->name) == 0)
            return false;
    return true;
}

/* The outputs of the net are kept for reading, and so are blobs that the caller names. */
static void mark_kept(struct net *net, const struct net_options *options)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *blob = net->blob[i];
        bool named = options->keep && strcmp(blob->name, options->keep) == 0;
        blob->kept = !blob->inserted && (blob->users == 0 || named || options->keep_all) &&
                     newest_of_name(net, i);
    }
}

/* May y use the memory of the values that its maker reads through the link? */
static bool may_lie_over(const struct layer *layer, const struct link *link, const struct blob *y)
{
    const struct blob *x = link->blob;
    const struct layer *maker = x->maker;
    return layer->in_place && !link_is_read_back(layer, link) && x->count == y->count &&
           x->dtype == y->dtype && x->users == 1 && !x->kept && !x->is_borrowed &&
           x->weight == 0.0f && !(maker->runs_backward && maker->reads_top);
}

/* Nets request working in place by giving top and bottom one name. It is done wherever possible,
 * except in a net that keeps all values: there only where requested. */
static void lay_over(struct net *net, bool keep_all)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (layer->n_top != 1)
            continue;
        struct blob *y = layer->top[0], *requested = y->over;
        y->over = NULL;
        for (size_t k = 0; k < layer->n_bottom && k < layer->n_over && !y->over; k++) {
            struct blob *x = layer->bottom[k].blob;
            if ((x == requested || !keep_all) && may_lie_over(layer, &layer->bottom[k], y))
                y->over = x;
        }
    }
}

/* Recomputing y needs its unchanged inputs: not an input that is itself recomputed, whose second
 * live range may not have begun or be over. */
static bool depends_on_rematerialised(const struct net *net, const struct blob *y)
{
    for (size_t k = 0; k < y->maker->n_bottom; k++)
        if (y->maker->bottom[k].blob->rematerialised)
            return true;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom; k++)
            for (size_t t = 0; t < layer->n_top && layer->bottom[k].blob == y; t++)
                if (layer->top[t]->rematerialised)
                    return true;
    }
    return false;
}

/* Values that a layer can compute again are not kept for backward: computing them costs a pass over
 * values that the layer's own backward reads, no more than writing them to memory and fetching them
 * again, long after; and their second live range is short. */
static void mark_rematerialised(struct net *net)
{
    for (size_t i = net->n_layers; i-- > 0;) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom; k++) {
            struct link *link = &layer->bottom[k];
            struct blob *y = link->blob;
            if (!link_is_read_back(layer, link) || y->rematerialised || y->kept ||
                !y->maker->remakes || !y->maker->runs_backward || depends_on_rematerialised(net, y))
                continue;
            y->rematerialised = link->remakes = true;
            PL_ASSERT(!y->over); /* nor is another over y, which is read back */
        }
    }
}

/* Of a gradient of two parts the second, which is scratch, may stay one until the maker reads both:
 * that spares a pass over memory. */
static bool leaves_second_grad(const struct blob *blob)
{
    return blob->maker->ops->takes_second_grad && blob->weight == 0.0f;
}

/* The first writer of a blob's gradient writes it in place, possibly into the memory of its top's
 * gradient, of which it is the last reader; others write to scratch, which is added. */
static void share_gradients(struct net *net)
{
    for (size_t i = net->n_layers; i-- > 0;) {
        struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom; k++) {
            struct link *link = &layer->bottom[k];
            struct blob *x = link->blob, *y = layer->n_top == 1 ? layer->top[0] : NULL;
            if (!link_wants_gradient(layer, link))
                continue;
            link->adds = x->parts > 0;
            x->second_grad = ++x->parts == 2 && leaves_second_grad(x) ? link : NULL;
            if (!link->adds && layer->in_place && y && !y->under && k < layer->n_over &&
                x->count == y->count && x->dtype == y->dtype)
                y->under = x;
        }
    }
}

/* Find, for each layer i, the part of dx that is finished after its backward: it begins where the
 * segments of layers before i, whose backward is later, end. */
static int find_finished(struct net *net, struct err *err)
{
    net->finished = arena_array(&net->arena, net->n_layers, size_t);
    if (!net->finished)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    size_t end = 0; /* the segments that layers so far add to end here */
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        net->finished[i] =
            end < net->segments.count ? net->segments.at[end].offset : net->segments.total;
        for (size_t k = 0; k < layer->n_at && layer->runs_backward; k++)
            if (layer->at[k].index + 1 > end)
                end = layer->at[k].index + 1;
    }
    return OK;
}

static int make_room(struct net *net, const struct net_options *options, struct err *err)
{
    size_t limit = net->arena.limit, bytes = net->room_floats * sizeof(float);
    if (limit > 0 && (net->arena.bytes > limit || bytes > limit - net->arena.bytes))
        return err_set(err, ERR_NOMEM, "net: out of memory for activations");
    if (options->brings_room)
        return OK;
    float *room = arena_array(&net->arena, net->room_floats, float);
    if (!room)
        return err_set(err, ERR_NOMEM, "net: out of memory for activations");
    net_take_room(net, room);
    return OK;
}

int plan_make(struct net *net, const struct net_options *options, struct err *err)
{
    partition_hasten_gathers(net);
    mark_needs(net);
    mark_leads(net);
    int rc = net->phase == PHASE_TRAIN ? check_gradients(net, err) : OK;
    if (rc == OK)
        rc = find_finished(net, err);
    if (rc != OK)
        return rc;
    mark_kept(net, options);
    lay_over(net, options->keep_all);
    mark_rematerialised(net);
    share_gradients(net);
    partition_await_sums(net);
    if ((rc = live_ranges_plan(net, err)) != OK)
        return rc;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        net->memory.activations += layer->buffer_bytes;
        net->memory.scratch += layer->op ? layer->op->scratch_bytes : 0;
    }
    return make_room(net, options, err);
}
