#include "group/view.h"

int view_rank(const struct view *view, uint32_t node)
{
    for (size_t i = 0; i < view->count; i++)
        if (view->node[i] == node)
            return (int)i;
    return -1;
}

struct members view_members(const struct view *view)
{
    struct members set = {{0}};
    for (size_t i = 0; i < view->count; i++)
        members_add(&set, view->node[i]);
    return set;
}

void view_encode(const struct view *view, struct buf *out)
{
    buf_put_u32(out, view->number);
    buf_put_u32(out, view->incarnation);
    buf_put_u32(out, (uint32_t)view->count);
    for (size_t i = 0; i < view->count; i++) {
        buf_put_u32(out, view->node[i]);
        buf_put_text(out, view->address[i]);
    }
}

int view_decode(struct byte_reader *in, struct view *out)
{
    out->number = read_u32(in);
    out->incarnation = read_u32(in);
    out->count = read_u32(in);
    if (out->count > VIEW_MEMBERS_MAX)
        return ERR_PROTOCOL;
    for (size_t i = 0; i < out->count; i++) {
        out->node[i] = read_u32(in);
        read_text(in, out->address[i], sizeof out->address[i]);
        if (out->node[i] >= VIEW_MEMBERS_MAX || (i > 0 && out->node[i] <= out->node[i - 1]))
            return ERR_PROTOCOL;
    }
    return byte_reader_done(in) && out->number > 0 ? OK : ERR_PROTOCOL;
}
