/* Serving all connections of a world through epoll, and the I/O thread, whose business that is when
 * no task does it (real/role.h). */
#ifndef PL_REAL_IO_H
#define PL_REAL_IO_H

#include "real/address.h"
#include "real/link.h"
#include "real/pacer.h"
#include "real/real_task.h"
#include "real/role.h"

#include <sys/epoll.h>

struct peer;
struct ucx;

enum {
    HALF_OPEN_MAX = 256, /* accepted, and no hello yet: for one more the oldest goes, of the address
                            that has the most of them */
    IO_EVENTS_MAX = 64,
};

struct io {
    struct task task;
    int epoll, listener, event; /* -1: none */
    int spare;                  /* a descriptor to give up when there are no more; -1: none */
    /* Of who serves, and of nobody else: */
    bool accepting;       /* the listener is watched */
    int64_t accept_after; /* when to continue after running short of descriptors; 0: at will */
    struct link *links;
    struct link *mapped;      /* those whose streams have readiness of their own */
    size_t half_open;         /* accepted and greeting, */
    size_t half_open_max;     /* and how many there may be: HALF_OPEN_MAX, or fewer descriptors */
    uint64_t strangers;       /* connections closed since the log last told of one */
    int64_t report_strangers; /* when it may tell again */
    size_t timed;    /* those, dialled ones that are not open, and ended ones: with deadlines */
    struct ucx *ucx; /* NULL: none */
    uint8_t *scratch;
    struct pacer pace_out, pace_in;
    bool paced; /* some peer waits for one of them: peer->paced */
    size_t paced_turn;
    /* Under the node's lock: */
    struct role role;
    struct peer *to_tend;
    bool kicked; /* the event has been written to, and not yet read */
    bool closing;
};

/* Listen at node->address, and write there where that is. ERR_INPUT, ERR_IO, ERR_NOMEM */
int io_open(struct node *node, struct err *err);
/* Start the thread; driver: the connection to the driver, who is at that address, NULL for none;
 * taken in any case. */
int io_start(struct node *node, const struct stream *driver, const struct address *address,
             struct err *err);
/* Send what is under way, for at most limits.flush, and end the thread's work. */
void io_stop(struct node *node);
/* Close all that is left; after the thread has ended, or before it was started. */
void io_release(struct node *node);

/* Have who serves look after a peer: something to send, a connection to make or to close. The lock
 * is held. */
void io_tend(struct node *node, struct peer *peer);
/* Wake who sleeps in epoll_wait, the lock held. */
void io_kick(struct io *io);

/* For who serves: wait for events, at most until then (0: at all); serve them; and, the lock held,
 * look after all who are to be tended. */
int io_poll(struct io *io, struct epoll_event *events, int64_t until);
void io_serve(struct node *node, const struct epoll_event *events, int n);
void io_tend_all(struct node *node);
/* For who serves and is about to stop looking: from now on epoll tells of all that comes. true:
 * there is something already. */
bool io_arm(struct io *io);

/* The time-out of poll and epoll_wait, in milliseconds, for a deadline: rounded up, so that the
 * deadline has passed when they return; INT_MAX at most; -1 for WORLD_FOREVER. Pure. */
int io_timeout_ms(int64_t until, int64_t now);

/* A non-blocking socket for this address; -1 and errno. */
int io_socket(const struct address *address);

#endif
