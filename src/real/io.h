/* The I/O thread of a world: serves all its connections through epoll, accepts, connects, and
 * closes what says no proper hello in time. */
#ifndef PL_REAL_IO_H
#define PL_REAL_IO_H

#include "real/address.h"
#include "real/link.h"
#include "real/task.h"

struct peer;

enum { HALF_OPEN_MAX = 64 }; /* accepted, and no hello yet; more wait in the kernel's queue */

struct io {
    struct task task;
    int epoll, listener, event; /* -1: none */
    bool accepting;             /* the listener is watched */
    int64_t accept_after;       /* when to go on after running short of descriptors; 0: at will */
    struct link *links;
    size_t half_open; /* accepted and greeting */
    size_t greeting;  /* those, and dialled ones that are not open */
    uint8_t *scratch;
    /* Under the node's lock: */
    struct peer *to_tend;
    bool woken, closing;
};

/* Listen at node->address, and write there where that is. ERR_INPUT, ERR_IO, ERR_NOMEM */
int io_open(struct node *node, struct err *err);
/* Start the thread; driver: the connection to the driver, -1 for none, taken in any case. */
int io_start(struct node *node, int driver, struct err *err);
/* Send what is under way, for at most limits.flush, and end the thread's work. */
void io_stop(struct node *node);
/* Close all that is left; after the thread has ended, or before it was started. */
void io_release(struct node *node);

/* Have the I/O thread look after a peer: something to send, a connection to make or to close. The
 * lock is held. */
void io_tend(struct node *node, struct peer *peer);

/* A non-blocking socket for this address; -1 and errno. */
int io_socket(const struct address *address);

#endif
