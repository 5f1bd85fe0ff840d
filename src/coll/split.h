/* Split exchanges: the part of exchange.c that reduces the vector, calls `prepare` on the sums, and
 * broadcasts the result. Private to exchange.c. */
#ifndef PL_COLL_SPLIT_H
#define PL_COLL_SPLIT_H

#include "coll/exchange.h"

/* One attempt at exchange c->n in one view. With f32 the result is written from this member's
 * input; else it holds the input times its weight already. Stages are taken in turns (stages.h).
 * Errors of exchange_run and of `prepare`. */
int split_run(struct exchange *e, struct coll *c);

#endif
