/* The queue of future events: a pairing heap by (time, sequence number). An event is part of the
 * object that it happens to, so queueing needs no memory and cannot fail. An event that is no
 * longer wanted is removed, so that an old deadline does not advance the time. */
#ifndef PL_SIM_HEAP_H
#define PL_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
    int64_t at;
    uint64_t seq;
    void (*fire)(struct event *event); /* set by the owner, before the first push */
    bool queued;
    struct event *child, *next, *prev; /* prev: the left sibling, or the parent of a first child */
};

struct heap {
    struct event *root;
    uint64_t seq;
};

/* The thing of type `type` that has `event` as its `member`. */
#define event_owner(event, type, member) ((type *)((char *)(event)-offsetof(type, member)))

/* Queue an event, again if it is queued; INT64_MAX: never. Later pushes of one time fire later. */
void heap_push(struct heap *heap, struct event *event, int64_t at);
void heap_remove(struct heap *heap, struct event *event); /* fine when it is not queued */

/* The first event, or NULL. */
static inline struct event *heap_top(const struct heap *heap)
{
    return heap->root;
}

#endif
