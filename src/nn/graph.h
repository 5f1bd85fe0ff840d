/* The inside of a net: layers in the order of the file, the blobs between them, and the two steps
 * that make it. */
#ifndef PL_NN_GRAPH_H
#define PL_NN_GRAPH_H

#include "nn/layer.h"

struct net {
    struct arena arena;
    enum phase phase;
    size_t N;             /* records a batch at most */
    size_t count;         /* of the last forward pass; 0 before the first */
    struct layer **layer; /* those of this phase */
    size_t n_layers;
    struct blob **blob; /* all versions, oldest first */
    size_t n_blobs;
    struct segments segments, states;
    struct net_memory memory;
};

/* Layers of the phase, connected by name, each set up. On failure the caller frees the net. */
int graph_build(struct net *net, const Caffe__NetParameter *param,
                const struct net_options *options, struct err *err);

/* Who needs a gradient, who shares memory, and where every blob lies. */
int plan_make(struct net *net, struct err *err);

/* A blob has a gradient when a parameter lies before it and a loss after it. */
static inline bool blob_has_gradient(const struct blob *blob)
{
    return blob->needs && blob->leads;
}

#endif
