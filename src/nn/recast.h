/* The same values in another shape: their canonical order (row-major, NCHW) stays. Where that is
 * also the order in memory of both ends, nothing need move at all. */
#ifndef PL_NN_RECAST_H
#define PL_NN_RECAST_H

#include "nn/layer.h"

struct recast_end {
    struct shape shape;
    enum layout layout;
    bool reorders; /* memory is in another order than the values */
};

struct recast {
    struct recast_end from, to;
    size_t count;
    float *plain; /* scratch, where both ends reorder */
};

/* Between shapes of one count. Scratch is counted in layer->buffer_bytes, the reorders of a step in
 * layer->reorders. ERR_NOMEM */
int recast_init(struct recast *r, struct layer *layer, const struct setup *setup,
                const struct recast_end *from, const struct recast_end *to, struct err *err);

/* Whether both ends are one and the same memory order. */
bool recast_is_copy(const struct recast *r);

/* From x at the `from` end to y at the other; recast_back the other way round. */
void recast_forth(const struct recast *r, const float *x, float *y);
void recast_back(const struct recast *r, const float *y, float *x);

/* A layer that only recasts bottom 0 to top 0, which shares its memory where that can be. */
struct layer_recast {
    struct layer layer;
    struct recast recast;
};
int recast_layer(struct layer *layer, const struct setup *setup, const struct shape *to,
                 struct err *err);
void recast_layer_forward(struct layer *layer, const struct pass *pass);
void recast_layer_backward(struct layer *layer, const struct pass *pass);

#endif
