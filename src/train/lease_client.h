/* A worker's side of leases (data/lease_cursor.h), in asynchronous strategies: it asks in its
 * reports, and looks between two steps whether an answer has come. */
#ifndef PL_TRAIN_LEASE_CLIENT_H
#define PL_TRAIN_LEASE_CLIENT_H

#include "strategy/strategy.h"
#include "train/ledger.h"
#include "train/recovery_report.h"

struct lease_client {
    uint64_t from;       /* where the book ended when the run began, as the driver said */
    int64_t since;       /* when it last asked, or began, */
    uint64_t steps;      /* and its steps since */
    uint32_t reconnects; /* drivers that it had returned to by then */
    bool ends;           /* it takes no more steps */
};

/* Bring m->hold: the first lease, which a member of the first view knows; a joiner (entered) is
 * being sent one, and until it comes goes over what others have, about where they are. */
void lease_client_begin(struct lease_client *client, struct member *m, bool joined);

/* Take an answer that has come. */
void lease_client_poll(struct lease_client *client, struct member *m);

/* After a step: the same. True: it is time to ask, by a report now. */
bool lease_client_on_step(struct lease_client *client, struct member *m);

/* Adds the leases to a recovery report. */
void lease_client_recovery_report(const struct member *m, struct recovery_report *report);

/* The lease part of a report. */
struct lease_report lease_client_report(const struct lease_client *client, const struct member *m);

#endif
