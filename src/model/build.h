/* Builds a net layer by layer, as the zoo does. Each call appends one layer that reads `bottom` and
 * writes `top` (also its name, unless it works in place), with Caffe's defaults for all fields that
 * it does not set. After memory runs out, calls do nothing, so a builder checks only once, at the
 * end. */
#ifndef PL_MODEL_BUILD_H
#define PL_MODEL_BUILD_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct build {
    Caffe__NetParameter *net;
    bool failed;
};

void build_begin(struct build *b, const char *name);

/* The finished net, freed with caffe__net_parameter__free_unpacked. ERR_NOMEM when some call
 * failed. */
int build_end(struct build *b, Caffe__NetParameter **out, struct err *err);

/* Records and their labels; their shape is the data's. */
void build_input(struct build *b, const char *data, const char *label);

/* The same, with their shape. */
void build_images(struct build *b, const char *data, const char *label, uint32_t C, uint32_t H,
                  uint32_t W);

/* ---- layers that have weights ---- */

/* The initial values of a layer's weights and biases, and their learning rates. */
struct build_weights {
    const char *filler;                       /* Caffe's name */
    float std;                                /* of "gaussian" */
    float value;                              /* of "constant" */
    bool bias;                                /* there are biases, */
    float bias_value;                         /* which start from this */
    float rate, bias_rate, decay, bias_decay; /* times the solver's */
};

/* Weights by xavier (learning rate × 1), bias zero (× 2), as in Caffe's examples. */
extern const struct build_weights build_weights_default;

struct build_window {
    uint32_t kernel, stride, pad;
    uint32_t kernel_w, pad_w; /* across; kernel_w 0: like those down, which are kernel and pad */
    uint32_t group, dilation; /* of convolutions; 0: 1 */
};

void build_convolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                       const struct build_window *window, const struct build_weights *weights);
void build_deconvolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_window *window, const struct build_weights *weights);
void build_inner_product(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_weights *weights);

/* The same with the default weights. */
void build_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                uint32_t kernel, uint32_t stride, uint32_t pad);
void build_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs);

/* To mean 0 and variance 1 in each channel; in place where `top` is `bottom`. Zeros stand for
 * Caffe's eps and moving_average_fraction. */
void build_batch_norm(struct build *b, const char *name, const char *bottom, const char *top,
                      float eps, float fraction);

/* Each channel times its weight, from 1 on, and plus its bias, from 0 on. */
void build_scale(struct build *b, const char *name, const char *bottom, const char *top, bool bias);

/* ---- layers that have none ---- */

void build_pool(struct build *b, const char *top, const char *bottom,
                Caffe__PoolingParameter__PoolMethod method, const struct build_window *window);

/* The window is the whole image. */
void build_pool_global(struct build *b, const char *top, const char *bottom,
                       Caffe__PoolingParameter__PoolMethod method);

/* Without padding. */
void build_pool_max(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                    uint32_t stride);
void build_pool_average(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                        uint32_t stride);

struct build_lrn {
    uint32_t size;
    float alpha, beta, k;
    bool within_channel;
};

void build_lrn(struct build *b, const char *top, const char *bottom, const struct build_lrn *lrn);

/* In place on `blob`. */
void build_relu(struct build *b, const char *name, const char *blob);
void build_sigmoid(struct build *b, const char *name, const char *blob);
void build_dropout(struct build *b, const char *name, const char *blob, float ratio);

/* From `bottom` to a blob of their own. */
void build_relu_separate(struct build *b, const char *top, const char *bottom);
void build_sigmoid_separate(struct build *b, const char *top, const char *bottom);
void build_dropout_separate(struct build *b, const char *top, const char *bottom, float ratio);

/* The channels of n blobs, one blob's after the other's. */
void build_concat(struct build *b, const char *top, const char *const *bottom, size_t n);

/* `coeff`: the n factors of a sum's bottoms; NULL: 1. */
void build_eltwise(struct build *b, const char *top, Caffe__EltwiseParameter__EltwiseOp operation,
                   const char *const *bottom, size_t n, const float *coeff);

void build_softmax_loss(struct build *b, const char *top, const char *scores, const char *label);

/* Of the loss that was added last: it counts so often in the sum that is trained on. */
void build_loss_weight(struct build *b, float weight);

/* In the test phase only. A record is right if its label is among the top_k highest scores. */
void build_accuracy(struct build *b, const char *top, const char *scores, const char *label,
                    uint32_t top_k);

/* A layer as a message, taken. */
void build_layer(struct build *b, Caffe__LayerParameter *layer);

#endif
