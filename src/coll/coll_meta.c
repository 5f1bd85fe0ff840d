#include "coll/coll_meta.h"

#include "coll/tree.h"

int coll_meta_reduce(struct coll *c, void *meta, size_t len, void *other,
                     void (*merge)(void *meta, const void *other))
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    uint64_t tag = coll_tag(c, WIRE_REDUCE, WIRE_HEADER_PIECE);
    for (size_t k = 0; k < children; k++) {
        int rc = coll_recv(c, child[k], tag, other, len);
        if (rc != OK)
            return rc;
        merge(meta, other);
    }
    return me > 0 ? coll_send(c, tree_parent(me), tag, meta, len) : OK;
}

/* Far children first: the longest way down is begun first. */
int coll_meta_broadcast(struct coll *c, void *meta, size_t len)
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    uint64_t tag = coll_tag(c, WIRE_BROADCAST, WIRE_HEADER_PIECE);
    int rc = me > 0 ? coll_recv(c, tree_parent(me), tag, meta, len) : OK;
    while (rc == OK && children-- > 0)
        rc = coll_send(c, child[children], tag, meta, len);
    return rc;
}
