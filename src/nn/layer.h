/* The interface of layers inside this folder: each type, or group of similar types, is a file that
 * fills a table `struct layer_ops`, listed in layers.c. A layer's object begins with `struct
 * layer`; the fields of its type follow.
 *
 * The life of a net: graph.c makes layers and blobs from the message and calls each `setup` in
 * order of the file; memory_plan.c then decides which blobs need a gradient and gives every blob
 * its memory; nn_net.c runs forward and backward. Nothing of x may be kept between a forward and
 * its backward but activations: several learners use one net in turns. */
#ifndef PL_NN_LAYER_H
#define PL_NN_LAYER_H

#include "nn/filler.h"
#include "nn/net.h"
#include "tensor/columns.h"

enum { LAYER_PARAMS_MAX = 7 };

struct layer;
struct piece;
struct fold;

/* One version of a named array: a layer that works in place makes a new version of its bottom's
 * name. 4-D blobs have the kernel set's image layout, or blocks (blocks.h), and may be bf16; all
 * others are plain floats. */
struct blob {
    const char *name;
    struct shape shape; /* canonical; outermost the planned batch, but for scalars */
    enum layout layout;
    enum dtype dtype; /* of values and gradient */
    size_t count;     /* elements */
    struct layer *maker;
    size_t users;
    struct blob *over;  /* the bottom whose memory holds the values */
    struct blob *under; /* the bottom whose gradient uses the memory of this one's */
    float weight;       /* loss_weight: the net's loss has the sum of the values, times this */
    bool is_labels;     /* class numbers from the data layer */
    bool is_numbers;    /* integers from the data layer: a field of the records */
    bool is_borrowed;   /* values may lie in the caller's batch: not to be written */
    bool is_whole;      /* the outermost axis is not the batch: it has no records; only layers
                           with takes_whole read it */
    bool needs, leads;  /* depends on parameters; a loss depends on it: both: has a gradient */
    size_t parts;       /* of the gradient, as many as links write it */
    struct link
        *second_grad; /* its dx is the rest of the gradient, which the maker adds when it reads */
    bool inserted;    /* made by an inserted layer: no version of its name (insert.h) */
    const struct blob *numbers; /* rows along the last axis repeat: those of one number of this blob
                                   below `kinds` are equal, others are NaN, and gradients are
                                   added up by number; NULL: they need not */
    size_t kinds;
    bool data_parallel; /* has this slice's part of the records alone (partition.h) */
    size_t units; /* of axis `unit_axis` that slices share out, all of them; 0: it is whole; */
    size_t unit_axis;
    struct range own;    /* and those that the blob has: all, or a slice's */
    bool kept;           /* net_blob may read the values: no other blob uses their memory */
    void *at, *d;        /* values; gradient, or NULL where there is none (as good as 0) */
    bool rematerialised; /* the maker makes the values again for backward */
    void *room;          /* for the forward's values: others are the caller's, or rematerialised */
    struct piece *values, *repeated, *gradient; /* the plan's (live_ranges.h); repeated: of
                                                   rematerialised values */
};

/* A bottom: how a layer uses a blob. */
struct link {
    struct blob *blob;
    void *dx; /* where backward writes the gradient: the blob's, or scratch; NULL: not wanted */
    struct piece *scratch;
    bool adds;         /* dx is scratch, which nn_net.c adds to the blob's after backward, unless it
                        * is the blob's rest */
    bool stops;        /* propagate_down is false: no gradient through here */
    bool no_gradient;  /* set by setup: backward writes none here, which is refused where another
                          layer would need it */
    bool forward_only; /* backward does not read these values, whatever the layer's reads_bottom */
    bool remakes;      /* of all layers that read the blob in backward it is the first: it
                          rematerialises the blob */
};

struct layer_param {
    size_t index, offset; /* in the segment table; in x and dx */
    struct filler filler;
    bool shared; /* by name: a layer before made it, and its filler fills it */
};

/* The part of a layer in a chain of layers that runs as one (layer_chain.h), in the order there. */
enum chain_part { CHAIN_NONE, CHAIN_NORM, CHAIN_SCALE, CHAIN_SUM, CHAIN_RELU, CHAIN_PARTS };

/* Those that backward computes: first those of the bottoms alone, and then the others, of a layer
 * whose outputs slices share out. */
