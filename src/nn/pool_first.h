/* A ReLU before a max pooling may be moved behind it: max(0, ·) is monotone, so that the maximum of
 * a window's rectified values is the rectified maximum. The gradient is the same, too: it goes to
 * the first of the largest values, or nowhere if that is not above 0. There are then fewer values
 * to rectify, and no backward needs the image before the pooling, the largest one nearby. */
#ifndef PL_NN_POOL_FIRST_H
#define PL_NN_POOL_FIRST_H

#include "nn/graph.h"

/* Exchange them if the blob between them need not be kept: a blob of the pooling's shape replaces
 * it in net->blob. Only for ReLUs outside of chains. ERR_NOMEM */
int pool_first(struct net *net, const struct net_options *options, struct err *err);

#endif
