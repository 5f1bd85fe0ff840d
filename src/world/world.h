/* The seam (D2): all that a node may use of its surroundings. Two implementations, src/real and
 * src/sim, pass one conformance suite; code above the seam does not know which of them it runs on.
 *
 * A world belongs to one node. Its tasks share memory and synchronise by signals only: a task that
 * world_wait returns a signal to sees what another task wrote before world_raise. Tasks of
 * different nodes share nothing; they send messages.
 *
 * Between a peer's up and down, messages of one class from that peer arrive once and in order. Each
 * message carries the view that it belongs to (0: none). After world_abort no message of an older
 * view is delivered and no posted receive of one is written.
 *
 * Memory is bounded by credit: a sender may have at most WORLD_CREDIT bytes of a class at a peer
 * that the peer has not taken. Beyond that world_send returns ERR_FULL, and a wait for credit wakes
 * the sender when half of it is free again. */
#ifndef PL_WORLD_WORLD_H
#define PL_WORLD_WORLD_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct world;
struct task;
struct trace;

#define WORLD_SECOND  INT64_C(1000000000) /* times are nanoseconds */
#define WORLD_FOREVER INT64_MAX           /* a deadline that never passes */

enum {
    WORLD_CREDIT = 8 * 1024 * 1024,
    WORLD_MESSAGE_MAX = 4 * 1024 * 1024, /* of data; a longer vector travels in pieces */
    WORLD_WAITS_MAX = 12,
    WORLD_SIGNALS = 35,
};

/* Nodes. The driver numbers workers from 0. A node that the driver has added to its address book
 * keeps its number for ever, and later nodes have higher ones. A worker that disconnects before
 * that returns its number. */
#define WORLD_ANY    UINT32_MAX
#define WORLD_DRIVER (UINT32_MAX - 1)

enum world_class { CLASS_CONTROL, CLASS_BULK, CLASS_COUNT };

/* A message: a header and `len` bytes. Counted references; made with one. */
struct message {
    uint32_t from, view; /* `from` is filled in by the world */
    uint64_t tag;        /* receivers match it; wire/catalogue.h defines its bits */
    size_t len;
    void *data;             /* NULL: phantom, only its length travels (sim) */
    int64_t first_byte;     /* when its first byte arrived: an earlier wait was for the sender */
    _Atomic int references; /* message_* only */
    void (*release)(struct message *m); /* a world's, that wants its memory back; NULL: free() */
};

/* A message with room for `len` bytes (len ≤ WORLD_MESSAGE_MAX); NULL when memory runs out. */
struct message *message_new(uint64_t tag, uint32_t view, size_t len);
struct message *message_phantom(uint64_t tag, uint32_t view, size_t len);
struct message *message_ref(struct message *m);
void message_unref(struct message *m); /* NULL allowed */

/* Counts the ended posts that point to it: a task with many posts waits for any of them
 * (WAIT_ENDED), then checks each one's status. Its owner zeroes it, and the world increments it. It
 * must stay in place until all posts are counted; each is counted a moment after its status is set.
 */
struct ended {
    _Atomic uint64_t times;
};

enum { POST_PENDING = 1 };

/* A posted receive: the bytes of the next message from `from` with exactly this tag and view go
 * into the caller's range as they arrive. The struct is the caller's, and stays in place until
 * `status` is no longer POST_PENDING; world_abort and world_unpost end it, too. */
struct recv {
    uint32_t from, view;
    uint64_t tag;
    void *into; /* NULL in sim: phantom */
    size_t len; /* exactly; a message of another length is ERR_PROTOCOL */
    /* Stores arrived bytes: `at` is within `into`, n is a multiple of 4. NULL: copies them. It runs
     * on a thread of the world, and may touch only the range and the object of `user`. */
    void (*land)(void *user, void *at, const void *bytes, size_t n);
    void *user;
    struct ended *ended; /* NULL: not counted */
    /* Filled in by the world: */
    _Atomic int status; /* POST_PENDING, OK, ERR_VIEW, ERR_PEER, ERR_PROTOCOL, ERR_CANCELLED */
    int64_t first_byte;
    struct recv *next; /* the world's list */
    size_t landed;     /* bytes so far */
};

/* A posted send: the bytes leave from the caller's range, after earlier sends to that peer, as soon
 * as the peer has room for them. Nothing is copied or allocated. The struct must stay in place and
 * the range unchanged until `status` is no longer POST_PENDING; then the world does not use them
 * any more, but the bytes may not have arrived. It travels as CLASS_BULK. */
struct send {
    uint32_t to, view; /* to: another node */
    uint64_t tag;
    const void *from; /* NULL in sim: phantom */
    size_t len;       /* ≤ WORLD_MESSAGE_MAX */
    uint32_t stripe;  /* which connection to prefer, where there are several to one peer; the order
                         of sends is kept within a stripe only */
    struct ended *ended;
    /* Filled in by the world: */
    _Atomic int status; /* POST_PENDING, OK, ERR_VIEW, ERR_PEER, ERR_CANCELLED */
    struct send *next;  /* the world's list */
    void *world;        /* the world's own */
};

