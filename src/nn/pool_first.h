/* A ReLU before a pooling that takes maxima can as well come after it: max(0, ·) is monotone, so
 * that of a window the largest of what it gives is what it gives of the largest. The gradient is
 * the same, too: it goes to the first of the largest, or, where that is not above 0, nowhere. There
 * are then fewer values to rectify, and the image before the pooling, which is the largest around,
 * is kept for no backward. */
#ifndef PL_NN_POOL_FIRST_H
#define PL_NN_POOL_FIRST_H

#include "nn/graph.h"

/* Exchange them where the blob between them need not be made: it leaves net->blob, and one of the
 * pooling's shape is there instead. For those ReLUs that are part of no chain. ERR_NOMEM */
int pool_first(struct net *net, const struct net_options *options, struct err *err);

#endif