enum gradients { GRADIENTS_ALL, GRADIENTS_BOTTOMS, GRADIENTS_PARAMS };

/* The arguments of forward and backward. */
struct pass {
    const float *x;
    float *s;  /* forward only, as are batch and result */
    float *dx; /* backward only, as are gradients */
    enum gradients gradients;
    const struct net_batch *batch;
    struct net_result *result;
};

/* In a net of bf16, the type of a layer's 4-D bottoms and tops: floats; bf16; or that of its
 * bottoms, bf16 if one of them is. Other bottoms are cast for it (cast.h). */
enum layer_takes { TAKES_F32, TAKES_BF16, TAKES_EITHER };

/* The arguments of setup. */
struct setup {
    const struct net_options *options;
    struct arena *arena;
    struct op_scratch *scratch;         /* that ops have while they run */
    struct segments *segments, *states; /* of x; of s */
    struct segments *whole;             /* of x of the model that this net is a slice of */
    struct model_slice slice; /* that the layer is to be of: of one, unless it is in the range of
                                 layers that are shared out */
    bool data_parallel;       /* the layer is before that range */
    struct shares *shares;    /* parameters with a name of their own (share.h) */
    size_t *carried;          /* floats of a record's in net_batch.carried; a layer adds its own */
    bool blocks;              /* images lie in blocks of channels (blocks.h) */
    bool normalised; /* only a BatchNorm with batch statistics reads the layer's top: it removes
                        a constant of the channel, which so has no gradient */
};

struct layer_ops {
    /* Caffe's names for the type, NULL at the end. */
    const char *const *types;

    /* The sub-messages of LayerParameter that the type reads, NULL at the end; the graph refuses
     * all others by name, so that nothing a user writes is silently without effect. */
    const char *const *messages;

    /* Bytes of the layer's object. */
    size_t size;

    /* May write its top over its bottom ("top" and "bottom" of one name), and its bottom's
     * gradient over its top's. */
    bool in_place;

    /* backward reads values of the bottoms, or of the tops, which are then kept until it has run.
     * These are the initial values of struct layer's fields; setup may change them. */
    bool reads_bottom, reads_top;

    /* A loss: the first top is one number, which counts for the net's loss with loss_weight, 1 by
     * default. forward ends with layer_loss; backward takes the weight from layer_loss_weight. */
    bool is_loss;

    /* Check the number of bottoms and tops and every field of the type's message: each is honoured
     * or refused by name. Infer and set the tops' shapes (layer_top), declare parameters in the
     * segment table (layer_param), plan the op in setup->arena. Bottoms have their shapes and
     * layouts by now, but no memory. layer->param is the message, borrowed during setup only.
     * The graph puts the layer's name before messages of errors. */
    int (*setup)(struct layer *layer, const struct setup *setup, struct err *err);

    /* (optional) net_keep_own_carried of the layer's part of the row. */
    void (*keep_own_carried)(const struct layer *layer, const struct model_slice *slice, float *row,
                             bool is_own);

    /* Tops from bottoms. Allocates nothing, cannot fail. */
    void (*forward)(struct layer *layer, const struct pass *pass);

    /* From the tops' gradients: write each wanted link's dx, add to the parameters' in pass->dx.
     * Called only when some gradient is wanted. NULL when there can be none. */
    void (*backward)(struct layer *layer, const struct pass *pass);

    /* Where slices share the layer out and meet within it (NULL: they do not), in place of forward
     * and backward: run up to the next meeting, and set *point, with its `share` of the pass;
     * false: there is no further one. `begins`: from the beginning. */
    bool (*forward_part)(struct layer *layer, const struct pass *pass, bool begins,
                         struct net_point *point);
    bool (*backward_part)(struct layer *layer, const struct pass *pass, bool begins,
                          struct net_point *point);

    /* The top again, as the last forward made it, before backward. NULL where no layer of the type
     * is one that remakes. */
    void (*remake)(struct layer *layer);

    /* backward writes a gradient for the first bottom alone (others are labels, targets): the net
     * is refused where another would need one. */
    bool first_only;

    /* backward reads its only top's gradient in two parts, where there are two (blob's rest). */
    bool takes_second_grad;

    /* A channel of its top depends on that channel of its only bottom, with parameters and a state
     * by channel: it may read a part of the channels (blob's units). By its type, unless
     * by_channel_for decides for each layer. */
    bool by_channel;
    bool (*by_channel_for)(const Caffe__LayerParameter *param);

