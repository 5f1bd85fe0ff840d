#include "nn/net.h"

#include "base/fault.h"
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>

int net_create(const Caffe__NetParameter *param, const struct net_options *options,
               struct net **out, struct err *err)
{
    PL_ASSERT(options->kernels);
    if (options->batch == 0)
        return err_set(err, ERR_INPUT, "net: a batch must have at least one record");
    struct net *net = calloc(1, sizeof *net);
    if (!net)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    arena_init(&net->arena);
    net->phase = options->phase;
    net->N = options->batch;
    int rc = graph_build(net, param, options, err);
    if (rc == OK)
        rc = plan_make(net, err);
    if (rc != OK) {
        net_free(net);
        return rc;
    }
    *out = net;
    return OK;
}

void net_free(struct net *net)
{
    if (!net)
        return;
    for (size_t i = 0; i < net->n_layers; i++)
        op_release(net->layer[i]->op);
    arena_release(&net->arena);
    free(net);
}

const struct segments *net_segments(const struct net *net)
{
    return &net->segments;
}

const struct segments *net_state_segments(const struct net *net)
{
    return &net->states;
}

void net_init(const struct net *net, uint64_t seed, struct vec *x, struct vec *s)
{
    PL_ASSERT(x->n >= net->segments.total && s->n >= net->states.total);
    vec_fill(x, vec_all(x), 0.0f);
    vec_fill(s, vec_all(s), 0.0f);
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_at; k++) {
            const struct layer_param *p = &layer->at[k];
            const struct segment *segment = &net->segments.at[p->index];
            filler_fill(&p->filler, seed, p->index, x->at + segment->offset, segment->len);
        }
    }
}

void net_forward(struct net *net, const struct vec *x, struct vec *s, const struct net_batch *batch,
                 struct net_result *result)
{
    PL_ASSERT(batch->count >= 1 && batch->count <= net->N);
    PL_ASSERT(x->n >= net->segments.total && s->n >= net->states.total);
    struct net_result sum = {.count = batch->count};
    struct pass pass = {.x = x->at, .s = s->at, .batch = batch, .result = &sum};
    for (size_t i = 0; i < net->n_layers; i++)
        net->layer[i]->ops->forward(net->layer[i], &pass);
    net->count = batch->count;
    *result = sum;
}

static void add_scratch(const struct layer *layer)
{
    for (size_t k = 0; k < layer->n_bottom; k++) {
        const struct link *link = &layer->bottom[k];
        if (link->adds)
            vec_host_add(link->blob->d, link->dx, link->blob->count);
    }
}

/* Multiply-adds of a layer's products, forward and backward, × 2. */
static double forward_flops(const struct layer *layer)
{
    return layer->products > 0.0 ? 2.0 * layer->products : 0.0;
}

static double backward_flops(const struct layer *layer)
{
    if (!layer->runs_backward)
        return 0.0;
    return forward_flops(layer) * (blob_has_gradient(layer->bottom[0].blob) ? 2.0 : 1.0);
}

static double all_forward_flops(const struct net *net)
{
    double sum = 0.0;
    for (size_t i = 0; i < net->n_layers; i++)
        sum += forward_flops(net->layer[i]);
    return sum;
}

int net_backward(struct net *net, const struct vec *x, struct vec *dx,
                 const struct net_watch *watch)
{
    PL_ASSERT(net->phase == PHASE_TRAIN && net->count > 0);
    PL_ASSERT(x->n >= net->segments.total && dx->n >= net->segments.total);
    struct pass pass = {.x = x->at, .dx = dx->at};
    double all = watch ? net_flops(net) : 0.0, done = watch ? all_forward_flops(net) : 0.0;
    int rc = OK;
    for (size_t i = net->n_layers; rc == OK && i-- > 0;) {
        struct layer *layer = net->layer[i];
        if (!layer->runs_backward)
            continue;
        layer->ops->backward(layer, &pass);
        add_scratch(layer);
        done += backward_flops(layer);
        /* Segments lie in the order of layers, and no two layers share one. */
        if (watch && layer->n_at > 0)
            rc = watch->finished(watch->user, net->segments.at[layer->at[0].index].offset,
                                 all > 0.0 ? done / all : 1.0);
    }
    return rc;
}

size_t net_blob(const struct net *net, const char *name, float *out, size_t size,
                struct shape *shape)
{
    const struct blob *blob = NULL;
    for (size_t i = 0; i < net->n_blobs; i++)
        if (strcmp(net->blob[i]->name, name) == 0)
            blob = net->blob[i];
    if (!blob)
        return 0;
    struct shape actual = blob->shape;
    if (actual.n > 0 && net->count > 0)
        actual.dim[0] = net->count;
    size_t n = shape_count(&actual);
    if (shape)
        *shape = actual;
    if (size < n)
        return n;
    if (blob->layout == LAYOUT_PLAIN)
        memcpy(out, blob->at, n * sizeof(float));
    else
        kernels_reorder(&actual, blob->layout, blob->at, LAYOUT_PLAIN, out);
    return n;
}

struct net_memory net_memory(const struct net *net)
{
    return net->memory;
}

unsigned net_reorders(const struct net *net)
{
    unsigned sum = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        sum += net->layer[i]->reorders;
    return sum;
}

double net_flops(const struct net *net)
{
    double sum = all_forward_flops(net);
    for (size_t i = 0; i < net->n_layers; i++)
        sum += backward_flops(net->layer[i]);
    return sum;
}

size_t net_classes(const struct net *net)
{
    size_t classes = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        if (!layer->ops->is_loss)
            continue;
        size_t C = layer->bottom[0].blob->shape.dim[1];
        if (classes == 0 || C < classes)
            classes = C;
    }
    return classes;
}
