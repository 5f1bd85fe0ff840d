/* Binomial tree, as in Spark: reduce towards rank 0 in ⌈log2 P⌉ rounds, then broadcast. Sums have a
 * fixed order: the rank's own value, then its children from the nearest on. The broadcast serves
 * far children first, since their subtrees take longest. */
#include "coll/tree.h"

#include "coll/coll_schedule.h"

size_t tree_parent(size_t rank)
{
    return rank & (rank - 1); /* without its lowest one */
}

size_t tree_children(size_t rank, size_t count, size_t child[TREE_CHILDREN_MAX])
{
    size_t n = 0;
    size_t lowest = rank ? rank & -rank : (size_t)1 << TREE_CHILDREN_MAX;
    for (size_t bit = 1; bit < lowest && rank + bit < count; bit <<= 1)
        child[n++] = rank + bit;
    return n;
}

/* Ranks counted from the root, and back. */
static size_t from_root(const struct schedule *s, size_t root)
{
    return (s->me + s->ranks - root) % s->ranks;
}

static size_t rank_of(const struct schedule *s, size_t root, size_t place)
{
    return (place + root) % s->ranks;
}

void schedule_tree_reduce(struct schedule *s, size_t root)
{
    size_t child[TREE_CHILDREN_MAX], place = from_root(s, root);
    size_t children = tree_children(place, s->ranks, child);
    for (size_t k = 0; k < children; k++)
        schedule_add(s, rank_of(s, root, child[k]), 0, s->n);
    if (place > 0)
        schedule_send(s, rank_of(s, root, tree_parent(place)), 0, s->n, false);
}

void schedule_tree_broadcast(struct schedule *s, size_t root)
{
    size_t child[TREE_CHILDREN_MAX], place = from_root(s, root);
    size_t children = tree_children(place, s->ranks, child);
    if (place > 0)
        schedule_recv(s, rank_of(s, root, tree_parent(place)), 0, s->n, true);
    while (children-- > 0)
        schedule_send(s, rank_of(s, root, child[children]), 0, s->n, true);
}

void schedule_tree(struct schedule *s)
{
    schedule_tree_reduce(s, 0);
    schedule_tree_broadcast(s, 0);
}
