/* Where the slices of a model meet, and which of its layers they share out: those of the file from
 * `slices_from` to `slices_to` (net.h). Layers before them are **data-parallel** (the mixed scheme
 * of Krizhevsky 2014, "One weird trick"): each slice computes them for a part of the batch's
 * records, range_cut's, with all their parameters, so that its gradient of them is a contribution
 * to the batch's. Layers behind the range are whole on each slice. The data of a batch are whole,
 * and so are all blobs that layers from the range on read or make.
 *
 * A layer is inserted where a data-parallel layer reads data: it takes the slice's records; and
 * where another layer reads what a data-parallel one has made: slices gather the records. */
#ifndef PL_NN_PARTITION_H
#define PL_NN_PARTITION_H

#include "nn/graph.h"

/* Find the layers that net_options names. ERR_INPUT: there are none such, or fewer records than
 * slices */
int partition_find_range(struct net *net, const Caffe__NetParameter *param,
                         const struct net_options *options, struct err *err);

/* Set the setup's `slice` and `data_parallel` for the file's ith layer. */
void partition_place_layer(const struct net *net, size_t i, struct setup *setup);

/* Insert what the newest layer needs between its bottoms and their makers. ERR_NOMEM */
int partition_bottoms(struct net *net, struct layer *layer, const struct setup *setup,
                      struct err *err);

/* Of a layer that is set up: ERR_UNSUPPORTED where it cannot be data-parallel and would be. Its
 * tops, parameters and state count as such. */
int partition_finish_layer(struct net *net, struct layer *layer, const struct setup *setup,
                           struct err *err);

/* The part of the records that a pass over so many has for data-parallel layers. */
struct range partition_records(const struct net *net, size_t count);

/* How often the layer's products are the slice's, in all slices together. */
double partition_slices_of(const struct net *net, const struct layer *layer);

/* Do the slices meet behind the layer's pass? Then *point is set, but for its share. */
bool partition_forward(const struct layer *layer, struct net_point *point);
bool partition_backward(const struct layer *layer, struct net_point *point);

#endif
