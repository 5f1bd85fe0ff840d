/* A network: a graph of layers over flat x, dx, s (D1), planned once for one batch size and phase.
 *
 * The plan (shapes, ops, activations) is separate from the parameters, which every call brings
 * along: learners that take turns can share one net and its memory. After net_create nothing
 * allocates. Not thread-safe: one net, one caller at a time. */
#ifndef PL_NN_NET_H
#define PL_NN_NET_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/columns.h"
#include "tensor/kernels.h"
#include "tensor/model_slice.h"

enum phase { PHASE_TRAIN, PHASE_TEST };

struct net_options {
    enum phase phase;
    size_t batch;       /* records a call at most */
    struct shape input; /* of one record, (C, H, W), for data layers that state none */
    /* Of each record, borrowed while the net is made: tops of data layers with such a name have
     * their values; NULL, or none: the first top has the whole record. */
    const struct fields *fields;
    const struct kernels *kernels;
    enum dtype dtype;    /* of images and their gradients while training; bf16: kernels has_bf16 */
    bool budgeted;       /* memory_limit is what the job's memory_budget leaves */
    size_t memory_limit; /* bytes, of all that the net and its training need; 0: none */
    const char *memory_by; /* the container's limit that it is, for messages; NULL: the machine's */
    struct tuner *tuner;   /* used while the net is made; NULL: the kernels' choices go by rule */
    /* The blob that net_blob may read besides the net's outputs, which no layer reads: the blob of
     * that name (NULL: none), or all of them, each then in memory of its own. */
    const char *keep;
    bool keep_all;
    bool brings_room; /* the caller does, by net_take_room */
    /* Of layers that slices share out the net has this slice's outputs; others with weights are
     * refused. SLICE_ALL: the net is whole, but refused likewise. */
    struct model_slice slice;
    /* The first and the last layer that slices share out (partition.h); NULL: the net's. Borrowed
     * while the net is made. */
    const char *slices_from, *slices_to;
};

/* One batch. `data` holds count records, each of the input's size, NCHW; the values must be finite
 * and labels within the classes of the net (checked by the data layer: asserted here). Borrowed by
 * net_forward; `data`, as the net may work on it where it lies, until net_backward and net_blob. */
struct net_batch {
    const float *data;
    const uint32_t *labels;  /* may be NULL when no layer of the net reads them */
    const uint64_t *records; /* index of each record: keys dropout masks */
    size_t count;            /* 1 .. net_options.batch */
    uint64_t seed, epoch;    /* keys dropout masks too */
    /* For each record the net_carried floats that its recurrent layers begin with; net_forward
     * puts there what they end with. NULL: they begin with 0. */
    float *carried;
};

/* Sums over the batch's records, so that batches can be added up.
 *
 * loss   the batch's loss as Caffe has it (each top times its loss_weight) × count. If that is the
 *        mean over the records, as it is unless loss_param sets otherwise, the sum over batches is
 *        that over all their records in any split. If it is not (ignored labels, normalization
 *        NONE, loss_weight on a layer that is no loss), sums stand for the mean of the batches'
 *        losses, as Caffe's tests print it.
 * right accuracy × count: the number of correct records, if each has one label. Of several
 *        Accuracy layers one counts: one that reads the same scores as the loss with the largest
 *        loss_weight (among equals the last) if there is one; of these, the one with the smallest
 *        top_k; of these, the first.
 */
struct net_result {
    double loss;
    double right;
    bool has_right; /* there is an accuracy */
    size_t count;
};

struct net;

/* Build the net for one phase (layers that their include/exclude rules exclude are dropped). The
 * message is borrowed only during the call. Messages of errors name the layer.
 *
 * ERR_INPUT        a bad field, shape or connection
 * ERR_UNSUPPORTED  a layer type or option that is not supported, by name; bf16 where the kernels or
 *                  the processor have none; with slices, a layer that they cannot share out
 * ERR_NOMEM        memory, or memory_limit, runs out: the limit is checked before memory is
 *                  allocated, and the message then names the largest layer as well
 */
int net_create(const Caffe__NetParameter *param, const struct net_options *options,
               struct net **out, struct err *err);
