/* Can all who are to train together connect to each other? Asked of every worker that comes, before
 * it opens its data: the driver tries the address at which the worker says that it listens, and the
 * worker those of all who came before it. What a firewall or a wrong address prevents is then an
 * error that names both ends, in seconds, and not a silence. A worker's way to the driver needs no
 * trial: it has come by it.
 *
 * A host tries an address with train_host.reach; simulated ones have none, and nothing is asked. */
#ifndef PL_TRAIN_REACH_H
#define PL_TRAIN_REACH_H

#include "train/train.h"
#include "world/world.h"

struct reach_book;

/* The driver's side: a task that answers who asks. ERR_NOMEM */
int reach_start(struct world *world, const struct train_host *host, struct reach_book **out);
void reach_stop(struct reach_book *book); /* may be NULL */

/* A worker's: ask the driver, try all others. ERR_PEER naming both ends; ERR_DRIVER, ERR_CANCELLED
 */
int reach_check(struct world *world, const struct train_host *host, struct err *err);

#endif
