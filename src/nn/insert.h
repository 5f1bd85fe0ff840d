/* Layers that the file does not have, between a blob and those that read it: casts (cast.h), and
 * the places where slices of a model meet (partition.h). A blob has at most one copy by layers of
 * one type, which all its readers share. */
#ifndef PL_NN_INSERT_H
#define PL_NN_INSERT_H

#include "nn/graph.h"

struct insertion {
    const struct layer_ops *ops;
    const char *type, *copy; /* the layer's name is "X as `copy`", which the file may use, too */
    struct shape shape;      /* of the copy, in the blob's layout */
    enum dtype dtype;
};

/* Have bottom k of the net's newest layer be the copy of what it is. The layer stays the newest.
 * The net must have room for a layer and a blob for each of its bottoms. ERR_NOMEM */
int insert_layer(struct net *net, struct layer *reader, size_t k, const struct insertion *insertion,
                 struct err *err);

#endif
