/* In testing a BatchNorm and a Scale by channel after a convolution or an inner product are part of
 * it: of y = a·(w x + b) + c, by channel, the weights are a·w, and the bias is a·b + c. They are
 * made of x and s again in each pass, for x and s may be others each time; that is a pass over the
 * layer's weights in place of two over its activations. The folded layers do not run. */
#ifndef PL_NN_FOLD_H
#define PL_NN_FOLD_H

#include "nn/graph.h"

/* Fold what can be folded in a net for testing: its layers and the blobs between them leave the
 * net's lists, where NULL is left in their place. `options` may name a blob to be kept, which then
 * is made. ERR_NOMEM */
int fold_layers(struct net *net, const struct net_options *options, struct err *err);

/* Floats that the layer's folded parameters take while it runs; 0: nothing is folded into it. */
size_t fold_floats(const struct layer *layer);

/* Make them, at `to`, and have `args` lead to them. */
void fold_make(const struct layer *layer, const struct pass *pass, float *to, struct op_args *args);

#endif
