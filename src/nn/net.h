/* A network: a graph of layers over flat x, dx, s (D1), planned once for one batch size and phase.
 *
 * The plan (shapes, ops, activations) is separate from the parameters, which every call brings
 * along: learners that take turns can share one net and its memory. After net_create nothing
 * allocates. Not thread-safe: one net, one caller at a time. */
#ifndef PL_NN_NET_H
#define PL_NN_NET_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/kernels.h"
#include "tensor/segment.h"
#include "tensor/vec.h"

enum phase { PHASE_TRAIN, PHASE_TEST };

struct net_options {
    enum phase phase;
    size_t batch;       /* records a call at most */
    struct shape input; /* of one record, (C, H, W), for data layers that state none */
    const struct kernels *kernels;
};

/* One batch. `data` holds count records, each of the input's size, NCHW; the values must be finite
 * and labels within the classes of the net (checked by the data layer: asserted here). Borrowed by
 * net_forward; `data`, as the net may work on it where it lies, until net_backward and net_blob. */
struct net_batch {
    const float *data;
    const uint32_t *labels;  /* may be NULL when the net has no loss or accuracy */
    const uint64_t *records; /* index of each record: keys dropout masks */
    size_t count;            /* 1 .. net_options.batch */
    uint64_t seed, epoch;    /* keys dropout masks too */
};

/* Sums over the batch's records, so that batches can be added up. */
struct net_result {
    double loss;    /* Σ of the weighted losses' per-record values (mean loss × count) */
    uint64_t right; /* records that the first accuracy layer counts as right, */
    bool has_right; /* if there is one */
    size_t count;
};

struct net;

/* Build the net for one phase (layers whose include/exclude rules leave it out are dropped). The
 * message is borrowed only during the call. Messages of errors name the layer.
 *
 * ERR_INPUT        a bad field, shape or connection
 * ERR_UNSUPPORTED  a layer type or option that is not supported, by name
 * ERR_NOMEM */
int net_create(const Caffe__NetParameter *param, const struct net_options *options,
               struct net **out, struct err *err);
void net_free(struct net *net);

/* Valid until net_free. The tables of the two phases of one NetParameter match. */
const struct segments *net_segments(const struct net *net);       /* of x and dx */
const struct segments *net_state_segments(const struct net *net); /* of s */

/* Initial values by each layer's filler: a pure function of (seed, parameter index, element). */
void net_init(const struct net *net, uint64_t seed, struct vec *x, struct vec *s);

/* Forward pass. x, s borrowed. */
void net_forward(struct net *net, const struct vec *x, struct vec *s, const struct net_batch *batch,
                 struct net_result *result);

/* Who wants to know how far a backward pass is: told after each layer with parameters that dx is
 * finished from `from` to its end, and that `share` of the step's products (of 1) are done. */
struct net_watch {
    int (*finished)(void *user, size_t from, double share); /* anything but OK ends the pass */
    void *user;
};

/* Gradient of the mean loss over the batch last run forward, added to dx. `watch` may be NULL. What
 * it returns, or OK. */
int net_backward(struct net *net, const struct vec *x, struct vec *dx,
                 const struct net_watch *watch);

/* The blob of that name (canonical NCHW) of the last forward pass, copied to `out`, which has room
 * for `size` floats. Returns the number of floats of the blob, 0 when there is none of that name.
 * Only tops that are not overwritten in place are guaranteed to be what the layer wrote. */
size_t net_blob(const struct net *net, const char *name, float *out, size_t size,
                struct shape *shape);

struct net_memory {
    size_t activations, gradients, scratch; /* bytes */
};
struct net_memory net_memory(const struct net *net);

/* Times that activations change their layout in a step. */
unsigned net_reorders(const struct net *net);

/* Multiply-adds of a training step's matrix products (forward, and both backward products) × 2. */
double net_flops(const struct net *net);

/* Number of classes that labels must stay below; 0 when the net has no loss. */
size_t net_classes(const struct net *net);

#endif
