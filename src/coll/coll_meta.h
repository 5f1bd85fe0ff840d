/* Metadata: a few hundred bytes that ranks reduce up a binomial tree and broadcast down again, with
 * a vector or alone. */
#ifndef PL_COLL_COLL_META_H
#define PL_COLL_COLL_META_H

#include "coll/coll.h"

/* `merge` folds another's note into one's own, children from the nearest; rank 0 ends with all of
 * them. `other` has room for a note. ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int coll_meta_reduce(struct coll *c, void *meta, size_t len, void *other,
                     void (*merge)(void *meta, const void *other));

/* Rank 0's note to every rank. */
int coll_meta_broadcast(struct coll *c, void *meta, size_t len);

#endif
