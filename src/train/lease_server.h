/* The driver's side of leases (data/lease.h) in asynchronous strategies: the lease table and its
 * messages. It is used by the driver's main task alone.
 *
 * A member of the first view computes its first lease itself: equal numbers of steps, in the order
 * of ranks, from the frontier on. A joiner is granted one as soon as a view holds it. All other
 * leases are granted on request; workers' reports carry the requests. */
#ifndef PL_TRAIN_LEASE_SERVER_H
#define PL_TRAIN_LEASE_SERVER_H

#include "group/view.h"
#include "train/ledger.h"
#include "train/recovery_report.h"

struct lease_server {
    struct lease_table table;
    struct world *world;
    const struct logger *log;
    size_t records;                    /* of the training set */
    uint64_t step;                     /* samples of a worker's first step */
    bool opened;                       /* a view has existed */
    uint32_t view;                     /* the newest view that was processed */
    struct members known;              /* nodes that were ever in a view since then */
    uint32_t replied[LEASE_NODES_MAX]; /* by node: its newest request that was granted */
    uint8_t unsent[LEASE_NODES_MAX];   /* by node: leases of that grant while it is not sent */
};

/* The first lease of `node`, a member of the first view of a run with this frontier. */
struct lease lease_server_first(uint64_t frontier, const struct view *first, uint32_t node,
                                uint64_t step, size_t records);

/* Its number of samples: whole steps of `step`. */
uint64_t lease_server_first_size(size_t members, uint64_t step, size_t records);

/* Begin with an opened lease table (lease_open, lease_read) and the first view. */
void lease_server_begin(struct lease_server *leases, const struct view *first);

/* Rebuild the table of a recovered driver from its first view and the members' recovery reports (by
 * node). */
void lease_server_recover(struct lease_server *leases, const struct view *view,
                          const struct recovery_report *reports, uint64_t used, uint64_t repeated);

/* Grant joiners in `view` their first lease. */
void lease_server_welcome(struct lease_server *leases, const struct view *view);

/* Workers that hold leases and are not in `view`. Their reports are read before their leases are
 * reclaimed. */
struct members lease_server_orphans(const struct lease_server *leases, const struct view *view);
void lease_server_reclaim(struct lease_server *leases, const struct members *orphans);

/* Do reports of that node count? Not once its leases are reclaimed, since others may hold them. */
bool lease_server_accepts(const struct lease_server *leases, uint32_t node);

/* Process the lease part of a report of `node`: its uses and its request. */
void lease_server_on_report(struct lease_server *leases, uint32_t node,
                            const struct lease_report *report);

/* A grant: the number of the request, and 1 to LEASE_HELD_MAX leases. */
struct lease_grant {
    uint32_t request;
    size_t count;
    struct lease lease[LEASE_HELD_MAX];
};

void lease_grant_encode(const struct lease_grant *grant, struct buf *out);
/* ERR_PROTOCOL */
int lease_grant_decode(struct byte_reader *in, struct lease_grant *out);

#endif