    /* Its parameters and its state are few numbers: where its bottom is whole each slice of a model
     * has all of them, and its gradient is the whole net's. */
    bool small_params;

    /* May read blobs without records (is_whole), and then its tops have none either. */
    bool takes_whole;

    /* Reads images in blocks of channels, and makes its tops so, where those would lie so. Of the
     * type; struct layer's is of the layer, once it is set up. */
    bool takes_blocks;

    /* The layouts that it reads, unless takes_for decides for each layer. */
    enum layer_takes takes;
    enum layer_takes (*takes_for)(const Caffe__LayerParameter *param);
};

struct layer {
    const struct layer_ops *ops;
    const Caffe__LayerParameter *param; /* during setup only */
    const char *name, *type;
    size_t index;   /* in the NetParameter, so the same in both phases */
    size_t nth;     /* of the net's layers */
    size_t in_file; /* its index, or its first member's, among the layers of the file (fuse.h) */
    struct link *bottom;
    size_t n_bottom;
    struct blob **top;
    size_t n_top;
    struct layer_param at[LAYER_PARAMS_MAX];
    size_t n_at;
    struct op *op;            /* released by net_free */
    size_t buffer_bytes;      /* of activations that are no blob */
    size_t scratch_bytes;     /* that the op wants while it runs, */
    struct piece *scratch[2]; /* forward; backward */
    double products;          /* multiply-adds of the forward matrix product */
    bool shares_out;          /* slices of a model share its outputs out; */
    size_t outputs;           /* all of them (or their groups), where there are slices, else 0; */
    struct range own;         /* and those that the net has: all, or a slice's; */
    bool by_channel;          /* its bottom has such a part, and so have its parameters */
    /* Where slices add up the bottom's gradient: before this layer's backward, or its own sum, that
     * sum ends; where they gather the top, before this layer's forward. NULL: before the next
     * layer's. */
    struct layer *awaited_by;
    bool by_gate;         /* axis 0 of a parameter may have all outputs once for each gate */
    bool by_column;       /* outputs are the columns of a matrix of parameters, not its rows */
    struct columns group; /* of the bottom, where each group reads inputs of its own: */
    float *inputs, *inputs_dx;
    size_t classes;     /* labels from the data layer must stay below; 0: it reads none */
    size_t numbers;     /* the same of integers from there that it looks up, or predicts */
    size_t top_k;       /* of an accuracy; else 0 */
    bool judges;        /* the accuracy that counts net_result.right */
    unsigned reorders;  /* of images between layouts, in a step; the op has its own */
    bool inserted;      /* the file does not know it (insert.h) */
    bool data_parallel; /* computes this slice's part of the records (partition.h) */
    bool runs_backward;
    enum dtype dtype; /* of 4-D bottoms and tops */
    enum chain_part part;
    bool takes_largest; /* its top's values are each the largest of some of its bottom's */
    /* For testing (fold.h): whether the first parameter's rows may be multiplied by channel of the
     * top; the layers folded in, or NULL; the memory of the folded parameters; a bias where the net
     * has none. */
    bool folds;
    struct fold *fold;
    struct piece *folded;
    float *folded_at, *zeros;
    bool takes_blocks;
    bool in_place, reads_bottom, reads_top; /* of the type; of this layer, once it is set up */
    size_t n_over; /* this many of its first bottoms may share memory with its top: of these,
                      each element is read before it is written */
    bool remakes;  /* can compute its only top again in one pass over the values that its
                      backward reads anyway */
};

/* The type's table, or NULL. */
const struct layer_ops *layer_find(const char *type);

/* All types, "A, B, C", into `out`; returns `out`. */
char *layer_types_text(char *out, size_t size);

/* ERR_INPUT unless there are that many. */
int layer_links(const struct layer *layer, size_t bottoms, size_t tops, struct err *err);

/* ERR_INPUT unless the numbers are within the limits, inclusive; a maximum of 0 is no limit. */
int layer_links_between(const struct layer *layer, size_t bottoms_min, size_t bottoms_max,
                        size_t tops_min, size_t tops_max, struct err *err);

/* ERR_INPUT unless the bottom is (N, C, H, W). `what` is the reader: "a convolution". */
int layer_image(const struct layer *layer, const char *what, struct err *err);

