/* Where pieces of memory lie, when it is known beforehand from when to when each is wanted: those
 * whose lives do not meet may lie over one another. */
#ifndef PL_NN_MEMORY_LAYOUT_H
#define PL_NN_MEMORY_LAYOUT_H

#include <stddef.h>

/* Lives from moment `first` to moment `last`, both included. */
struct piece {
    size_t floats, first, last;
    size_t offset; /* floats: what is looked for */
};

/* Pieces begin at multiples of so many floats, a cache line. */
enum { LAYOUT_ALIGN = 16 };

/* Give each piece its offset. The floats of memory that all of them need. To find the smallest is
 * NP-hard (dynamic storage allocation); this is the better of two greedy orders, near the largest
 * sum of pieces that live at one moment for nets we know. `order` has room for n pointers. O(n²) */
size_t memory_layout_assign(struct piece *piece, size_t n, struct piece **order);

#endif
