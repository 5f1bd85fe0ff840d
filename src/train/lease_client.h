/* A worker's side of leases (data/lease_cursor.h) in asynchronous strategies. Its reports carry the
 * requests, and it looks for a grant between two steps. */
#ifndef PL_TRAIN_LEASE_CLIENT_H
#define PL_TRAIN_LEASE_CLIENT_H

#include "strategy/strategy.h"
#include "train/ledger.h"
#include "train/recovery_report.h"

struct lease_client {
    uint64_t from;       /* the frontier when the run began, from the welcome */
    int64_t since;       /* time of its last request, or of its beginning */
    uint64_t steps;      /* its steps since then */
    uint32_t reconnects; /* drivers that it had reconnected to by then */
    bool ends;           /* it takes no more steps */
};

/* Set up m->lease_cursor. A member of the first view computes its first lease. A joiner receives
 * one soon, and until then repeats samples at about the others' offset. */
void lease_client_begin(struct lease_client *client, struct member *m, bool joined);

/* Take a grant that has arrived. */
void lease_client_poll(struct lease_client *client, struct member *m);

/* After a step: the same. true: it is time to request a lease, by a report now. */
bool lease_client_on_step(struct lease_client *client, struct member *m);

/* Adds the leases to a recovery report. */
void lease_client_recovery_report(const struct member *m, struct recovery_report *report);

/* The lease part of a report. */
struct lease_report lease_client_report(const struct lease_client *client, const struct member *m);

#endif
