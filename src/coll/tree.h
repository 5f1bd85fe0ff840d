/* Rank arithmetic of the binomial tree: a rank's parent is the rank without its lowest one bit, so
 * that ⌈log2 P⌉ hops reach all ranks. */
#ifndef PL_COLL_TREE_H
#define PL_COLL_TREE_H

#include <stddef.h>

enum { TREE_CHILDREN_MAX = 11 }; /* of 2048 ranks */

/* The parent of a rank > 0, and the children of a rank, nearest first; returns how many. */
size_t tree_parent(size_t rank);
size_t tree_children(size_t rank, size_t count, size_t child[TREE_CHILDREN_MAX]);

#endif
