/* Can all who are to train together connect to each other? Asked of every worker that comes, before
 * it opens its data: the driver tries the address at which the worker says that it listens, and the
 * worker those of all who came before it. What a firewall or a wrong address prevents is then an
 * error that names both ends, in seconds, and not a silence. A worker's way to the driver needs no
 * trial: it has come by it.
 *
 * The driver connects to the address that a worker names, but to at most REACH_TRIES_MAX a minute
 * for each number of a worker: it is no tool to try the doors of others with.
 *
 * A host tries an address with train_host.reach; simulated ones have none, and nothing is asked. */
#ifndef PL_TRAIN_REACH_H
#define PL_TRAIN_REACH_H

#include "train/train.h"
#include "world/world.h"

enum { REACH_TRIES_MAX = 12 };

/* How often a node has asked in the minute that began then. Zeroed at first. */
struct reach_rate {
    int64_t since;
    uint32_t asked;
};

/* It asks once more: may it? */
bool reach_rate_allows(struct reach_rate *rate, int64_t now);

struct reach_book;

/* The driver's side: a task that answers who asks. ERR_NOMEM */
int reach_start(struct world *world, const struct train_host *host, struct reach_book **out);
void reach_stop(struct reach_book *book); /* may be NULL */

/* A worker's: ask the driver, try all others. ERR_PEER naming both ends; ERR_DRIVER, ERR_CANCELLED
 */
int reach_check(struct world *world, const struct train_host *host, struct err *err);

#endif
