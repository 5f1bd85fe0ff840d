#include "nn/summary.h"

#include "base/fault.h"
#include "nn/graph.h"

#include <string.h>

size_t net_layer_count(const struct net *net)
{
    return net->file.n_layers;
}

/* State is named after its layer: "bn1.0", "bn1.1". */
static size_t state_of(const struct net *net, const struct layer *layer)
{
    size_t sum = 0, len = strlen(layer->name);
    for (size_t i = 0; i < net->states.count && !layer->inserted; i++) {
        const struct segment *segment = &net->states.at[i];
        const char *dot = strrchr(segment->name, '.');
        if (dot && (size_t)(dot - segment->name) == len &&
            memcmp(segment->name, layer->name, len) == 0)
            sum += segment->len;
    }
    return sum;
}

struct layer_summary net_layer_at(const struct net *net, size_t i)
{
    PL_ASSERT(i < net->file.n_layers);
    const struct layer *layer = net->file.layer[i];
    struct layer_summary out = {
        .name = layer->name,
        .type = layer->type,
        .state = state_of(net, layer),
        .products = layer->products,
        .chosen = layer->op ? layer->op->chosen : NULL,
    };
    if (layer->n_top > 0)
        out.top = layer->top[0]->shape;
    for (size_t k = 0; k < layer->n_at; k++)
        if (!layer->at[k].shared)
            out.parameters += net->segments.at[layer->at[k].index].len;
    return out;
}
