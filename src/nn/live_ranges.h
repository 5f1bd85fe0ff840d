/* When a net uses its memory, in moments of a training step: layer i of n runs forward at moment i,
 * and backward at 2n − 1 − i; kept values are valid until 2n.
 *
 * A value lives from its maker's forward to its last reader's, or to the last backward that reads
 * it. A rematerialised blob has two live ranges: to its last reader's forward, and from the first
 * backward that reads it to the last. A gradient lives from the backward of the blob's last user to
 * that of its maker; a part that the maker adds lives from its own writer on, and one that slices
 * still add up until that is over. All share one room,
 * and live ranges that do not overlap may share memory. */
#ifndef PL_NN_LIVE_RANGES_H
#define PL_NN_LIVE_RANGES_H

#include "nn/graph.h"

static inline size_t live_ranges_backward(const struct net *net, const struct layer *layer)
{
    return 2 * net->n_layers - 1 - layer->nth;
}

/* Find the pieces of values, gradients, partial gradients and ops' scratch, and an offset for each;
 * sets net->room_floats and net->memory. `over`, `under`, `adds`, `rest` and `remade` must be set.
 * ERR_NOMEM */
int live_ranges_plan(struct net *net, struct err *err);

/* Have blobs and links lie in net->room. */
void live_ranges_finish(struct net *net);

/* Begin the second live range of a rematerialised blob, or the first again. */
void live_ranges_repeat(const struct net *net, struct blob *blob);
void live_ranges_restart(struct blob *blob);

/* Where the layer's op has its scratch, while it runs; NULL: it wants none. */
void *live_ranges_scratch(const struct net *net, const struct layer *layer, bool backward);

/* For tests of the reads that layers declare: fill the room before the first moment, and pieces
 * after their last, with NaN. */
void live_ranges_poison(const struct net *net);
void live_ranges_poison_after(const struct net *net, size_t moment);

#endif