/* The events that a wait may wait for: any of these. */
enum wait_kind {
    WAIT_MESSAGE, /* from `from` (or WORLD_ANY) in `view`, where (tag & mask) == `tag` */
    WAIT_SIGNAL,  /* `signal` raised more often than `seen` */
    WAIT_RECV,    /* `recv` no longer pending */
    WAIT_ENDED,   /* posts counted by `ended` have ended more often than `seen` */
    WAIT_CREDIT,  /* `peer` would take a bulk message again, or is down */
    WAIT_PEER,    /* a peer is up, down, or cannot be reached; each event wakes one wait */
    WAIT_TASK,    /* `task` has ended */
};

struct wait_for {
    enum wait_kind kind;
    uint32_t from, view; /* WAIT_MESSAGE; view 0 matches only view 0 */
    uint64_t tag, mask;
    uint32_t signal;
    uint64_t seen;
    struct recv *recv;
    const struct ended *ended;
    uint32_t peer;
    struct task *task;
};

struct wake {
    int which;           /* index of the event that woke the task */
    struct message *msg; /* WAIT_MESSAGE: now the caller's reference */
    uint32_t peer;       /* WAIT_PEER */
    bool up;
};

/* The cost of a piece of work: seconds of one core of a node with speed 1. */
struct cost {
    double seconds;
};

typedef int (*task_fn)(void *arg);

struct world_ops {
    int64_t (*now)(struct world *w);

    /* The `counter`-th number of the node's stream. */
    uint64_t (*random)(struct world *w, uint64_t stream, uint64_t counter);

    /* Start a task; `name` (static) is for logs. *out lives until world_join. ERR_NOMEM */
    int (*spawn)(struct world *w, const char *name, task_fn fn, void *arg, struct task **out);
    /* From now on every wait of the task returns ERR_CANCELLED. May be called twice. */
    void (*cancel)(struct world *w, struct task *task);
    /* Wait for the end of a task, store its return value in *result (may be NULL), and free it.
     * ERR_TIMEOUT: it still runs, and *task is still valid. */
    int (*join)(struct world *w, struct task *task, int64_t deadline, int *result);

    /* The one function in which a task waits: until one of `n` events has occurred, the lowest
     * index first, or the absolute deadline passes. Messages that have arrived are returned at
     * once, in the order of arrival. n 0: a sleep. ERR_TIMEOUT, ERR_CANCELLED (the task, or in sim
     * its node, is to end) */
    int (*wait)(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                struct wake *out);
    /* Never blocks; signal < WORLD_SIGNALS. */
    void (*raise)(struct world *w, uint32_t signal);
    uint64_t (*raised)(struct world *w, uint32_t signal); /* how often, for `seen` */

    /* Hand a message to the world; takes the caller's reference, also when it fails. Never blocks.
     * A message to the node itself is allowed.
     * A peer that is known and not up yet is sent to when it comes up.
     * ERR_FULL   no credit: the reference stays the caller's, who waits for credit and tries again
     * ERR_PEER   no such peer, or it is down */
    int (*send)(struct world *w, uint32_t peer, struct message *m, enum world_class class);

    /* Post a receive. Bytes that arrived before are stored now. ERR_VIEW: recv->view was aborted.
     */
    int (*post_recv)(struct world *w, struct recv *recv);
    /* Take back a receive that is still pending; afterwards nothing touches its range. */
    void (*unpost)(struct world *w, struct recv *recv);

    /* Post a send. ERR_VIEW: send->view was aborted. If the peer is down, the send ends with the
     * status ERR_PEER. */
    int (*post_send)(struct world *w, struct send *send);
    /* Take back a send that is still pending; afterwards nothing reads its range. */
    void (*unsend)(struct world *w, struct send *send);

    /* When it returns, no byte of a view older than `view` (except view 0) is written into a
     * caller's range or delivered any more, and posts of those views have ended with ERR_VIEW.
     * Messages of newer views are kept. */
    void (*abort)(struct world *w, uint32_t view);

    /* Add a peer's address to the address book. The world connects to a known peer by itself. On
     * the driver this fixes the worker's number for ever. sim: all peers are known, and `address`
     * is ignored.
     *
     * A worker whose driver is down may add the driver again, at the same address (NULL) or
     * another: the world calls it under this node's number, and it comes up or goes down. Messages
     * of the previous connection are dropped. ERR_FULL: that connection is still closing; try again
     * soon. Other peers that are down stay down. ERR_INPUT, ERR_NOMEM */
    int (*peer_add)(struct world *w, uint32_t peer, const char *address);
    /* Close the connection to a peer and forget it; it does not come up again. */
    void (*peer_drop)(struct world *w, uint32_t peer);

    /* Where this node listens, for others' address books: "host:port"; "" in sim. */
    void (*address)(struct world *w, char *out, size_t size);

