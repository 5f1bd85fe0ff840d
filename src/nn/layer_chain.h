/* A chain of layers that runs as one:
 *
 *     y = max(0, w · (x − μ) / sqrt(σ² + eps) + b + z)
 *
 * BatchNorm, Scale by channel, Eltwise SUM of two and ReLU, in this order, each there or not. To
 * callers that ask for parameters, state or names, the layers themselves stay as they are. */
#ifndef PL_NN_LAYER_CHAIN_H
#define PL_NN_LAYER_CHAIN_H

#include "nn/layer.h"

struct chain {
    struct layer *member[CHAIN_PARTS]; /* by enum chain_part; NULL: not there */
    struct link x, z;                  /* z.blob is NULL without a sum */
    struct layer *first, *last;        /* of the members */
};

/* The layer that does what the chain's do, with the last one's top as its own. It keeps nothing for
 * backward but x and, with a sum, y; without one it can make y again. Memory is the arena's.
 * ERR_NOMEM */
int layer_chain_make(const struct chain *chain, enum phase phase, struct arena *arena,
                     struct layer **out, struct err *err);

#endif
