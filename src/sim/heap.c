#include "sim/heap.h"

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

/* One heap of two; the later root becomes the first child of the earlier. NULL: no heap. */
static struct event *merge_heaps(struct event *a, struct event *b)
{
    if (!a || !b)
        return a ? a : b;
    if (is_before(b, a)) {
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

void heap_remove(struct heap *heap, struct event *event)
{
    if (!event->queued)
        return;
    struct event *below = merge_row(event->child);
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

void heap_push(struct heap *heap, struct event *event, int64_t at)
{
    heap_remove(heap, event);
    if (at == INT64_MAX)
        return;
    event->at = at;
    event->seq = ++heap->seq;
    event->queued = true;
    event->child = event->next = event->prev = NULL;
    heap->root = merge_heaps(heap->root, event);
}