    /* Request `n` more nodes from the host: a process each from the command, a join each in sim. */
    int (*want_nodes)(struct world *w, uint32_t n);

    /* Announce waits of microseconds. Until the calling task withdraws this (-1), its waits serve
     * the connections themselves instead of leaving that to the I/O thread, and poll for `spin` ns
     * before they sleep. sim: no effect. */
    void (*busy_poll)(struct world *w, int64_t spin);

    /* sim: wait for the time that the work takes on this node, whose tasks share its cores. real:
     * returns at once, since the work itself takes time. ERR_CANCELLED */
    int (*work)(struct world *w, const struct cost *cost);
};

/* The cost of moving bytes: seconds of a core of speed 1 for each; and the seconds that a step
 * waits for its batch. real: 0, all of this takes its time. */
struct world_costs {
    double copy, reduce, crypto;
    double batch;
};

/* Judges a message before a task receives it, on that task; false: the message is dropped. */
struct world_guard {
    bool (*accepts)(struct world_guard *guard, const struct message *m);
};

struct world {
    const struct world_ops *ops;
    uint32_t self;       /* this node */
    struct trace *trace; /* trace.h; NULL: not traced. Set while no task uses it */
    struct world_costs costs;
    _Atomic(struct world_guard *) guard; /* NULL: every message is received */
};

static inline int64_t world_now(struct world *w)
{
    return w->ops->now(w);
}

static inline uint64_t world_random(struct world *w, uint64_t stream, uint64_t counter)
{
    return w->ops->random(w, stream, counter);
}

static inline int world_spawn(struct world *w, const char *name, task_fn fn, void *arg,
                              struct task **out)
{
    return w->ops->spawn(w, name, fn, arg, out);
}

static inline void world_cancel(struct world *w, struct task *task)
{
    w->ops->cancel(w, task);
}

static inline int world_join(struct world *w, struct task *task, int64_t deadline, int *result)
{
    return w->ops->join(w, task, deadline, result);
}

static inline int world_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                             struct wake *out)
{
    for (;;) {
        int rc = w->ops->wait(w, set, n, deadline, out);
        if (rc != OK || set[out->which].kind != WAIT_MESSAGE)
            return rc;
        struct world_guard *guard = atomic_load_explicit(&w->guard, memory_order_acquire);
        if (!guard || guard->accepts(guard, out->msg))
            return rc;
        message_unref(out->msg);
    }
}

static inline void world_raise(struct world *w, uint32_t signal)
{
    w->ops->raise(w, signal);
}

static inline uint64_t world_raised(struct world *w, uint32_t signal)
{
    return w->ops->raised(w, signal);
}

/* Wait for the signal to be raised again after this call: make it before the condition is read. */
static inline struct wait_for wait_signal(struct world *w, uint32_t signal)
{
    return (struct wait_for){
        .kind = WAIT_SIGNAL, .signal = signal, .seen = world_raised(w, signal)};
}

static inline int world_send(struct world *w, uint32_t peer, struct message *m,
                             enum world_class class)
{
    return w->ops->send(w, peer, m, class);
}

static inline int world_post_recv(struct world *w, struct recv *recv)
{
    return w->ops->post_recv(w, recv);
}

static inline void world_unpost(struct world *w, struct recv *recv)
{
    w->ops->unpost(w, recv);
}

static inline int world_post_send(struct world *w, struct send *send)
{
    return w->ops->post_send(w, send);
}

static inline void world_unsend(struct world *w, struct send *send)
{
    w->ops->unsend(w, send);
}

static inline void world_abort(struct world *w, uint32_t view)
{
    w->ops->abort(w, view);
}

static inline int world_peer_add(struct world *w, uint32_t peer, const char *address)
{
    return w->ops->peer_add(w, peer, address);
}

static inline void world_peer_drop(struct world *w, uint32_t peer)
{
    w->ops->peer_drop(w, peer);
}

static inline void world_address(struct world *w, char *out, size_t size)
{
    w->ops->address(w, out, size);
}

static inline int world_want_nodes(struct world *w, uint32_t n)
{
    return w->ops->want_nodes(w, n);
}

static inline void world_busy_poll(struct world *w, int64_t spin)
{
    w->ops->busy_poll(w, spin);
}

static inline int world_work(struct world *w, const struct cost *cost)
{
    return w->ops->work(w, cost);
}

/* sim: wait for the time that copying so many bytes takes. */
static inline int world_copied(struct world *w, size_t bytes)
{
    double seconds = w->costs.copy * (double)bytes;
    return seconds > 0 ? world_work(w, &(struct cost){seconds}) : OK;
}

/* Sleep until an absolute time. OK, or ERR_CANCELLED. */
int world_sleep(struct world *w, int64_t until);

/* Cancel a task and wait for its end; sets *task to NULL. NULL tasks are passed over. */
void world_end_task(struct world *w, struct task **task);

static inline double world_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

#endif
