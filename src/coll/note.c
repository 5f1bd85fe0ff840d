#include "coll/note.h"

#include "coll/tree.h"

int note_reduce(struct coll *c, void *note, size_t len, void *other,
                void (*merge)(void *note, const void *other))
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    uint64_t tag = coll_tag(c, WIRE_REDUCE, WIRE_NOTE);
    for (size_t k = 0; k < children; k++) {
        int rc = coll_recv(c, child[k], tag, other, len);
        if (rc != OK)
            return rc;
        merge(note, other);
    }
    return me > 0 ? coll_send(c, tree_parent(me), tag, note, len) : OK;
}

/* Far children first: the longest way down is begun first. */
int note_broadcast(struct coll *c, void *note, size_t len)
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    uint64_t tag = coll_tag(c, WIRE_BROADCAST, WIRE_NOTE);
    int rc = me > 0 ? coll_recv(c, tree_parent(me), tag, note, len) : OK;
    while (rc == OK && children-- > 0)
        rc = coll_send(c, child[children], tag, note, len);
    return rc;
}
