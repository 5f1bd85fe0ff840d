/* The cost of each layer of a net: arithmetic, which is counted, and time, for callers that have a
 * clock. */
#ifndef PL_NN_PROFILE_H
#define PL_NN_PROFILE_H

#include "nn/net.h"

/* Callbacks, on the computing task, when a layer begins and ends its part of a pass; layers are
 * numbered as in summary.h. A layer without a backward pass is not reported. */
struct net_probe {
    void (*begins)(void *user, size_t layer, bool backward);
    void (*ends)(void *user, size_t layer, bool backward);
    void *user;
};

/* Set the probe of every pass from now on. Borrowed; NULL: none, as at first. */
void net_set_probe(struct net *net, const struct net_probe *probe);

/* Multiply-adds × 2 of a layer's products in one pass; 0 where it has none. */
double net_layer_flops(const struct net *net, size_t layer, bool backward);

#endif
