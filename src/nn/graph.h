/* The inside of a net: layers in the order of the file, the blobs between them, and the two steps
 * that make it. */
#ifndef PL_NN_GRAPH_H
#define PL_NN_GRAPH_H

#include "nn/layer.h"
#include "nn/memory_layout.h"
#include "nn/profile.h"
#include "nn/share.h"

/* The layers of the file, where not all of them run (fuse.h). */
struct net_file {
    struct layer **layer;
    size_t n_layers;
    struct blob **blob;
    size_t n_blobs;
};

/* Of the layers of the file: both ends. */
struct file_range {
    size_t from, to;
};

/* How far a backward pass is, for its observer. */
struct watched_pass {
    const struct net_watch *watch; /* may be NULL */
    double all, done;              /* flops of a step */
    size_t from;                   /* dx is finished from here on */
};

/* A pass: layers before `next` have run, or backward those from `next` on. Where it has stopped,
 * the next one has, too, all but its end. */
struct net_run {
    struct pass pass, part;   /* `part` of data-parallel layers */
    struct net_batch records; /* of which they are */
    size_t next;
    bool backward, stopped;
    double done; /* flops of the step so far */
    struct net_point point;
    struct layer *meeting; /* whose values the slices gather or add up while other layers run */
    struct net_point end;  /* where that ends; */
    bool ends;             /* and the pass has stopped there */
    struct net_result result;
    struct watched_pass watched;
};

struct net {
    struct arena arena;
    enum phase phase;
    size_t N;               /* records a batch at most */
    bool blocks;            /* images lie in blocks of channels, */
    enum layout images;     /* else so */
    size_t count;           /* of the last forward pass; 0 before the first */
    struct layer **layer;   /* those of this phase */
    size_t n_layers, n_own; /* of these, not the file's: 1 where layer 0 is the net's own `input` */
    struct blob **blob;     /* all versions, oldest first */
    size_t n_blobs;
    struct net_file file;
    struct segments segments, states;
    struct segments whole; /* of the whole model; empty where this is it */
    struct model_slice slice;
    struct file_range range; /* of layers that slices share out */
    struct range records;    /* of a full batch: those of this slice's data-parallel layers */
    bool divides_records;    /* there are such layers, for a part of the records each */
    struct net_parallel parallel;
    struct net_run run; /* the pass under way */
    struct shares shares;
    struct op_scratch scratch; /* of the op that runs */
    struct piece *piece;       /* of the room: values, gradients, links' scratch */
    size_t n_pieces;
    float *room; /* NULL: still to be brought */
    size_t room_floats;
    bool poisoned;    /* for tests: memory that must not be read is filled with NaN
                         (live_ranges.h) */
    size_t *finished; /* one a layer: dx is finished from there on when its backward has run */
    size_t classes;   /* net_classes */
    size_t carried;   /* net_carried */
    struct net_memory memory;
    const struct net_probe *probe; /* borrowed; NULL: no measurement */
};

/* Builds the net of net_create, with its images in blocks of channels or not; in blocks, all layers
 * must be able to read them (blocks.h). */
int net_build(const Caffe__NetParameter *param, const struct net_options *options, bool blocks,
              struct net **out, struct err *err);

/* Layers of the phase, connected by name, each set up. On failure the caller frees the net. */
int graph_build(struct net *net, const Caffe__NetParameter *param,
                const struct net_options *options, struct err *err);

/* Decides which blobs need a gradient, which share memory, and where every blob lies. ERR_INPUT
 * where a gradient is needed that a layer does not have. */
int plan_make(struct net *net, const struct net_options *options, struct err *err);

/* A parameter that the optimizer does not move has no gradient: dx is 0 there. */
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

/* Does backward read the values of the bottom? */
static inline bool link_is_read_back(const struct layer *layer, const struct link *link)
{
    return layer->runs_backward && layer->reads_bottom && !link->forward_only;
}

/* Is backward to write a gradient through this link? */
static inline bool link_wants_gradient(const struct layer *layer, const struct link *link)
{
    return layer->runs_backward && blob_has_gradient(link->blob) && !link->stops;
}

#endif
