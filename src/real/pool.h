/* A pool of messages and of queue entries, so that a node that has warmed up allocates nothing for
 * its traffic. The kept memory is bounded. */
#ifndef PL_REAL_POOL_H
#define PL_REAL_POOL_H

#include "world/world.h"

#include <pthread.h>

enum {
    POOL_ROOM_MIN = 64, /* rooms are this times powers of two, up to the longest message */
    POOL_ROOMS = 17,
    PENDING_KEPT = 4096,
};

struct pooled;

/* Messages. It has a lock of its own, under which nothing else is done, and lives until the last of
 * its messages has returned. */
struct pool {
    pthread_mutex_t lock;
    struct pooled *spare[POOL_ROOMS];
    size_t kept; /* bytes in `spare`, at most WORLD_CREDIT */
    size_t out;  /* messages that have not return */
    size_t made; /* allocations so far */
    bool closed;
};

struct pool *pool_create(void); /* NULL: no memory */
void pool_close(struct pool *pool);

/* As message_new; the last reference returns it to the pool. */
struct message *pool_message(struct pool *pool, uint64_t tag, uint32_t view, size_t len);

/* A message in a queue. */
struct pending_message {
    struct pending_message *next;
    struct message *m;
    enum world_class class;
    uintptr_t turn; /* outgoing: its turn among posted sends */
};

struct message_queue {
    struct pending_message *spare;
    size_t kept, made;
};

struct pending_message *pool_pending(struct message_queue *queue, struct message *m,
                                     enum world_class class);
/* The message that was in it. */
struct message *pool_pending_return(struct message_queue *queue, struct pending_message *pending);
void message_queue_release(struct message_queue *queue);

#endif
