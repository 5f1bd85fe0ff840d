/* Shared parameters, as Caffe has them: a `param` entry with a name makes the layer's blob one of
 * all layers that use the name. It is one segment of x and one of dx, to which they all add. The
 * first layer in the file owns it: its shape is the segment's and its filler fills it. */
#ifndef PL_NN_SHARE_H
#define PL_NN_SHARE_H

#include "base/arena.h"
#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/segment.h"

/* A name in use. */
struct share {
    const char *name, *owner; /* of the parameters; of the first layer */
    size_t segment;
    bool has_lr, has_decay; /* some layer has set the multiplier, and all others must agree */
};

struct shares {
    struct share *at;
    size_t count, cap;
};

/* The name's entry, or NULL. Valid until the next is added. */
struct share *shares_find(const struct shares *shares, const char *name);

/* Record that layer `owner` is the first to use spec->name, for segment number `segment`. Strings
 * are copied into the arena. ERR_NOMEM. */
int shares_add(struct shares *shares, struct arena *arena, const Caffe__ParamSpec *spec,
               const char *owner, size_t segment, struct err *err);

/* Another layer uses the name: ERR_INPUT unless its blob's shape is the owner's (share_mode STRICT)
 * or has as many elements (PERMISSIVE), and multipliers that both have set agree. One that only
 * this layer has set goes to the segment. */
int shares_join(struct share *share, struct segment *segment, const Caffe__ParamSpec *spec,
                const struct shape *shape, struct err *err);

#endif
