#include "nn/fuse.h"

#include "nn/fold.h"
#include "nn/layer_chain.h"
#include "nn/pool_first.h"

#include <string.h>

/* ---- finding ---- */

static bool is_newest(const struct net *net, const struct blob *blob)
{
    for (size_t i = net->file.n_blobs; i-- > 0;)
        if (!net->file.blob[i]->inserted && strcmp(net->file.blob[i]->name, blob->name) == 0)
            return net->file.blob[i] == blob;
    return false;
}

bool fuse_may_leave_out(const struct net *net, const struct net_options *options,
                        const struct blob *blob)
{
    bool named = options->keep && strcmp(options->keep, blob->name) == 0 && is_newest(net, blob);
    return blob->users == 1 && blob->weight == 0.0f && !named;
}

static struct layer *user_of(const struct net *net, const struct blob *blob, size_t *k)
{
    for (size_t i = 0; i < net->file.n_layers; i++)
        for (*k = 0; *k < net->file.layer[i]->n_bottom; (*k)++)
            if (net->file.layer[i]->bottom[*k].blob == blob)
                return net->file.layer[i];
    return NULL;
}

/* The member after `layer`, which reads its top as bottom k; NULL where the chain ends. */
static struct layer *next_member(const struct net *net, const struct net_options *options,
                                 const struct layer *layer, size_t *k)
{
    const struct blob *y = layer->n_top == 1 ? layer->top[0] : NULL;
    if (layer->part == CHAIN_NONE || !y || !fuse_may_leave_out(net, options, y))
        return NULL;
    struct layer *user = user_of(net, y, k);
    return user->part > layer->part && !user->bottom[*k].stops ? user : NULL;
}

static bool is_first(const struct net *net, const struct net_options *options,
                     const struct layer *layer)
{
    size_t k;
    for (size_t i = 0; i < layer->n_bottom; i++)
        if (next_member(net, options, layer->bottom[i].blob->maker, &k) == layer)
            return false;
    return layer->part != CHAIN_NONE;
}

static void join_layer(struct chain *chain, struct layer *layer, size_t k)
{
    chain->member[layer->part] = layer;
    chain->last = layer;
    if (!chain->first) {
        chain->first = layer;
        chain->x = layer->bottom[k];
    }
    if (layer->part == CHAIN_SUM)
        chain->z = layer->bottom[1 - k];
}

/* Of bf16 there is no BatchNorm, Scale or sum but a chain's. */
static bool alone_as_chain(const struct layer *layer)
{
    return layer->part != CHAIN_RELU && layer->top[0]->dtype == DTYPE_BF16;
}

/* From its first layer; of those before a sum only one chain can have it. */
static bool find_chain(const struct net *net, const struct net_options *options, const bool *taken,
                       struct layer *first, struct chain *chain)
{
    *chain = (struct chain){0};
    size_t k = 0;
    if (!is_first(net, options, first) || first->bottom[0].blob->shape.n < 2)
        return false;
    for (struct layer *at = first; at && !taken[at->nth];) {
        join_layer(chain, at, k);
        at = next_member(net, options, at, &k);
    }
    return chain->first != chain->last || alone_as_chain(first);
}

/* ---- replacing ---- */

static int list_file(struct net *net, struct err *err)
{
    struct layer **layer = arena_array(&net->arena, net->n_layers, struct layer *);
    struct blob **blob = arena_array(&net->arena, net->n_blobs, struct blob *);
    if (!layer || !blob)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    memcpy(layer, net->layer, net->n_layers * sizeof *layer);
    memcpy(blob, net->blob, net->n_blobs * sizeof *blob);
    for (size_t i = 0; i < net->n_layers; i++)
        layer[i]->in_file = i;
    net->file = (struct net_file){layer, net->n_layers, blob, net->n_blobs};
    return OK;
}

/* The chain's layer runs at the position of its last member, when all its inputs exist. */
static void put_chain(struct net *net, const struct chain *chain, struct layer *layer, bool *taken)
{
    for (size_t i = 0; i < CHAIN_PARTS; i++) {
        struct layer *member = chain->member[i];
        if (!member)
            continue;
        taken[member->nth] = true;
        net->layer[member->nth] = member == chain->last ? layer : NULL;
        if (member != chain->last)
            for (size_t k = 0; k < net->n_blobs; k++)
                net->blob[k] = net->blob[k] == member->top[0] ? NULL : net->blob[k];
    }
    layer->nth = chain->last->nth;
    layer->in_file = chain->first->nth;
}

static void close_gaps(struct net *net)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->layer[i]) {
            net->layer[n] = net->layer[i];
            net->layer[n]->nth = n;
            n++;
        }
    net->n_layers = n;
    n = 0;
    for (size_t i = 0; i < net->n_blobs; i++)
        if (net->blob[i])
            net->blob[n++] = net->blob[i];
    net->n_blobs = n;
}

int fuse_chains(struct net *net, const struct net_options *options, struct err *err)
{
    int rc = list_file(net, err);
    if (rc != OK || options->keep_all)
        return rc;
    size_t n = net->n_layers;
    bool *taken = arena_array(&net->arena, n, bool);
    if (!taken)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    if (net->phase == PHASE_TEST)
        rc = fold_layers(net, options, err);
    for (size_t i = 0; i < n; i++)
        taken[i] = !net->layer[i];
    /* Of two that could continue through one sum, the later has just been computed when it is its
     * turn and takes it. */
    for (size_t i = n; i-- > 0 && rc == OK;) {
        struct chain chain;
        struct layer *layer;
        if (taken[i] || !find_chain(net, options, taken, net->file.layer[i], &chain))
            continue;
        rc = layer_chain_make(&chain, net->phase, &net->arena, &layer, err);
        if (rc == OK)
            put_chain(net, &chain, layer, taken);
    }
    close_gaps(net);
    return rc == OK ? pool_first(net, options, err) : rc;
}
