#include "sim/heap.h"

/* One heap of two; the later root becomes the first child of the earlier. NULL: no heap. */
static struct event *merge_heaps(struct event *a, struct event *b)
{
    if (!a || !b)
        return a ? a : b;
    if (event_is_before(b, a)) {
        struct event *later = a;
        a = b;
        b = later;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child)
        a->child->prev = b;
    a->child = b;
    return a;
}

/* One heap of a row of siblings: pairs from the left, then all pairs from the right. */
static struct event *merge_row(struct event *first)
{
    struct event *pairs = NULL;
    while (first) {
        struct event *a = first, *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = merge_heaps(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct event *root = NULL;
    while (pairs) {
        struct event *next = pairs->next;
        pairs->next = NULL;
        root = merge_heaps(root, pairs);
        pairs = next;
    }
    return root;
}

static void remove_due(struct heap *heap, struct event *event)
{
    *(event->prev ? &event->prev->next : &heap->due) = event->next;
    *(event->next ? &event->next->prev : &heap->due_last) = event->prev;
    event->next = event->prev = NULL;
    event->queued = event->due = false;
}

static void add_due(struct heap *heap, struct event *event)
{
    event->due = true;
    event->prev = heap->due_last;
    *(heap->due_last ? &heap->due_last->next : &heap->due) = event;
    heap->due_last = event;
}

static inline void remove_event(struct heap *heap, struct event *event)
{
    if (!event->queued)
        return;
    if (event->due) {
        remove_due(heap, event);
        return;
    }
    struct event *below = event->child ? merge_row(event->child) : NULL;
    if (event == heap->root) {
        heap->root = below;
    } else {
        if (event->prev->child == event)
            event->prev->child = event->next;
        else
            event->prev->next = event->next;
        if (event->next)
            event->next->prev = event->prev;
        heap->root = merge_heaps(heap->root, below);
    }
    event->child = event->next = event->prev = NULL;
    event->queued = false;
}

void heap_remove(struct heap *heap, struct event *event)
{
    remove_event(heap, event);
}

void heap_take(struct heap *heap, struct event *top)
{
    heap->now = top->at;
    remove_event(heap, top);
}

void heap_push(struct heap *heap, struct event *event, int64_t at)
{
    remove_event(heap, event);
    if (at == INT64_MAX)
        return;
    event->at = at;
    event->seq = ++heap->seq;
    event->queued = true;
    event->child = event->next = event->prev = NULL;
    if (at == heap->now && (!heap->due_last || heap->due_last->at <= at))
        add_due(heap, event);
    else
        heap->root = merge_heaps(heap->root, event);
}
