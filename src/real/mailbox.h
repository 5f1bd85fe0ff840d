/* Received messages that wait to be taken, in order of arrival, and receives that wait for their
 * messages. All functions want the node's lock held.
 *
 * Bytes land in a caller's range with the lock released. A claim connects the two: the task that
 * lands data claims the receive, and marks the claim busy while it writes. Taking a receive back
 * (abort, unpost, a lost peer) gives the claim a verdict, and waits until the writer has seen
 * it. */
#ifndef PL_REAL_MAILBOX_H
#define PL_REAL_MAILBOX_H

#include "world/world.h"

#include <pthread.h>

struct node;
struct pending_message;
struct message_queue;
struct frame;

struct claim {
    struct recv *recv; /* NULL: none, or taken back */
    int verdict;       /* POST_PENDING, or how the receive ends when the writer is done */
    bool whole;        /* the message is complete: it is stored even if its sender is lost */
    bool busy;         /* bytes are being written, by this thread: */
    pthread_t writer;
    struct claim *next;
};

/* Limit of pending messages of one peer. A peer with more messages that no task waits for is faulty
 * or hostile, and searching them would delay all. More are dropped. */
enum { MAILBOX_PENDING_MAX = 16384 };

/* Some have been dropped: how many, and the last one. */
struct dropped {
    uint64_t count, tag;
    uint32_t from;
};

struct mailbox {
    struct pending_message *head, **end;
    struct dropped dropped; /* not reported yet */
    int64_t report_dropped; /* not before */
    struct recv *posted;
    struct claim *claims;
    uint32_t oldest_view;  /* the line that abort has drawn */
    pthread_cond_t landed; /* a busy claim no longer is */
};

int mailbox_init(struct mailbox *box);
void mailbox_release(struct node *node);

bool mailbox_aborted(const struct node *node, uint32_t view);
bool mailbox_matches(const struct wait_for *want, const struct message *m);

/* The oldest message that matches, now the caller's; NULL: none. */
struct message *mailbox_take(struct node *node, const struct wait_for *want);

/* A message is complete; takes the reference. May release the lock for a while. ERR_NOMEM */
int mailbox_deliver(struct node *node, struct message *m, enum world_class class);

/* The messages dropped since the last call; count 0: none, or that call was less than a minute
 * ago. */
struct dropped mailbox_news(struct node *node);

/* The header of a message has arrived: claim the receive that is posted for it. A receive of
 * another length ends at once. false: none is posted. */
bool mailbox_claim(struct node *node, struct claim *claim, uint32_t from, const struct frame *frame,
                   int64_t first_byte);
/* Continue to write, unless the receive was taken back (false) or ranges overlap with another
 * writer's (waits). Between the two the lock may be released. */
bool claim_begin(struct node *node, struct claim *claim);
void claim_end(struct node *node, struct claim *claim);
/* End the receive with this status, if it was not taken back, and the claim. */
void claim_finish(struct node *node, struct claim *claim, int status);

/* Discards the messages of this peer, which is down. */
void mailbox_forget(struct node *node, uint32_t peer);
/* No receive from this peer will be served any more. */
void mailbox_fail_peer(struct node *node, uint32_t peer);
/* No claim ends any more, and a partly written range stays as it is. */
void mailbox_poison(struct node *node);

/* The seam's; they take the lock themselves. */
int mailbox_post(struct world *w, struct recv *recv);
void mailbox_unpost(struct world *w, struct recv *recv);
void mailbox_abort(struct world *w, uint32_t view);

#endif
