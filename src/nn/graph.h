/* The inside of a net: layers in the order of the file, the blobs between them, and the two steps
 * that make it. */
#ifndef PL_NN_GRAPH_H
#define PL_NN_GRAPH_H

#include "nn/layer.h"
#include "nn/share.h"

struct net {
    struct arena arena;
    enum phase phase;
    size_t N;               /* records a batch at most */
    size_t count;           /* of the last forward pass; 0 before the first */
    struct layer **layer;   /* those of this phase */
    size_t n_layers, n_own; /* of these, not the file's: 1 where layer 0 is the net's own `input` */
    struct blob **blob;     /* all versions, oldest first */
    size_t n_blobs;
    struct segments segments, states;
    struct shares shares;
    size_t *finished; /* one a layer: dx is finished from there on when its backward has run */
    size_t classes;   /* net_classes */
    struct net_memory memory;
};

/* Layers of the phase, connected by name, each set up. On failure the caller frees the net. */
int graph_build(struct net *net, const Caffe__NetParameter *param,
                const struct net_options *options, struct err *err);

/* Who needs a gradient, who shares memory, and where every blob lies. ERR_INPUT where a gradient is
 * needed that a layer does not have. */
int plan_make(struct net *net, struct err *err);

/* What the optimizer does not move has no gradient: dx is 0 there. */
static inline bool param_frozen(const struct net *net, const struct layer_param *param)
{
    return net->segments.at[param->index].lr_mult == 0.0f;
}

/* Does top i take part in the way back? All of a loss's tops but the first are for the eye. */
static inline bool top_leads_back(const struct layer *layer, size_t i)
{
    return layer->ops->backward && (i == 0 || !layer->ops->is_loss);
}

/* May bottom k be given a gradient? */
static inline bool link_leads_back(const struct layer *layer, size_t k)
{
    return layer->ops->backward && !layer->bottom[k].stops;
}

/* A blob has a gradient when a parameter lies before it and a loss after it. */
static inline bool blob_has_gradient(const struct blob *blob)
{
    return blob->needs && blob->leads;
}

#endif