void net_free(struct net *net);

/* The number of floats for values and gradients. Nets with caller's room may share one, if only one
 * of them at a time is between a forward and its backward or net_blob. `room` is borrowed, aligned
 * as an arena's, and may be given again. */
size_t net_room(const struct net *net);
void net_take_room(struct net *net, float *room);

/* Valid until net_free. The tables of the two phases of one NetParameter match. */
const struct segments *net_segments(const struct net *net);       /* of x and dx */
const struct segments *net_state_segments(const struct net *net); /* of s */
/* Of x of the whole model: net_segments, unless the net is a slice of it. */
const struct segments *net_whole_segments(const struct net *net);

/* The segment that the layer's kth blob of parameters is: not named after the layer where another
 * owns it, as shared parameters have it. NULL when there is no such layer or blob. */
const struct segment *net_layer_param(const struct net *net, const char *layer, size_t k);

/* Initial values by each layer's filler: a pure function of (seed, parameter index, element). Those
 * of a slice are the whole model's. */
void net_init(const struct net *net, uint64_t seed, struct vec *x, struct vec *s);

/* Forward pass. x, s borrowed. Not of a slice. */
void net_forward(struct net *net, const struct vec *x, struct vec *s, const struct net_batch *batch,
                 struct net_result *result);

/* An observer of a backward pass: it is called, each time more of dx is complete, with the position
 * `from` from which dx is finished to its end, and the `share` of the step's products (of 1) that
 * are done; last, unless there are no parameters, from 0. */
struct net_watch {
    int (*finished)(void *user, size_t from, double share); /* anything but OK ends the pass */
    void *user;
};

/* Gradient of the mean loss over the batch last run forward, added to dx; but frozen parameters
 * (lr_mult 0) have none: dx, which must be 0 there, is not changed. `watch` may be NULL. Returns
 * its error, or OK. Not of a slice. */
int net_backward(struct net *net, const struct vec *x, struct vec *dx,
                 const struct net_watch *watch);

/* ---- the same, of a net that may be a slice (SparkDML §2.2) ----
 *
 * A slice has parts of the weights, and of the outputs of their layers. Where a layer needs all
 * outputs the pass stops, until the slices have gathered them; backward it stops where a layer's
 * outputs are shared out, until they have added up the bottom's gradient, to which each slice has
 * the contribution of its outputs. The net does not know how they do that. All slices stop at the
 * same points, in the same order.
 *
 * Where a range of layers is shared out, each slice computes the layers before it for a part of the
 * records, and has all of their parameters. Behind them the slices gather the records; at the end
 * of a step they add up the gradients of these parameters (net_ends_with_sum). */

enum net_meeting {
    NET_GATHER,
    NET_SUM,
    /* A gather or sum during which the pass has more to compute, of this layer and of others that
     * do not read the result: the caller may begin it and call net_continue, which leaves the
     * values alone up to its next point, the end of that gather or sum. Then they are complete. */
    NET_GATHER_BEGINS,
    NET_GATHER_ENDS,
    NET_SUM_BEGINS,
    NET_SUM_ENDS,
};

struct net_point {
    enum net_meeting meeting;
    size_t number; /* of the point in the net, the same for all slices; below net_points */
    /* Rows, one after another. Gathers: a row has `each` floats of each of the layer's
     * `outputs`; this slice has made those of its own (slice_units), and the caller writes the
     * others. Sums: the caller puts the sum of all slices' values here, which are one row of
     * `each` floats. */
    float *values;
    size_t rows, outputs, each;
    double share; /* of the whole net's products in a step: how much is done here (net_share) */
};

/* The columns of one slice in the values of a gather. */
static inline struct columns net_point_columns(const struct net_point *p,
                                               const struct model_slice *slice)
{
    return (struct columns){p->rows, p->outputs, p->each, slice_units(slice, p->outputs)};
}

/* Begin a pass; the arguments are those above and stay borrowed until it is over. */
void net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                       const struct net_batch *batch);
void net_begin_backward(struct net *net, const struct vec *x, struct vec *dx,
                        const struct net_watch *watch);

