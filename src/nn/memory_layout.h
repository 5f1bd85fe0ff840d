/* Places pieces of memory with known live ranges: pieces whose live ranges do not overlap may share
 * memory. */
#ifndef PL_NN_MEMORY_LAYOUT_H
#define PL_NN_MEMORY_LAYOUT_H

#include <stddef.h>

/* Lives from moment `first` to moment `last`, both included. */
struct piece {
    size_t floats, first, last;
    size_t offset; /* floats: the result */
};

/* Pieces begin at multiples of a cache line, in floats. */
enum { LAYOUT_ALIGN = 16 };

/* Give each piece its offset. The floats of memory that all of them need. To find the smallest is
 * NP-hard (dynamic storage allocation); this is the better of two greedy orders, near the largest
 * sum of pieces that live at one moment for nets we know. `order` has room for n pointers. O(n²) */
size_t memory_layout_assign(struct piece *piece, size_t n, struct piece **order);

#endif
