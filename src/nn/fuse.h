/* Layers that run as one (layer_chain.h), found in a net and put in the place of those they are of.
 *
 * A net has two lists: net->layer and net->blob are what runs and what has memory; net->file has
 * all that the file names. A blob between two layers of a chain is in the second alone: it is never
 * made. */
#ifndef PL_NN_FUSE_H
#define PL_NN_FUSE_H

#include "nn/graph.h"

/* After graph_build, before plan_make. A blob that another layer reads, whose values count for the
 * loss, or that options name to be kept, is made: no chain goes through it. ERR_NOMEM */
int fuse_chains(struct net *net, const struct net_options *options, struct err *err);

/* Need the blob, which one layer reads as it is in the file, not be made? */
bool fuse_may_leave_out(const struct net *net, const struct net_options *options,
                        const struct blob *blob);

#endif
