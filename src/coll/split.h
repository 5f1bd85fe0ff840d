/* Split exchanges: the part of exchange.c that reduces, has the sums prepared, and brings what
 * came of it to all. Private to exchange.c. */
#ifndef PL_COLL_SPLIT_H
#define PL_COLL_SPLIT_H

#include "coll/exchange.h"

/* One attempt at exchange c->n in one view, with what this member puts in, times its weight, in its
 * result. As the lane's turns come (stages.h). ERR_VIEW and the like; or what prepare returned. */
int split_run(struct exchange *e, struct coll *c,
              void (*merge_meta)(void *meta, const void *other));

#endif
