/* Broadcast and reduce. Along a chain of ranks a long vector moves piece by piece at the full rate
 * of every link: each rank sends it once, where the root of a tree sends it to every child. A short
 * one takes the tree's ⌈log2 P⌉ hops instead of P − 1. */
#include "coll/coll_schedule.h"

/* A chain holds P − 1 pieces at once; it pays when the vector is several times that. */
static bool chain_pays(size_t ranks, size_t n, size_t chunk)
{
    return ranks > 2 && n / chunk >= 4 * ranks;
}

int schedule_broadcast(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                       size_t chunk)
{
    schedule_begin(s, ranks, me, n);
    if (!chain_pays(ranks, n, chunk)) {
        schedule_tree_broadcast(s, root);
        return schedule_end(s);
    }
    size_t place = (me + ranks - root) % ranks;
    if (place > 0)
        schedule_recv(s, (me + ranks - 1) % ranks, 0, n, true);
    if (place + 1 < ranks)
        schedule_send(s, (me + 1) % ranks, 0, n, true);
    return schedule_end(s);
}

int schedule_reduce(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                    size_t chunk)
{
    schedule_begin(s, ranks, me, n);
    if (!chain_pays(ranks, n, chunk)) {
        schedule_tree_reduce(s, root);
        return schedule_end(s);
    }
    size_t place = (me + ranks - root) % ranks; /* the root's successor begins, the root ends it */
    if (place != 1)
        schedule_add(s, (me + ranks - 1) % ranks, 0, n);
    if (place != 0)
        schedule_send(s, (me + 1) % ranks, 0, n, false);
    return schedule_end(s);
}
