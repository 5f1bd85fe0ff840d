/* Serves all connections of a world through epoll. The I/O thread does so when no task does
 * (real/role.h). */
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
    HALF_OPEN_MAX = 64, /* accepted connections without a hello; for one more, the oldest of the
                           address with the most is closed */
    STRANGER_REASONS = 16,
    STRIKE_NETWORKS = 256,
    IO_EVENTS_MAX = 64,
};

struct io {
    struct task task;
    int epoll, listener, event; /* -1: none */
    int spare;                  /* a descriptor to give up when there are no more; -1: none */
    /* Used by the serving thread alone: */
    bool accepting;       /* the listener is watched */
    int64_t accept_after; /* when to continue after running short of descriptors; 0: at will */
    struct link *links;
    struct link *mapped;     /* links whose streams report readiness themselves */
    atomic_size_t half_open; /* links that are (tests read it), */
    size_t half_open_max;    /* and how many there may be: HALF_OPEN_MAX, or fewer descriptors */
    struct stranger_reason {
        const char *why;
        uint64_t count;    /* connections closed for it since the last log line about one */
        int64_t report_at; /* when the next log line may come */
    } reasons[STRANGER_REASONS];
    struct strikes {
        uint8_t count;
        int64_t until;          /* forgotten then */
    } strikes[STRIKE_NETWORKS]; /* refused connections, by network */
    int64_t warn_plain;         /* when to warn again that traffic is not encrypted; 0: never */
    size_t timed;    /* those, dialled ones that are not open, and ended ones: with deadlines */
    struct ucx *ucx; /* NULL: none */
    uint8_t *scratch;
    struct pacer pace_out, pace_in;
    bool paced; /* some peer waits for one of them: peer->paced */
    size_t paced_turn;
    /* Under the node's lock: */
    struct role role;
    struct peer *to_tend;
    bool kicked; /* the event was written and not read yet */
    bool closing;
};

/* Listen at node->address, and write there where that is. ERR_INPUT, ERR_IO, ERR_NOMEM */
int io_open(struct node *node, struct err *err);
/* Start the thread. driver: the connection to the driver at that address, or NULL; the callee owns
 * it in any case. */
int io_start(struct node *node, const struct stream *driver, const struct address *address,
             struct err *err);
/* Send what is queued, for at most limits.flush, and end the thread. */
void io_stop(struct node *node);
/* Close all that is left; after the thread has ended, or before it was started. */
void io_release(struct node *node);

/* Let the serving thread process a peer: something to send, a connection to make or to close. The
 * lock is held. */
void io_tend(struct node *node, struct peer *peer);
/* Wake the thread that sleeps in epoll_wait. The lock is held. */
void io_kick(struct io *io);

/* On the serving thread: wait for events until `until` (0: do not wait), serve them, and then
 * process, with the lock held, all peers given to io_tend. */
int io_poll(struct io *io, struct epoll_event *events, int64_t until);
void io_serve(struct node *node, const struct epoll_event *events, int n);
void io_tend_all(struct node *node);
/* On the serving thread, before it stops polling: from now on epoll reports every event. true:
 * there is one already. */
bool io_arm(struct io *io);

/* The time-out of poll and epoll_wait, in milliseconds, for a deadline: rounded up, so that the
 * deadline has passed when they return; INT_MAX at most; -1 for WORLD_FOREVER. Pure. */
int io_timeout_ms(int64_t until, int64_t now);

/* A non-blocking socket for this address; -1 and errno. */
int io_socket(const struct address *address);
/* Whether a socket whose connect() has ended is connected: 0, or an errno. ECONNREFUSED also if it
 * is connected to itself: no program listened, and the kernel chose the called port for the calling
 * end. */
int io_connected(int fd);

#endif