/* Caffe's `axis`, if set, must be 1, or its equal counted from the end. */
int layer_axis(const struct layer *layer, const char *field, int32_t axis, struct err *err);

/* Caffe's `axis` of the first bottom, counted from the end if negative: `at` is below its number of
 * dimensions. ERR_INPUT where there is no such axis. */
int layer_axis_at(const struct layer *layer, const char *field, int32_t axis, size_t *at,
                  struct err *err);

/* Set a top's shape. ERR_INPUT when it is empty or too large. */
int layer_top(struct layer *layer, size_t i, const struct shape *shape, enum layout layout,
              struct err *err);

/* Does the net have a part of the layer's outputs alone, as a slice? */
static inline bool layer_is_cut(const struct layer *layer)
{
    return layer->own.len < layer->outputs;
}

/* Share out `units`: outputs, or groups of as many each (`what`). A layer that calls this is one
 * that slices share out: its parameters are (outputs, ..), or by_column (.., outputs), are declared
 * with their whole shape, and come cut; its op is planned for layer_own_of(outputs); without
 * backward_part its backward goes by pass->gradients. ERR_INPUT: there are more slices than units
 */
int layer_share_units(struct layer *layer, const struct setup *setup, size_t units,
                      const char *what, struct err *err);

/* The same of the units of an axis of the top, which has its shape, and becomes as small. */
int layer_share_out(struct layer *layer, const struct setup *setup, size_t axis, size_t units,
                    const char *what, struct err *err);

/* Then, of a layer each of whose units reads inputs of its own, an equal part of axis 1 of the
 * bottom: its op is planned for layer_own_of(inputs), with layer->inputs, if there are, for the
 * bottom. ERR_NOMEM */
int layer_share_in(struct layer *layer, const struct setup *setup, struct err *err);

/* How the part that a slice has of an axis of a blob, `own` of the units, lies in the whole blob.
 * `blob` is one of the two. Of images it is axis 1. */
struct columns layer_columns(const struct blob *blob, bool is_whole, size_t axis, size_t units,
                             struct range own);

/* How many of `all` the net has, where the layer's units have equally many each. */
static inline size_t layer_own_of(const struct layer *layer, size_t all)
{
    return layer_is_cut(layer) ? all / layer->outputs * layer->own.len : all;
}

/* Declare the layer's next blob of parameters, with the multipliers of its `param` entry; by a name
 * there that an earlier layer gave, it is that layer's blob. */
int layer_param(struct layer *layer, const struct setup *setup, const struct shape *shape,
                const char *field, const Caffe__FillerParameter *filler, struct err *err);

/* Declare a blob of state, the layer's kth: `offset` in s. It begins at zero. In a slice s is
 * whole; the shape may be a part of it, where its axis 0 goes `by_channel`. */
int layer_state(const struct layer *layer, const struct setup *setup, size_t k,
                const struct shape *shape, bool by_channel, size_t *offset, struct err *err);

/* Check that no more `param` entries are given than the layer has parameters. */
int layer_params_done(const struct layer *layer, struct err *err);

/* The end of a loss's forward: `sum` is the batch's loss, as in Caffe, times the records. Top 0
 * gets the loss, the net's result the weighted sum. */
void layer_loss(struct layer *layer, const struct pass *pass, double sum);

/* In backward: how much the net's loss grows with the layer's. */
static inline float layer_loss_weight(const struct layer *layer)
{
    const float *d = layer->top[0]->d;
    return d ? *d : 0.0f;
}

/* A layer that folds (fold.h): its op is planned with a bias of n floats, and *bias becomes true; a
 * missing bias is zeros. Does nothing if no layer is folded in. ERR_NOMEM */
int layer_folds(struct layer *layer, const struct setup *setup, size_t n, bool *bias,
                struct err *err);

/* Set the w and b of args for a forward pass: the folded ones, if layers are folded in. */
void layer_params(const struct layer *layer, const struct pass *pass, struct op_args *args);

/* Leave those of args that the pass wants. */
void layer_pick_gradients(const struct pass *pass, struct op_args *args);

/* forward and backward of layers that are one op on bottom 0, top 0 and parameters (w, b). */
void layer_op_forward(struct layer *layer, const struct pass *pass);
void layer_op_backward(struct layer *layer, const struct pass *pass);

#endif
