/* When a net's memory is wanted, in moments of a training step: layer i of n runs forward at moment
 * i, and backward at 2n − 1 − i; what is kept is there until 2n.
 *
 * A value lives from its maker's forward to its last reader's, or, where a backward reads it, to
 * that. A rematerialised blob has two live ranges: to its last reader's forward, and from the first
 * backward that reads it to the last. A gradient lives from the backward of the blob's last user to
 * that of its maker, as does what is left to the maker to add, from where it is written. All lie in
 * one room, one over the other where lives do not meet. */
#ifndef PL_NN_LIVE_RANGES_H
#define PL_NN_LIVE_RANGES_H

#include "nn/graph.h"

static inline size_t live_ranges_backward(const struct net *net, const struct layer *layer)
{
    return 2 * net->n_layers - 1 - layer->nth;
}

/* Find the pieces of values, gradients, what links write to be added, and ops' scratch, and a
 * place for each;
 * net->room_floats and net->memory say how much they take. `over`, `under`, `adds`, `rest` and
 * `remade` are settled. ERR_NOMEM */
int live_ranges_plan(struct net *net, struct err *err);

/* Have blobs and links lie in net->room. */
void live_ranges_finish(struct net *net);

/* Begin the second live range of a rematerialised blob, or the first again. */
void live_ranges_repeat(const struct net *net, struct blob *blob);
void live_ranges_restart(struct blob *blob);

/* Where the layer's op has its scratch, while it runs; NULL: it wants none. */
void *live_ranges_scratch(const struct net *net, const struct layer *layer, bool backward);

/* For tests of what layers say that they read: fill the room before the first moment, and pieces
 * after their last, with what is not finite. */
void live_ranges_poison(const struct net *net);
void live_ranges_poison_after(const struct net *net, size_t moment);

#endif