/* Run the pass that has begun up to its next point, valid until the next call, or to its end, where
 * *point is NULL. A pass may be given up at a point. Returns watch's error, or OK. */
int net_continue(struct net *net, const struct net_point **point);

/* Of the last forward pass. */
const struct net_result *net_last_result(const struct net *net);

/* Points have numbers below this, of which the last is the caller's own. 0: the net is no slice. */
size_t net_points(const struct net *net);

/* Of the layers before the range that slices share out, whose parameters and state x and s begin
 * with. Zeros: there are none, or the net is no slice. */
struct net_parallel {
    size_t floats, segments; /* of x */
    size_t states;           /* floats of s */
};
struct net_parallel net_parallel(const struct net *net);

/* The floats of the other layers' parameters that each slice has whole. 0: the net is no slice. */
size_t net_common(const struct net *net);

/* The point at the end of a step, at which the slices add up what dx has of these layers; false:
 * there is none. */
bool net_ends_with_sum(const struct net *net, struct vec *dx, struct net_point *point);

/* Leave in s this slice's summand of all slices' state: of data-parallel layers its part of the
 * mean; its own channels; and of other state all, in the first slice. */
void net_keep_own_states(const struct net *net, struct vec *s);

/* The part of the whole net's products in a step that this net has; 1: all. */
double net_share(const struct net *net);

/* Call `watch` as a backward pass would, without one. Returns its error, or OK. */
int net_foresee_backward(const struct net *net, const struct net_watch *watch);

/* The blob of that name (canonical NCHW) of the last forward pass, copied to `out`, which has room
 * for `size` floats. Returns the number of floats of the blob; 0: there is none of that name. If
 * there is room for them, the blob must be a kept one. Only tops that are not overwritten in place
 * are guaranteed to have the layer's values. */
bool net_keeps(const struct net *net, const char *name);
bool net_by_records(const struct net *net, const char *name); /* there is one, a piece a record */
/* There is one, of which each slice has a part. A blob that slices gather is whole. */
bool net_blob_is_part(const struct net *net, const char *name);
size_t net_blob(const struct net *net, const char *name, float *out, size_t size,
                struct shape *shape);

struct net_memory {
    size_t activations, gradients, scratch; /* bytes */
};
struct net_memory net_memory(const struct net *net);

/* Copies in a step besides the arithmetic: images between layouts, or between dtypes; weights and
 * their gradients between canonical order and that of a kernel. */
struct net_copies {
    unsigned reorders, casts, weights;
};
struct net_copies net_copies(const struct net *net);

/* How images lie between layers: "nchw", "nhwc", or "nchw16c" where those that have channels enough
 * lie in blocks of 16. */
const char *net_layout(const struct net *net);

/* Multiply-adds of a training step's matrix products (forward, and both backward products) × 2. */
double net_flops(const struct net *net);

/* Number of classes that labels must stay below, the smallest that a loss has scores for (a label
 * that all of them ignore may be above); SIZE_MAX when no loss takes labels as classes; 0 when the
 * net has no loss. */
size_t net_classes(const struct net *net);

/* The first layer that has rows, or a loss that has scores, for fewer than `numbers` integers from
 * the data layer: its name, which the net owns, and how many it has. false: there is none. */
struct net_shortage {
    const char *layer;
    size_t has;
    bool is_loss;
};
bool net_lacks(const struct net *net, size_t numbers, struct net_shortage *out);

/* Floats that recurrent layers carry for a record from one batch to the next: h, and of an LSTM c
 * behind it, of each layer in order of the file. 0: there are none. */
size_t net_carried(const struct net *net);

/* The records of a batch of so many for which a slice computes the data-parallel layers. */
struct range net_own_records(const struct net *net, size_t count);

/* Leave in a record's carried floats this slice's summand of all slices' states: of layers that
 * slices share out its own units; of data-parallel ones all, if the record `is_own`; and of others
 * all, in the first slice. */
void net_keep_own_carried(const struct net *net, float *row, bool is_own);

/* Is the first thing that it does with records to bring them near 0? */
bool net_normalises(const struct net *net);

bool net_judges(const struct net *net); /* there is an accuracy (net_result.right) */

#endif
