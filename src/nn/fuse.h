/* Layers that run as one (layer_chain.h), found in a net and put in place of their members.
 *
 * A net has two lists: net->layer and net->blob are the layers that run and the blobs that have
 * memory; net->file has all that the file names. A blob between two layers of a chain is in the
 * second alone: it has no memory. */
#ifndef PL_NN_FUSE_H
#define PL_NN_FUSE_H

#include "nn/graph.h"

/* After graph_build, before plan_make. A blob that another layer reads, that counts for the loss,
 * or that options name, keeps its memory: no chain contains it as an inner blob. ERR_NOMEM */
int fuse_chains(struct net *net, const struct net_options *options, struct err *err);

/* Need the blob, which one layer reads as it is in the file, not be made? */
bool fuse_may_leave_out(const struct net *net, const struct net_options *options,
                        const struct blob *blob);

#endif
