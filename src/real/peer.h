/* The address book: who is known, up or down, and the credit between.
 * All functions want the node's lock held, but for the seam's.
 *
 * A peer that has gone down is remembered, so that it never comes up again; but for a worker and
 * its driver, who may meet again. The node itself is a peer too: it has credit, and no connection.
 */
#ifndef PL_REAL_PEER_H
#define PL_REAL_PEER_H

#include "real/address.h"
#include "real/outbox.h"

struct link;
struct node;
struct pacer;

enum {
    PEERS_MAX = 65536,  /* ever known, so that strangers cannot fill the memory with the dead */
    PEERS_UP_MAX = 1024 /* at a time */
};

enum peer_state { PEER_AWAITED, PEER_UP, PEER_DOWN };

struct change {
    struct change *next;
    struct peer *peer;
    bool up;
    bool queued;
};

struct peer {
    uint32_t number;
    enum peer_state state;
    struct address address;
    bool dial;  /* the serving thread must connect to it */
    bool cut;   /* the serving thread must close it */
    bool paced; /* to be processed when a pacer opens; the serving thread's */
    /* Connections: messages and the first stripe use the first one. Written by the serving thread
     * alone. */
    struct link *link[STRIPES_MAX];
    uint32_t stripes, open; /* how many there are to be, once the first is open, and are */
    struct outbox out;
    size_t sent[CLASS_COUNT];  /* of our credit at it: bytes that it has not taken */
    size_t held[CLASS_COUNT];  /* of the credit it has here */
    size_t taken[CLASS_COUNT]; /* bytes of it that were taken and not reported yet */
    size_t pending;            /* its bytes in the mailbox */
    size_t given;              /* bytes of its initial credit that were counted against our rate */
    struct change went[2];     /* down, up */
    bool tended;               /* is in the list of those that are to be looked after */
    int64_t down_at;           /* on the driver: when it went down */
    struct peer *next_tended;
};

struct peers {
    struct peer **at; /* by number */
    size_t count, room, up;
    /* The driver's. Numbers up to `kept` are not given again; those between the two belong to
     * workers that may not stay, or that have gone. */
    uint32_t kept, next_number, numbers;
    struct change *changes, **changes_end; /* not reported yet */
    pthread_cond_t paused;                 /* a link that was busy with a send no longer is */
};

int peers_init(struct peers *peers); /* ERR_NOMEM */
void peers_release(struct node *node);

struct peer *peer_find(const struct node *node, uint32_t number); /* NULL: unknown */
/* Find it, or make it. NULL: no memory, or too many. */
struct peer *peer_make(struct node *node, uint32_t number);

bool peer_is_expected(const struct node *node, uint32_t number); /* up, or may come up */
bool peer_has_credit(const struct node *node, uint32_t number);  /* or is down */
bool peer_change(struct node *node, uint32_t *number, bool *up); /* the next change, if any */

/* The first of `stripes` connections to it is open. */
void peer_up(struct node *node, struct peer *peer, struct link *link, uint32_t stripes);
/* Another one is. */
void peer_wider(struct node *node, struct peer *peer, struct link *link);
/* Close the peer: nothing is sent to it or expected from it any more. */
void peer_close(struct node *node, struct peer *peer);
/* The same, and report that it was lost. */
void peer_lost(struct node *node, struct peer *peer);
/* Let a peer that is down come up again, without earlier state. false: not yet, since its earlier
 * traffic has not ended. */
bool peer_revive(struct node *node, struct peer *peer);

/* The driver's: a number for a worker that has none, and for the driver to be sure of. News of a
 * node that returned its number may be on its way for a moment (node_limits.rest). */
uint32_t peer_give_number(struct node *node);
void peer_keep_number(struct node *node, uint32_t number);

/* Must credit be reported to the peer? true, with the frame, when enough of its messages were
 * taken; for bulk ones as this node's rate allows. */
bool peer_must_report_credit(struct node *node, struct peer *peer, struct frame *frame);

/* A message begins to arrive. ERR_PROTOCOL: the peer has no credit for it. */
int peer_hold(struct node *node, struct peer *peer, const struct frame *frame);
/* Bytes of a peer's message have been taken here. */
void peer_taken(struct node *node, uint32_t number, enum world_class class, size_t bytes);
/* The peer reports taken bytes. ERR_PROTOCOL: more than were sent. */
int peer_credit(struct node *node, struct peer *peer, enum world_class class, uint64_t bytes);

/* May bulk bytes go one way, by that pacer? If not, the peer is tended when they may. */
bool peer_may_move(struct node *node, struct peer *peer, struct pacer *pacer);
/* A pacer has opened: tend those that waited. */
void peers_resume(struct node *node);

/* The seam's. */
int peer_send(struct world *w, uint32_t number, struct message *m, enum world_class class);
int peer_add(struct world *w, uint32_t number, const char *address);
void peer_drop(struct world *w, uint32_t number);

#endif
