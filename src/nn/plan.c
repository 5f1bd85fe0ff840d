/* Memory of a net, given out once: values of blobs side by side, since any may be asked for after a
 * forward pass; gradients one over the other where their lives do not meet. */
#include "nn/graph.h"

#include <stdlib.h>

/* A gradient lives from the backward of the blob's last user to that of its maker. */
struct life {
    struct blob *root;
    size_t first, last; /* indices of layers */
    size_t offset;      /* floats in the gradients' memory */
    bool placed;
};

static void mark_needs(struct net *net)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        struct layer *layer = net->layer[i];
        bool needs = false;
        for (size_t k = 0; k < layer->n_at; k++)
            needs = needs || !param_frozen(net, &layer->at[k]);
        for (size_t k = 0; k < layer->n_bottom; k++)
            needs = needs || (layer->bottom[k].blob->needs && !layer->bottom[k].stops);
        layer->runs_backward = needs && layer->ops->backward;
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

/* Labels and targets cannot be learnt. */
static int check_first_only(const struct net *net, struct err *err)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 1; k < layer->n_bottom && layer->ops->first_only; k++)
            if (layer->runs_backward && layer->bottom[k].blob->needs && !layer->bottom[k].stops)
                return err_set(err, ERR_INPUT,
                               "layer \"%s\": type \"%s\" has no gradient for bottom \"%.64s\", "
                               "which depends on parameters; propagate_down: false stops it there",
                               layer->name, layer->type, layer->bottom[k].blob->name);
    }
    return OK;
}

/* Working in place is a wish: it is granted when nobody else needs what would be overwritten. */
static void grant_in_place(struct net *net)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *y = net->blob[i], *x = y->over;
        const struct layer *layer = y->maker;
        if (x && (x->users > 1 || x->is_borrowed || x->weight != 0.0f || x->maker->ops->reads_top ||
                  (layer->op && !layer->op->in_place)))
            y->over = NULL;
    }
}

static size_t aligned(size_t floats)
{
    return (floats + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
}

static int place_values(struct net *net, struct err *err)
{
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *blob = net->blob[i];
        if (blob->over)
            blob->at = blob->over->at;
        else if (!blob->at) {
            blob->at = arena_array(&net->arena, blob->count, float);
            if (!blob->at)
                return err_set(err, ERR_NOMEM, "layer \"%s\": out of memory for top \"%.64s\"",
                               blob->maker->name, blob->name);
            net->memory.activations += blob->count * sizeof(float);
        }
    }
    for (size_t i = 0; i < net->n_layers; i++)
        net->memory.activations += net->layer[i]->buffer_bytes;
    return OK;
}

/* The blob whose gradient's memory this one's is. What needs no gradient has none to take over. */
static struct blob *root_of(struct blob *blob)
{
    while (blob->over && blob_has_gradient(blob->over))
        blob = blob->over;
    return blob;
}

static struct life *life_of(struct life *lives, size_t n, const struct blob *root)
{
    for (size_t i = 0; i < n; i++)
        if (lives[i].root == root)
            return &lives[i];
    return NULL;
}

static size_t find_lives(const struct net *net, struct life *lives)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct blob *blob = net->blob[i];
        if (blob_has_gradient(blob) && root_of(blob) == blob)
            lives[n++] = (struct life){blob, blob->maker->index, blob->maker->index, 0, false};
    }
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_bottom && layer->runs_backward; k++) {
            struct life *life = life_of(lives, n, root_of(layer->bottom[k].blob));
            if (life)
                life->last = layer->index;
        }
    }
    return n;
}

static bool meet(const struct life *a, const struct life *b)
{
    size_t a_end = a->offset + aligned(a->root->count), b_end = b->offset + aligned(b->root->count);
    return a->first <= b->last && b->first <= a->last && a->offset < b_end && b->offset < a_end;
}

/* The lowest place that is free during the whole life; largest blobs choose first. */
static void place(struct life *lives, size_t n, struct life *life)
{
    for (size_t i = 0; i < n; i++)
        if (lives[i].placed && meet(&lives[i], life)) {
            life->offset = lives[i].offset + aligned(lives[i].root->count);
            i = (size_t)-1; /* look again from the start */
        }
    life->placed = true;
}

static int larger_first(const void *a, const void *b)
{
    const struct life *x = a, *y = b;
    if (x->root->count != y->root->count)
        return x->root->count < y->root->count ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int place_gradients(struct net *net, struct err *err)
{
    struct life *lives = arena_array(&net->arena, net->n_blobs, struct life);
    if (!lives)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    size_t n = find_lives(net, lives), total = 0;
    qsort(lives, n, sizeof *lives, larger_first);
    for (size_t i = 0; i < n; i++) {
        place(lives, n, &lives[i]);
        size_t end = lives[i].offset + aligned(lives[i].root->count);
        total = end > total ? end : total;
    }
    float *memory = arena_array(&net->arena, total, float);
    if (!memory)
        return err_set(err, ERR_NOMEM, "net: out of memory for gradients of %zu floats", total);
    for (size_t i = 0; i < net->n_blobs; i++) {
        struct life *life = life_of(lives, n, root_of(net->blob[i]));
        if (life && blob_has_gradient(net->blob[i]))
            net->blob[i]->d = memory + life->offset;
    }
    net->memory.gradients = total * sizeof(float);
    return OK;
}

/* Floats of scratch that the layer's links need at most: only blobs of several users are added to.
 */
static size_t link_scratch(const struct layer *layer)
{
    size_t floats = 0;
    for (size_t k = 0; k < layer->n_bottom && layer->runs_backward; k++) {
        const struct blob *blob = layer->bottom[k].blob;
        floats += blob->d && !layer->bottom[k].stops && blob->users > 1 ? aligned(blob->count) : 0;
    }
    return floats;
}

/* The first to write a blob's gradient writes it in place; others write scratch, to be added. */
static int place_links(struct net *net, struct err *err)
{
    size_t largest = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        size_t floats = link_scratch(net->layer[i]);
        largest = floats > largest ? floats : largest;
    }
    float *scratch = arena_array(&net->arena, largest, float);
    if (!scratch)
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu floats of scratch", largest);
    for (size_t i = net->n_layers; i-- > 0;) {
        struct layer *layer = net->layer[i];
        size_t used = 0;
        for (size_t k = 0; k < layer->n_bottom && layer->runs_backward; k++) {
            struct link *link = &layer->bottom[k];
            if (!link->blob->d || link->stops)
                continue;
            link->adds = link->blob->written;
            link->blob->written = true;
            link->dx = link->adds ? scratch + used : link->blob->d;
            used += link->adds ? aligned(link->blob->count) : 0;
        }
    }
    net->memory.scratch += largest * sizeof(float);
    return OK;
}

/* Segments that layers before the ith, whose backward is later, will still add to end where what is
 * finished begins. */
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

int plan_make(struct net *net, struct err *err)
{
    mark_needs(net);
    mark_leads(net);
    int rc = net->phase == PHASE_TRAIN ? check_first_only(net, err) : OK;
    if (rc == OK)
        rc = find_finished(net, err);
    if (rc != OK)
        return rc;
    grant_in_place(net);
    for (size_t i = 0; i < net->n_layers; i++)
        if (net->layer[i]->op)
            net->memory.scratch += net->layer[i]->op->scratch_bytes;
    rc = place_values(net, err);
    if (rc == OK && net->phase == PHASE_TRAIN)
        rc = place_gradients(net, err);
    if (rc == OK && net->phase == PHASE_TRAIN)
        rc = place_links(net, err);
    return rc;
}
