/* Binomial tree, Spark's way: reduce towards rank 0 in ⌈log2 P⌉ rounds, broadcast back, both in
 * pieces, so that a piece moves on while the next comes in. Each rank sends its S bytes once up and
 * once a child down. Sums run in a fixed order: own value, then children from the nearest. */
#ifndef PL_COLL_TREE_H
#define PL_COLL_TREE_H

#include "coll/coll.h"

enum { TREE_CHILDREN_MAX = 11 }; /* of 2048 ranks */

/* Rank arithmetic: the parent of a rank > 0, and the children of a rank, nearest first; returns how
 * many. */
size_t tree_parent(size_t rank);
size_t tree_children(size_t rank, size_t count, size_t child[TREE_CHILDREN_MAX]);

/* x (n floats) of every rank is summed into x of rank 0; the x of others is undefined afterwards.
 * ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int tree_reduce(struct coll *c, float *x, size_t n);

/* x of rank 0 to every rank. */
int tree_broadcast(struct coll *c, float *x, size_t n);

/* The same for a small note of `len` bytes, in one message: `merge` folds another's note into one's
 * own, children from the nearest. `other` has room for a note. */
int tree_reduce_note(struct coll *c, void *note, size_t len, void *other,
                     void (*merge)(void *note, const void *other));
int tree_broadcast_note(struct coll *c, void *note, size_t len);

#endif
