/* The driver's side of leases (data/lease.h), in asynchronous strategies: the book, and the
 * messages by which they are handed out. All of it is its main task's.
 *
 * Of the first view each member knows its first lease itself: as many steps, in the order of ranks,
 * from where the book ends. A joiner is sent one as soon as it is in the view. All others are
 * answers to questions, which workers put in their reports. */
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
    bool opened;                       /* there has been a view, */
    uint32_t view;                     /* and this was the newest that was looked at */
    struct members known;              /* who has ever been in one since */
    uint32_t replied[LEASE_NODES_MAX]; /* each one's newest question that was */
    uint8_t unsent[LEASE_NODES_MAX];   /* leases of that answer, while it could not be sent */
};

/* Where the first lease of `node` lies, a member of the first view, of a run whose book ends at
 * `frontier`. */
struct lease lease_server_first(uint64_t frontier, const struct view *first, uint32_t node,
                                uint64_t grain, size_t records);

/* Of that many steps' records it is. */
uint64_t lease_server_first_size(size_t members, uint64_t grain, size_t records);

/* The book has been opened (lease_open, lease_read); this is the first view. */
void lease_server_begin(struct lease_server *leases, const struct view *first);

/* This is the first view of a driver that has returned, and what each member said (by node). */
void lease_server_recover(struct lease_server *leases, const struct view *view,
                          const struct recovery_report *reports, uint64_t used, uint64_t repeated);

/* Grants workers that have joined since their first lease. */
void lease_server_welcome(struct lease_server *leases, const struct view *view);

/* Workers that have leases and are in `view` no more. Their messages are read before their leases
 * are reclaimed. */
struct members lease_server_orphans(const struct lease_server *leases, const struct view *view);
void lease_server_reclaim(struct lease_server *leases, const struct members *orphans);

/* Does the word of that node count? Not if its leases are others' by now. */
bool lease_server_accepts(const struct lease_server *leases, uint32_t node);

/* Takes the lease part of a report of `node`. */
void lease_server_on_report(struct lease_server *leases, uint32_t node,
                            const struct lease_report *report);

/* An answer: the number of the question, and 1 to LEASE_HELD_MAX leases. */
struct lease_grant {
    uint32_t request;
    size_t count;
    struct lease lease[LEASE_HELD_MAX];
};

void lease_grant_encode(const struct lease_grant *grant, struct buf *out);
/* ERR_PROTOCOL */
int lease_grant_decode(struct byte_reader *in, struct lease_grant *out);

#endif
