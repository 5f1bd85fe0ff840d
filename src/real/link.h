/* A connection: frames out, frames in. Everything here is for who serves (real/role.h); what is
 * shared with tasks (queues, claims, a send that is being sent) it touches with the node's lock.
 * Sending and receiving stop where the stream does, at any byte, and resume from there. */
#ifndef PL_REAL_LINK_H
#define PL_REAL_LINK_H

#include "real/frame.h"
#include "real/mailbox.h"
#include "real/stream.h"

struct peer;

enum link_state {
    LINK_CONNECTING, /* no connection yet */
    LINK_HANDSHAKE,  /* the other side's hello has not come */
    LINK_OPEN,
    LINK_DRAINING, /* we are closing: sends what is queued, reads and throws away */
};

/* All of it is under the node's lock: see `busy`. */
struct link_out {
    uint8_t head[FRAME_SIZE]; /* of the frame that is being sent, */
    bool going;               /* if one is */
    size_t sent, pad;         /* of all of it, up to `pad` bytes behind it: */
    uint8_t tail[FRAME_TAIL]; /* zeros, or the sum of the data, */
    size_t summed;            /* of which so many bytes are in `sum` */
    struct hash_stream *sum;
    struct message *m; /* its data is a message's, */
    struct send *send; /* or in a caller's range */
    bool busy;         /* that is being read, with the lock released: hands off */
    bool broken;       /* the rest of it is gone: the connection is to end */
};

struct link_in {
    uint8_t head[HELLO_SIZE + TOKEN_SIZE];
    size_t have;             /* of the header, or hello and token */
    bool data;               /* the header is complete, its data is coming, */
    bool tail;               /* or has come, and its sum has not */
    struct hash_stream *sum; /* of the data so far */
    struct frame frame;
    size_t got; /* of the data */
    size_t pad; /* zeros behind the frame, still to come */
    int64_t first_byte;
    struct message *m;          /* where the data goes: here, */
    struct claim claim;         /* or into a posted receive, or nowhere */
    _Alignas(4) uint8_t odd[4]; /* the last got % 4 bytes, until the others have come */
};

struct link {
    struct stream stream;
    enum link_state state;
    bool dialled;      /* by us */
    bool shut;         /* we have told the other side that nothing more comes */
    bool ended;        /* the other side has told us, and others to the peer are still open */
    bool wants_out;    /* it took no more, and we are told when it does */
    struct peer *peer; /* NULL until its hello has come */
    uint32_t network;  /* of one that was accepted: where it comes from (address_network) */
    uint32_t stripe;   /* which of the peer's it is */
    int64_t deadline;  /* for the hello; for the other stripes to end too */
    struct link_out out;
    struct link_in in;
    struct link *next, *prev, *next_mapped;
};

/* Send until there is nothing left (OK) or the stream takes no more (ERR_FULL). ERR_PEER: broken;
 * ERR_PROTOCOL */
int link_write(struct node *node, struct link *link);

/* Receive what there is, up to some megabytes, and do what it says: bytes that belong into a range
 * go there at once, all others through `scratch`. Damaged data never completes a receive with OK.
 * ERR_PEER: the connection has ended, or was broken; ERR_PROTOCOL; ERR_CORRUPT; ERR_NOMEM. */
int link_read(struct node *node, struct link *link, uint8_t *scratch, size_t size);

/* Room for sums; in any case either link_discard, of one that nothing has gone through, or
 * link_release. ERR_NOMEM */
int link_init(struct link *link);
void link_discard(struct link *link);

/* Drop what is half in and half out, too. Takes the node's lock. */
void link_release(struct node *node, struct link *link);

/* For who takes back the send that this link is sending and is not busy with, the lock held: it
 * ends so. The rest of its frame is kept in memory of ours, while the lock is released; */
void link_keep_rest(struct node *node, struct link *link, int status);
/* or it is lost, and the connection with it. */
void link_drop_send(struct node *node, struct link *link, int status);

#endif
