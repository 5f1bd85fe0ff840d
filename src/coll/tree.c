#include "coll/tree.h"

#include "tensor/vec.h"

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

static void land_sum(void *at, const void *bytes, size_t n)
{
    vec_host_add(at, bytes, n / sizeof(float));
}

int tree_reduce(struct coll *c, float *x, size_t n)
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    for (size_t i = 0; i < coll_pieces(c, n); i++) {
        size_t from, len = coll_piece(c, n, i, &from);
        uint64_t tag = coll_tag(c, WIRE_REDUCE, i);
        for (size_t k = 0; k < children; k++) {
            int rc = coll_recv(c, child[k], tag, x + from, len * sizeof *x, land_sum);
            if (rc != OK)
                return rc;
        }
        if (me > 0) {
            int rc = coll_send(c, tree_parent(me), tag, x + from, len * sizeof *x);
            if (rc != OK)
                return rc;
        }
    }
    return OK;
}

/* Far children first: the longest way down is started first. */
static int send_down(struct coll *c, uint64_t tag, const void *data, size_t len)
{
    size_t child[TREE_CHILDREN_MAX];
    size_t children = tree_children(c->ranks->me, c->ranks->count, child);
    for (size_t k = children; k-- > 0;) {
        int rc = coll_send(c, child[k], tag, data, len);
        if (rc != OK)
            return rc;
    }
    return OK;
}

int tree_broadcast(struct coll *c, float *x, size_t n)
{
    size_t me = c->ranks->me;
    for (size_t i = 0; i < coll_pieces(c, n); i++) {
        size_t from, len = coll_piece(c, n, i, &from);
        uint64_t tag = coll_tag(c, WIRE_BROADCAST, i);
        int rc = OK;
        if (me > 0)
            rc = coll_recv(c, tree_parent(me), tag, x + from, len * sizeof *x, NULL);
        if (rc == OK)
            rc = send_down(c, tag, x + from, len * sizeof *x);
        if (rc != OK)
            return rc;
    }
    return OK;
}

int tree_reduce_note(struct coll *c, void *note, size_t len, void *other,
                     void (*merge)(void *note, const void *other))
{
    size_t me = c->ranks->me, child[TREE_CHILDREN_MAX];
    size_t children = tree_children(me, c->ranks->count, child);
    uint64_t tag = coll_tag(c, WIRE_REDUCE, WIRE_NOTE);
    for (size_t k = 0; k < children; k++) {
        int rc = coll_recv(c, child[k], tag, other, len, NULL);
        if (rc != OK)
            return rc;
        merge(note, other);
    }
    return me > 0 ? coll_send(c, tree_parent(me), tag, note, len) : OK;
}

int tree_broadcast_note(struct coll *c, void *note, size_t len)
{
    size_t me = c->ranks->me;
    uint64_t tag = coll_tag(c, WIRE_BROADCAST, WIRE_NOTE);
    int rc = me > 0 ? coll_recv(c, tree_parent(me), tag, note, len, NULL) : OK;
    return rc == OK ? send_down(c, tag, note, len) : rc;
}
