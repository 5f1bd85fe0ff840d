/* Outgoing traffic to a peer: for each class messages, in order, and among the bulk ones sends that
 * were posted to the first stripe; those of other stripes are in queues of their own. Sends wait
 * until all connections to the peer are open, so that a stripe is one connection for good. A
 * message has taken its credit, or has it put by, when it is queued; a posted send takes it when
 * its turn comes, and what is behind it waits as long as it does. Sends of other stripes proceed at
 * the same time, but leave this queue the credit that it will take: a receiver that takes messages
 * in the order in which they were handed over can always continue. All functions want the node's
 * lock held, but for the seam's.
 *
 * The task that serves the link reads a posted send, with the lock released and the link's `busy`
 * set. A recall waits until `busy` is clear, then copies the rest of a frame of which some has been
 * sent already: the other side must not see it break off. */
#ifndef PL_REAL_OUTBOX_H
#define PL_REAL_OUTBOX_H

#include "real/frame.h"
#include "real/pool.h"

struct link;
struct node;
struct peer;

struct outbox {
    struct pending_message *first[CLASS_COUNT], *last[CLASS_COUNT];
    struct send *first_send[STRIPES_MAX], *last_send[STRIPES_MAX];
    uintptr_t turn;             /* the next queued item gets it */
    size_t queued[CLASS_COUNT]; /* credit that the messages here will take */
};

/* Queue a message; takes the reference when OK. ERR_NOMEM */
int outbox_put(struct node *node, struct peer *peer, struct message *m, enum world_class class);

/* The next frame to the peer on this stripe: true with a frame and, if it is one, the message or
 * the send. */
bool outbox_next(struct node *node, struct peer *peer, uint32_t stripe, struct frame *frame,
                 struct message **m, struct send **send);
/* How many stripes there are to the peer is known: put sends where they belong. */
void outbox_spread(struct peer *peer);
/* Is anything queued, even without credit? */
bool outbox_waits(const struct peer *peer);

/* Send nothing to the peer any more: its sends end with ERR_PEER. */
void outbox_close(struct node *node, struct peer *peer);
/* Forget messages of aborted views; sends of such views end. */
void outbox_abort(struct node *node);
/* Sends end with ERR_CANCELLED, here and at all peers. */
void outbox_poison(struct node *node);

/* A send ends so. */
void send_end(struct node *node, struct send *send, int status);

/* The seam's. */
int outbox_post(struct world *w, struct send *send);
void outbox_unsend(struct world *w, struct send *send);

#endif
