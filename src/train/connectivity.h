/* Checks that all workers can connect to each other, before a worker opens its data. The driver
 * tries the address at which the worker listens; the worker tries those of all earlier workers. A
 * connection that a firewall or a wrong address prevents becomes an error within seconds, which
 * names both ends.
 *
 * The driver tries at most CONNECTIVITY_TRIES_MAX addresses a minute for one machine, so that it
 * cannot be used to scan ports. A worker beyond the limit is told so.
 *
 * A host tries an address with train_host.check_address; simulated hosts have none, and skip the
 * check. */
#ifndef PL_TRAIN_CONNECTIVITY_H
#define PL_TRAIN_CONNECTIVITY_H

#include "group/view.h"
#include "train/train.h"
#include "world/world.h"

enum { CONNECTIVITY_TRIES_MAX = 60, CONNECTIVITY_MACHINES_MAX = 64 };

/* The number of requests of a machine in the minute that began at `since`. Zeroed at first. */
struct connectivity_rate {
    char host[NODE_ADDRESS_MAX]; /* as in their addresses */
    int64_t since;
    uint32_t requests;
};

/* Count a request from that address. Returns the requests of its machine in this minute. */
uint32_t connectivity_count(struct connectivity_rate rates[CONNECTIVITY_MACHINES_MAX],
                            const char *address, int64_t now);

/* Refuse a worker that listens on loopback while the driver listens for other machines. ERR_PEER
 * with the remedy */
int connectivity_check_loopback(const char *driver, uint32_t node, const char *address,
                                struct err *err);

struct connectivity_checker;

/* The driver's side: start a task that replies to requests. ERR_NOMEM */
int connectivity_start(struct world *world, const struct train_host *host,
                       struct connectivity_checker **out);
void connectivity_stop(struct connectivity_checker *checker); /* may be NULL */

/* A worker's side: send the driver a request, then try all other workers. ERR_PEER naming both
 * ends; ERR_DRIVER, ERR_CANCELLED */
int connectivity_check(struct world *world, const struct train_host *host, struct err *err);

#endif
