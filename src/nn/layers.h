/* The types of layers there are: a new one is a file, a line here and a line in layers.c. */
#ifndef PL_NN_LAYERS_H
#define PL_NN_LAYERS_H

#include "nn/layer.h"

extern const struct layer_ops layer_abs, layer_accuracy, layer_batch_norm, layer_bias, layer_concat,
    layer_clip, layer_conv, layer_deconv, layer_dropout, layer_eltwise, layer_elu, layer_exp,
    layer_flatten, layer_inner, layer_input, layer_log, layer_lrn, layer_pool, layer_power,
    layer_prelu, layer_relu, layer_reshape, layer_scale, layer_sigmoid, layer_silence, layer_slice,
    layer_softmax, layer_softmax_loss, layer_split, layer_tanh, layer_euclidean_loss,
    layer_hinge_loss, layer_sigmoid_loss, layer_lstm, layer_rnn, layer_gru, layer_embed;

#endif
