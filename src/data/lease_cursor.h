/* A node's own side of its leases (lease.h): where its next step's records are, and when to ask for
 * more. It asks one lease ahead, and nothing ever waits for the answer: when all that it holds is
 * used up it goes over the last lease again, and counts that. Pure. */
#ifndef PL_DATA_LEASE_CURSOR_H
#define PL_DATA_LEASE_CURSOR_H

#include "data/lease.h"

struct lease_cursor {
    uint64_t grain;                     /* records of a step */
    struct lease lease[LEASE_HELD_MAX]; /* the first begins where the next step does */
    size_t count;
    struct lease last;        /* as it was begun: gone over again when there is no other */
    uint64_t at;              /* there */
    uint64_t taken, repeated; /* records, of leases, and gone over again */
    uint64_t granted;         /* in the newest answer */
    uint64_t highest;         /* where the highest lease ends that it has had */
    uint32_t request;         /* the newest question's number; the first is put by coming */
    bool pending;             /* for its answer */
    uint64_t want;            /* records that it asks for */
};

/* A node that comes. `first` is its lease; where it is empty, an answer is under way, and until it
 * is there the `size` records from first.from on are gone over as if again. */
void lease_cursor_begin(struct lease_cursor *cursor, uint64_t grain, struct lease first,
                        uint64_t size);

/* The place of the next step's records. */
uint64_t lease_cursor_offset(const struct lease_cursor *cursor);

/* And of the one after it, as far as is known: other leases may have come by then. */
uint64_t lease_cursor_next_offset(const struct lease_cursor *cursor);

/* A step has been taken there. */
void lease_cursor_step(struct lease_cursor *cursor);

/* Records that it holds and has not gone over. */
uint64_t lease_cursor_left(const struct lease_cursor *cursor);

/* Is it time to ask? When half of what was last given is used, or there is but one step left, and
 * no question is open; true once: the question is then put, for `want` records. */
bool lease_cursor_should_request(struct lease_cursor *cursor, uint64_t want);

/* Nobody will answer the open question: it is to be put again. */
void lease_cursor_forget_request(struct lease_cursor *cursor);

/* An answer to question `ask`. Leases beyond LEASE_HELD_MAX are ignored. False if that is not open,
 * or no such leases can be: then it is to be put again. */
bool lease_cursor_take_grant(struct lease_cursor *cursor, uint32_t request,
                             const struct lease *given, size_t count);

#endif
