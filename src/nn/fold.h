/* In testing, a BatchNorm and a Scale by channel after a convolution or an inner product are folded
 * into it: for y = a·(w x + b) + c, by channel, the weights are a·w and the bias is a·b + c. They
 * are computed from x and s in each pass, since x and s may change between passes: one pass over
 * the layer's weights in place of two over its activations. The folded layers do not run. */
#ifndef PL_NN_FOLD_H
#define PL_NN_FOLD_H

#include "nn/graph.h"

/* Fold what can be folded in a net for testing: its layers and the blobs between them leave the
 * net's lists, which have NULL in their place. A blob that `options` names is kept. ERR_NOMEM */
int fold_layers(struct net *net, const struct net_options *options, struct err *err);

/* Floats that the layer's folded parameters take while it runs; 0: nothing is folded into it. */
size_t fold_floats(const struct layer *layer);

/* Make them, at `to`, and have `args` lead to them. */
void fold_make(const struct layer *layer, const struct pass *pass, float *to, struct op_args *args);

#endif
