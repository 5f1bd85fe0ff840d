/* A connection: frames out, frames in. All functions are for the serving thread (real/role.h); they
 * touch data shared with tasks (queues, claims, a send under way) with the node's lock. Sending and
 * receiving stop where the stream does, at any byte, and continue from there. */
#ifndef PL_REAL_LINK_H
#define PL_REAL_LINK_H

#include "real/frame.h"
#include "real/mailbox.h"
#include "real/run_key.h"
#include "real/stream.h"

struct peer;

enum link_state {
    LINK_CONNECTING, /* not connected */
    LINK_CHALLENGE,  /* of those that we dial: the other side's challenge has not arrived */
    LINK_HANDSHAKE,  /* the other side's hello has not arrived */
    LINK_SEALING,    /* the hellos are exchanged, the TLS handshake is not over */
    LINK_OPEN,
    LINK_DRAINING, /* closing: sends the queue, and discards what it reads */
};

/* Guarded by the node's lock, except while `busy`. */
struct link_out {
    uint8_t head[FRAME_SIZE]; /* of the frame that is being sent, */
    bool going;               /* if one is */
    size_t sent, pad;         /* of the frame, including `pad` bytes behind it */
    uint8_t tail[FRAME_TAIL]; /* zeros, or the sum of the data, */
    size_t summed;            /* bytes of it that are in `sum` */
    struct hash_stream *sum;
    struct message *m; /* its data is a message's, */
    struct send *send; /* or in a caller's range */
    bool busy;         /* that is being read, with the lock released: hands off */
    bool broken;       /* the rest was dropped: the connection must end */
};

struct link_in {
    uint8_t head[FIRST_SIZE];
    size_t have;             /* of the header, or of a message of the handshake */
    bool data;               /* the header is complete, its data is coming, */
    bool tail;               /* the data has arrived, its checksum has not */
    struct hash_stream *sum; /* of the data so far */
    struct frame frame;
    size_t got; /* of the data */
    size_t pad; /* zeros behind the frame that have not arrived */
    int64_t first_byte;
    struct message *m;          /* destination of the data: this message, */
    struct claim claim;         /* or into a posted receive, or nowhere */
    _Alignas(4) uint8_t odd[4]; /* the last got % 4 bytes, until the others arrive */
};

struct link {
    struct stream stream;
    enum link_state state;
    bool dialled;      /* by us */
    bool half_open;    /* accepted, and its hello has not been accepted */
    bool shut;         /* this side has announced that it sends no more */
    bool ended;        /* the other side has announced that, and other stripes are still open */
    bool wants_out;    /* the stream is full, and its room is watched */
    struct peer *peer; /* NULL until its hello arrives */
    uint32_t network;  /* of an accepted connection: its network (address_network) */
    uint32_t stripe;   /* which of the peer's it is */
    uint32_t agreed;   /* stripes, by the hellos */
    int64_t begun;     /* when it was accepted or dialled */
    int64_t deadline;  /* for the handshake; for the other stripes to end too */
    struct hellos hellos;
    struct link_out out;
    struct link_in in;
    struct link *next, *prev, *next_mapped;
};

/* Send until there is nothing left (OK) or the stream takes no more (ERR_FULL). ERR_PEER: broken;
 * ERR_PROTOCOL */
int link_write(struct node *node, struct link *link);

/* Receive what has arrived, up to some megabytes, and process it. Bytes of a posted range go there
 * directly, all others through `scratch`. Damaged data never completes a receive with OK. ERR_PEER:
 * the connection has ended or broken; ERR_PROTOCOL; ERR_CORRUPT; ERR_NOMEM. */
int link_read(struct node *node, struct link *link, uint8_t *scratch, size_t size);

/* Allocate the checksum states. Free them in any case by link_discard (nothing was transferred) or
 * link_release. ERR_NOMEM */
int link_init(struct link *link);
void link_discard(struct link *link);

/* Drop partly received and partly sent frames, too. Takes the node's lock. */
void link_release(struct node *node, struct link *link);

/* For who takes back the send that this link is sending and is not busy with, the lock held: it
 * ends so. The rest of its frame is kept in memory of ours, while the lock is released; */
void link_keep_rest(struct node *node, struct link *link, int status);
/* or it is lost, and the connection with it. */
void link_drop_send(struct node *node, struct link *link, int status);

#endif
