/* The parts of a BatchNorm that a chain of layers uses (layer_chain.c). */
#ifndef PL_NN_LAYER_BATCH_NORM_H
#define PL_NN_LAYER_BATCH_NORM_H

#include "nn/layer.h"
#include "tensor/norm.h"

enum { BATCH_NORM_MEANS, BATCH_NORM_VARIANCES, BATCH_NORM_COUNT, BATCH_NORM_BLOBS };

struct layer_batch_norm {
    struct layer layer;
    struct norm norm;
    bool global, learns; /* μ and σ² are those of s; s follows those of the batch */
    double f, eps;
    size_t at[BATCH_NORM_BLOBS]; /* in s */
    size_t count;                /* records of the last batch */
    double *r, *rest;            /* one a channel: 1 / sqrt(σ² + eps); μ − k */
};

/* The first part of forward: r, its statistics and norm->k for the pass's batch of x; the running
 * averages in s follow in training. `norm` is the layer's own, or one of the same shape. */
void batch_norm_measure(struct layer_batch_norm *self, struct norm *norm, const void *x,
                        const struct pass *pass);

#endif
