#include "nn/profile.h"

#include "base/fault.h"
#include "nn/graph.h"

void net_set_probe(struct net *net, const struct net_probe *probe)
{
    net->probe = probe;
}

/* Backward has a product for the weights and, where the image has a gradient, one for that. */
double net_layer_flops(const struct net *net, size_t i, bool backward)
{
    PL_ASSERT(i < net->file.n_layers);
    const struct layer *layer = net->file.layer[i];
    double forward = layer->products > 0.0 ? 2.0 * layer->products : 0.0;
    if (!backward)
        return forward;
    if (!layer->runs_backward)
        return 0.0;
    return forward * (link_wants_gradient(layer, &layer->bottom[0]) ? 2.0 : 1.0);
}
