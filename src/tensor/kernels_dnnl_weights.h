/* The gradient of a convolution's weights by oneDNN, summed over slices of the batch (slices.h).
 * Private to the dnnl set. */
#ifndef PL_TENSOR_KERNELS_DNNL_WEIGHTS_H
#define PL_TENSOR_KERNELS_DNNL_WEIGHTS_H

#include "tensor/kernels_onednn.h"
#include "tensor/slices.h"

/* The pass over a slice of one size. */
struct conv_slice {
    dnnl_memory_t x, dy, dw, db;
    struct onednn_step *run;
    dnnl_memory_t sum;         /* where order writes */
    struct onednn_step *order; /* from dw into the form that is summed; NULL: dw has it */
};

struct conv_weights {
    const struct conv_spec *spec;
    struct onednn *dnn;
    struct arena *arena;
    size_t *bytes; /* grows by what is taken from the arena */

    size_t x_floats, dy_floats;    /* of one record */
    struct conv_slice whole, tail; /* tail: of the records after the last whole slice */
    size_t dw_floats;              /* in the form that is summed; db follows them */
    struct slices sums;
    dnnl_memory_t dw_sum, dw; /* dw: canonical, the caller's */
    struct onednn_step *add_dw;
};

/* Plan the passes; the caller has set the first four fields. *slow: the name of code that was
 * turned down, the status then being dnnl_unimplemented. */
dnnl_status_t conv_weights_plan(struct conv_weights *weights, const char **slow);

/* dw and db += their sums over the batch. db NULL: there is no bias. */
void conv_weights_add(struct conv_weights *weights, const float *x, const float *dy, float *dw,
                      float *db);

#endif
