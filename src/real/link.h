/* A connection: frames out, frames in. Everything here is the I/O thread's; what it shares with
 * tasks (queues, claims) it touches with the node's lock. Sending and receiving stop where the
 * socket does, at any byte, and go on from there. */
#ifndef PL_REAL_LINK_H
#define PL_REAL_LINK_H

#include "real/frame.h"
#include "real/mailbox.h"

struct peer;

enum link_state {
    LINK_CONNECTING, /* no connection yet */
    LINK_GREETING,   /* the other side's hello has not come */
    LINK_OPEN,
    LINK_DRAINING, /* we are closing: sends what is queued, reads and throws away */
};

struct link_out {
    uint8_t head[HELLO_SIZE]; /* of what is being sent: a frame's header or a hello */
    size_t head_len, sent;    /* head_len 0: nothing is being sent; `sent` counts data too */
    struct message *m;
};

struct link_in {
    uint8_t head[HELLO_SIZE];
    size_t have; /* of the header or hello */
    bool data;   /* the header is complete, its data is coming */
    struct frame frame;
    size_t got; /* of the data */
    int64_t first_byte;
    struct message *m;          /* where the data goes: here, */
    struct claim claim;         /* or into a posted receive, or nowhere */
    _Alignas(4) uint8_t odd[4]; /* the last got % 4 bytes, until the others have come */
};

struct link {
    int fd;
    enum link_state state;
    bool dialled;      /* by us */
    bool shut;         /* we have told the other side that nothing more comes */
    bool wants_out;    /* epoll tells when it can be written to */
    struct peer *peer; /* NULL until its hello has come */
    int64_t deadline;  /* for the hello */
    struct link_out out;
    struct link_in in;
    struct link *next, *prev;
};

/* Send until there is nothing left (OK) or the socket takes no more (ERR_FULL). ERR_PEER: broken.
 */
int link_write(struct node *node, struct link *link);

/* Receive once, at most `size` bytes through `scratch`, and do what they say. ERR_PEER: the
 * connection has ended; ERR_PROTOCOL; ERR_NOMEM. */
int link_read(struct node *node, struct link *link, uint8_t *scratch, size_t size);

/* Drop what is half in and half out. */
void link_release(struct node *node, struct link *link);

#endif
