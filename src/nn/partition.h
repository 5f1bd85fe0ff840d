/* Where the slices of a model meet, and which of its layers they share out: those of the file from
 * `slices_from` to `slices_to` (net.h). Layers before them are **data-parallel** (the mixed scheme
 * of Krizhevsky 2014, "One weird trick"): each slice computes them for a part of the batch's
 * records, range_cut's, with all their parameters, so that its gradient of them is a contribution
 * to the batch's. Layers behind the range are whole on each slice; of tests with fewer records than
 * slices, those before it, too.
 *
 * The top of a layer that slices share out has the slice's part of the channels, and so have those
 * of layers by channel that follow it, with their parameters. Their state is whole in s, of which
 * each slice computes its part.
 *
 * A layer is inserted where a data-parallel layer reads data, which are whole: it takes the slice's
 * records; and where a layer needs more than a part of the records, or of the channels: there the
 * slices gather them. */
#ifndef PL_NN_PARTITION_H
#define PL_NN_PARTITION_H

#include "nn/graph.h"

/* Find the layers that net_options names. ERR_INPUT: there are none such, or fewer records than
 * slices */
int partition_find_range(struct net *net, const Caffe__NetParameter *param,
                         const struct net_options *options, struct err *err);

/* Set the setup's `slice` and `data_parallel` for the file's ith layer. */
void partition_place_layer(const struct net *net, size_t i, struct setup *setup);

/* Insert what the newest layer, whose type is known, needs between its bottoms and their makers.
 * ERR_NOMEM */
int partition_bottoms(struct net *net, struct layer *layer, const struct setup *setup,
                      struct err *err);

/* Of a layer that is set up: its tops have the part that it has. ERR_UNSUPPORTED where a loss would
 * be of a part. */
int partition_finish_layer(struct net *net, struct layer *layer, const struct setup *setup,
                           struct err *err);

/* The net is built: where its slices gather a blob, net_blob has the copy, which is whole. */
void partition_name_copies(struct net *net);

/* How often the layer's products are the slice's, in all slices together. */
double partition_slices_of(const struct net *net, const struct layer *layer);

/* Numbers of a layer's points, of which each has one size. */
enum {
    POINT_TOP,
    POINT_BOTTOM,
    POINT_STEP, /* of recurrent units: h of a step, or another state; its gradient; that of all; */
    POINT_HIDDEN,
    POINT_SLOPE,
    POINT_OUTPUT, /* their outputs by products; the gradient of the static input */
    POINT_FIXED,
    LAYER_POINTS
};
size_t partition_number(const struct layer *layer, size_t point);

/* Do the slices meet behind the layer's pass? Then *point is set. */
bool partition_forward(const struct layer *layer, struct net_point *point);
bool partition_backward(const struct layer *layer, struct net_point *point);

/* Have each gather begin as early as it can, and find how long others can run forward meanwhile. */
void partition_hasten_gathers(struct net *net);

/* Find, for each sum behind a layer's backward, how long others can run backward meanwhile. */
void partition_await_sums(struct net *net);

/* Has the other layer, which this one's sum is awaited by, a sum of its own to await it with? */
bool partition_sums_next(const struct layer *layer);

/* The sum of the gradients of a bottom that is whole. */
bool partition_sum(const struct layer *layer, size_t k, size_t number, struct net_point *point);

#endif
