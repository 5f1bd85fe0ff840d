/* The types of layers there are: a new one is a file, a line here and a line in layers.c. */
#ifndef PL_NN_LAYERS_H
#define PL_NN_LAYERS_H

#include "nn/layer.h"

extern const struct layer_ops layer_accuracy, layer_batch_norm, layer_conv, layer_dropout,
    layer_inner, layer_input, layer_pool, layer_relu, layer_scale, layer_sigmoid, layer_softmax,
    layer_softmax_loss;

#endif
