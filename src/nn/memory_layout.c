#include "nn/memory_layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t end_of(const struct piece *p)
{
    return p->offset + (p->floats + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

static bool ranges_overlap(const struct piece *a, const struct piece *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Place the buffer at the lowest offset that is free during its whole live range. The first n of
 * `placed` have offsets, in ascending order; this one joins them. */
static void place_buffer(struct piece **placed, size_t n, struct piece *piece)
{
    size_t i = 0;
    piece->offset = 0;
    for (; i < n; i++) {
        if (!ranges_overlap(placed[i], piece))
            continue;
        if (end_of(piece) <= placed[i]->offset)
            break;
        if (end_of(placed[i]) > piece->offset)
            piece->offset = end_of(placed[i]);
    }
    for (i = n; i > 0 && placed[i - 1]->offset > piece->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = piece;
}

static int by_number(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

static int larger_first(const void *a, const void *b)
{
    const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
    int rc = by_number(y->floats, x->floats);
    return rc ? rc : by_number((size_t)x, (size_t)y);
}

/* So pieces with long live ranges do not fragment the room of short ones. */
static int longer_first(const void *a, const void *b)
{
    const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
    int rc = by_number(y->last - y->first, x->last - x->first);
    return rc ? rc : larger_first(a, b);
}

typedef int compare_fn(const void *a, const void *b);

/* The array is sorted by offset: pieces without one are behind those with one. */
static size_t place_buffers(struct piece *piece, size_t n, struct piece **order, compare_fn *before)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        order[i] = &piece[i];
    qsort(order, n, sizeof(struct piece *), before);
    for (size_t i = 0; i < n; i++) {
        struct piece *next = order[i];
        place_buffer(order, i, next);
        total = end_of(next) > total ? end_of(next) : total;
    }
    return total;
}

size_t memory_layout_assign(struct piece *piece, size_t n, struct piece **order)
{
    size_t by_life = place_buffers(piece, n, order, longer_first);
    size_t by_size = place_buffers(piece, n, order, larger_first);
    return by_life < by_size ? place_buffers(piece, n, order, longer_first) : by_size;
}
