/* Building a net layer by layer, as the zoo does: each call appends one layer that reads `bottom`
 * and writes `top` (its name too, unless it works in place), with Caffe's defaults where the call
 * names nothing. After memory runs out calls do nothing, so that a builder need not look until the
 * end. */
#ifndef PL_MODEL_BUILD_H
#define PL_MODEL_BUILD_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

#include <stdbool.h>
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

/* What a layer's weights and biases start from, and how fast they learn. */
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
};

void build_convolution(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                       const struct build_window *window, const struct build_weights *weights);
void build_inner_product(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                         const struct build_weights *weights);
void build_pool(struct build *b, const char *top, const char *bottom,
                Caffe__PoolingParameter__PoolMethod method, const struct build_window *window);

/* The same with the default weights, and without padding. */
void build_conv(struct build *b, const char *top, const char *bottom, uint32_t outputs,
                uint32_t kernel, uint32_t stride, uint32_t pad);
void build_inner(struct build *b, const char *top, const char *bottom, uint32_t outputs);
void build_pool_max(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                    uint32_t stride);
void build_pool_average(struct build *b, const char *top, const char *bottom, uint32_t kernel,
                        uint32_t stride);

/* In place on `blob`. */
void build_relu(struct build *b, const char *name, const char *blob);
void build_dropout(struct build *b, const char *name, const char *blob, float ratio);

/* From `bottom` to a blob of their own. */
void build_relu_apart(struct build *b, const char *top, const char *bottom);
void build_dropout_apart(struct build *b, const char *top, const char *bottom, float ratio);

void build_softmax_loss(struct build *b, const char *top, const char *scores, const char *label);

/* In the test phase only. */
void build_accuracy(struct build *b, const char *top, const char *scores, const char *label);

/* A layer as a message, taken. */
void build_layer(struct build *b, Caffe__LayerParameter *layer);

#endif
