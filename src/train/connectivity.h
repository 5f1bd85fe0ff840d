/* Can all who are to train together connect to each other? Asked of every worker that comes, before
 * it opens its data: the driver tries the address at which the worker says that it listens, and the
 * worker those of all who came before it. A connection that a firewall or a wrong address prevents
 * is then an error that names both ends, in seconds, and not a silence. A worker's way to the
 * driver needs no trial: it has come by it.
 *
 * The driver connects to the address that a worker names, but to at most CONNECTIVITY_TRIES_MAX a
 * minute of one machine: it is no tool to try the doors of others with. A worker that requests more
 * is told of the limit.
 *
 * A host tries an address with train_host.reach; simulated ones have none, and nothing is asked. */
#ifndef PL_TRAIN_CONNECTIVITY_H
#define PL_TRAIN_CONNECTIVITY_H

#include "group/view.h"
#include "train/train.h"
#include "world/world.h"

enum { CONNECTIVITY_TRIES_MAX = 60, CONNECTIVITY_MACHINES_MAX = 64 };

/* How often workers of a machine have asked in the minute that began then. Zeroed at first. */
struct connectivity_rate {
    char host[NODE_ADDRESS_MAX]; /* as in their addresses */
    int64_t since;
    uint32_t requests;
};

/* One at that address asks once more: how often has its machine asked in this minute? */
uint32_t connectivity_count(struct connectivity_rate rates[CONNECTIVITY_MACHINES_MAX],
                            const char *address, int64_t now);

/* A worker that only its own machine reaches, where the driver listens for other machines.
 * ERR_PEER with the remedy */
int connectivity_check_loopback(const char *driver, uint32_t node, const char *address,
                                struct err *err);

struct connectivity_checker;

/* The driver's side: a task that answers who asks. ERR_NOMEM */
int connectivity_start(struct world *world, const struct train_host *host,
                       struct connectivity_checker **out);
void connectivity_stop(struct connectivity_checker *checker); /* may be NULL */

/* A worker's: ask the driver, try all others. ERR_PEER naming both ends; ERR_DRIVER, ERR_CANCELLED
 */
int connectivity_check(struct world *world, const struct train_host *host, struct err *err);

#endif
