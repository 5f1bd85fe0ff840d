/* One real world from inside: what its files share. One mutex guards everything below `lock`; the
 * threads are the tasks' and one for I/O, and none of them copies bulk bytes or makes a system call
 * that may block while it holds the mutex. Links, and what of `io` is said to be of who serves, are
 * touched by one thread at a time: the one that has the role of the server (real/role.h). */
#ifndef PL_REAL_NODE_H
#define PL_REAL_NODE_H

#include "real/address.h"
#include "real/io.h"
#include "real/mailbox.h"
#include "real/peer.h"
#include "real/pool.h"
#include "real/real.h"
#include "real/real_task.h"

#include <pthread.h>

/* Tests shorten them. */
struct node_limits {
    int64_t hello; /* ns that a new connection has for its handshake */
    int64_t flush; /* ns that closing may take to send queued traffic */
    int64_t rest;  /* ns for which a number that was given back is not given again */
};

struct node {
    struct world world; /* first: a world is its node */
    struct logger log;
    struct node_limits limits;
    bool keyed, plain, no_shm, ucx; /* it has a key; it wants no encryption */
    bool any_port;                  /* where the one in `address` is taken */
    uint16_t driver_port; /* of a worker: not to be listened at, unless the user says so */
    uint32_t stripes;     /* connections to open to a peer */
    int nice;             /* of threads that compute */
    int (*want_nodes)(void *user, uint32_t n);
    void *user;
    uint64_t random_seed;
    struct run_key *key;                /* if `keyed`; in memory for secrets */
    struct seal_maker *seal_maker;      /* made for the first session; the serving thread's */
    uint64_t run;                       /* which run: drawn by the driver, never 0 */
    bool resumed_at;                    /* a driver, to a run that there was before */
    struct address address, advertised; /* .len of the second may be 0 */

    struct pool *pool; /* has a lock of its own */

    pthread_mutex_t lock;
    uint64_t signals[WORLD_SIGNALS];
    struct tasks tasks;
    struct mailbox mailbox;
    struct peers peers;
    struct message_queue pending;
    struct io io;
};

static inline struct node *node_of(struct world *w)
{
    return (struct node *)w;
}

static inline void node_lock(struct node *node)
{
    pthread_mutex_lock(&node->lock);
}

static inline void node_unlock(struct node *node)
{
    pthread_mutex_unlock(&node->lock);
}

static inline bool node_is_driver(const struct node *node)
{
    return node->world.self == WORLD_DRIVER;
}

/* NULL: no memory. For the serving thread, or before there is one. */
struct seal_maker *node_seal_maker(struct node *node);

/* real_open with other limits. */
int node_open(const struct real_options *options, const struct node_limits *limits,
              struct world **out, struct err *err);

#endif
