/* Functions that all collectives share. A collective runs in one view, among ranks, and ends with
 * ERR_VIEW on every survivor when the view changes. */
#ifndef PL_COLL_COLL_H
#define PL_COLL_COLL_H

#include "group/group.h"
#include "wire/catalogue.h"

struct ranks {
    size_t count, me;
    uint32_t node[VIEW_MEMBERS_MAX + 1]; /* rank → node; the driver may be one */
};

/* The time that a member waited in an exchange, beyond the time in which the bytes it waited for
 * were arriving. */
struct coll_waits {
    int64_t total;        /* ns */
    int64_t longest;      /* the longest single one */
    uint32_t longest_for; /* the node whose message ended that wait */
    uint64_t bytes;       /* sent and received */
    /* Of the message that took longest to arrive, from its first byte on: time, bytes, sender. */
    int64_t arriving;
    uint64_t arrived_bytes;
    uint32_t arrived_from;
};

/* One call of a collective. */
struct coll {
    struct group *group;
    const struct view *view;
    const struct ranks *ranks;
    uint32_t lane;
    uint64_t n;               /* exchange number */
    size_t chunk_floats;      /* floats of a piece, to nodes that lack a result */
    uint32_t stripes;         /* connections to one peer that pieces are spread over; 0: one */
    struct coll_waits *waits; /* NULL: not counted */
    bool patient;         /* others may still be computing: only the end of the view ends a wait */
    bool outlives_driver; /* without the driver this ends with ERR_PEER, and members continue */
};

/* Send `len` bytes to a rank. Waits only for credit.
 * ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM; a peer that is down is waited for as ERR_VIEW:
 * the driver will see it too. */
int coll_send(struct coll *c, size_t to, uint64_t tag, const void *data, size_t len);

/* Receive exactly `len` bytes from a rank. Same errors. */
int coll_recv(struct coll *c, size_t from, uint64_t tag, void *into, size_t len);

/* Wait for `what` or for the end of the view. OK: `what` has occurred. */
int coll_wait(struct coll *c, const struct wait_for *what, int64_t deadline, struct wake *wake);

/* A peer is gone, and the driver notices it, too: wait for the new view. ERR_VIEW, or the error
 * that ended the wait. */
int coll_lost(struct coll *c, int64_t deadline);

/* How long the next piece may take. */
int64_t coll_deadline(const struct coll *c);

/* Account for a receive of `len` bytes whose first byte arrived at `first_byte`, and for which this
 * member waited from time `from` on. */
void coll_account(struct coll *c, uint32_t node, int64_t first_byte, size_t len, int64_t from);

/* A vector travels in pieces: their number, where piece i begins and (returned) its length. */
size_t coll_pieces(const struct coll *c, size_t n);
size_t coll_piece(const struct coll *c, size_t n, size_t i, size_t *from);

/* The tag of a piece of this collective's exchange. */
uint64_t coll_tag(const struct coll *c, enum wire_kind kind, size_t piece);

/* A vector to one rank, or from one, in pieces: adopting a result, a snapshot. */
int coll_send_vector(struct coll *c, size_t to, enum wire_kind kind, const float *x, size_t n);
int coll_recv_vector(struct coll *c, size_t from, enum wire_kind kind, float *x, size_t n);

#endif
