/* A chain of layers that runs as one:
 *
 *     y = max(0, w · (x − μ) / sqrt(σ² + eps) + b + z)
 *
 * BatchNorm, Scale by channel, Eltwise SUM of two and ReLU, in this order, each of them optional.
 * For callers that ask for parameters, state or names, the member layers remain. */
#ifndef PL_NN_LAYER_CHAIN_H
#define PL_NN_LAYER_CHAIN_H

#include "nn/layer.h"

struct chain {
    struct layer *member[CHAIN_PARTS]; /* by enum chain_part; NULL: not there */
    struct link x, z;                  /* z.blob is NULL without a sum */
    struct layer *first, *last;        /* of the members */
};

/* The layer that computes the chain, with the last member's top as its own. For backward it keeps
 * only x and, with a sum, y; without a sum it can compute y again. Memory is the arena's. ERR_NOMEM
 */
int layer_chain_make(const struct chain *chain, enum phase phase, struct arena *arena,
                     struct layer **out, struct err *err);

#endif
