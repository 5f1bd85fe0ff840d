/* Metadata: a few hundred bytes that ranks reduce up a binomial tree and broadcast down again, with
 * a vector or alone. */
#ifndef PL_COLL_COLL_META_H
#define PL_COLL_COLL_META_H

#include "coll/coll.h"

/* Reduce metadata towards rank 0. `merge` merges a child's metadata into this rank's, the nearest
 * child first. `other` has room for one. ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int coll_meta_reduce(struct coll *c, void *meta, size_t len, void *other,
                     void (*merge)(void *meta, const void *other));

/* Broadcast rank 0's metadata to every rank. */
int coll_meta_broadcast(struct coll *c, void *meta, size_t len);

#endif
