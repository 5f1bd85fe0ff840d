/* The queue of future events: a pairing heap by (time, sequence number), and a list of those that
 * are due at the present time, which are many. An event is part of the object that it happens to,
 * so queueing needs no memory and cannot fail. An event that is no longer wanted is removed, so
 * that an old deadline does not advance the time. */
#ifndef PL_SIM_HEAP_H
#define PL_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
    int64_t at;
    uint64_t seq;
    void (*fire)(struct event *event); /* set by the owner, before the first push */
    bool queued, due;                  /* due: in that list */
    struct event *child, *next, *prev; /* prev: the left sibling, or the parent of a first child */
};

struct heap {
    struct event *root;
    struct event *due, *due_last; /* in order */
    int64_t now;                  /* time of the last event taken */
    uint64_t seq;
};

/* The thing of type `type` that has `event` as its `member`. */
#define event_owner(event, type, member) ((type *)((char *)(event)-offsetof(type, member)))

/* Queue an event, again if it is queued; INT64_MAX: never. Later pushes of one time fire later. */
void heap_push(struct heap *heap, struct event *event, int64_t at);
void heap_remove(struct heap *heap, struct event *event); /* fine when it is not queued */

static inline bool event_is_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

/* The first event, or NULL. */
static inline struct event *heap_top(const struct heap *heap)
{
    if (!heap->due || !heap->root)
        return heap->due ? heap->due : heap->root;
    return event_is_before(heap->root, heap->due) ? heap->root : heap->due;
}

/* Remove heap_top, whose time is the present one from now on. */
void heap_take(struct heap *heap, struct event *top);

#endif
