#include "group/view.h"

#include "base/fault.h"

int view_rank(const struct view *view, uint32_t node)
{
    for (size_t i = 0; i < view->count; i++)
        if (view->node[i] == node)
            return (int)i;
    return -1;
}

uint32_t view_seat(const struct view *view, uint32_t node)
{
    int rank = view_rank(view, node);
    return rank < 0 ? VIEW_NO_SEAT : view->seated[rank] - 1;
}

uint32_t view_seated(const struct view *view, uint32_t seat)
{
    for (size_t i = 0; i < view->count; i++)
        if (view->seated[i] == seat + 1)
            return view->node[i];
    return VIEW_MEMBERS_MAX;
}

struct members view_members(const struct view *view)
{
    struct members set = {{0}};
    for (size_t i = 0; i < view->count; i++)
        members_add(&set, view->node[i]);
    return set;
}

struct members view_participants(const struct view *view)
{
    const struct members all = view_members(view);
    return members_without(&all, &view->leaves);
}

uint32_t view_proxy(const struct view *view, uint32_t leaf)
{
    const struct members participants = view_participants(view);
    size_t turn = members_rank(&view->leaves, leaf) % members_count(&participants);
    uint32_t node = members_next(&participants, 0);
    while (turn-- > 0)
        node = members_next(&participants, node + 1);
    return node;
}

void view_settle_elders(struct view *view)
{
    const struct members all = view_members(view);
    const struct members stay = members_intersection(&view->elders, &all);
    view->elders = members_empty(&stay) ? all : stay;
    PL_ASSERT(view->count == 0 || !members_empty(&view->elders)); /* V7 */
    PL_ASSERT(members_within(&view->elders, &all));
}

uint32_t view_after(const struct view *view, uint32_t node)
{
    const struct members participants = view_participants(view);
    const struct members *sets[] = {&participants, &view->leaves};
    bool is_member = view_rank(view, node) >= 0;
    size_t set = is_member && members_has(&view->leaves, node);
    uint32_t next = members_next(sets[set], is_member ? node + 1 : 0);
    for (; next == VIEW_MEMBERS_MAX; next = members_next(sets[set], 0))
        set = !set;
    return next;
}

void view_encode(const struct view *view, struct buf *out)
{
    buf_put_u32(out, view->number);
    buf_put_u32(out, view->incarnation);
    buf_put_u32(out, (uint32_t)view->count);
    for (size_t i = 0; i < view->count; i++) {
        buf_put_u32(out, view->node[i]);
        buf_put_text(out, view->address[i]);
        buf_put_u32(out, view->seated[i]);
        buf_put_u8(out, (uint8_t)(members_has(&view->leaves, view->node[i]) |
                                  members_has(&view->fresh, view->node[i]) << 1 |
                                  members_has(&view->elders, view->node[i]) << 2));
    }
}

/* Is that seat another member's already? */
static bool seat_is_taken(const struct view *view, size_t i)
{
    for (size_t k = 0; k < i && view->seated[i] > 0; k++)
        if (view->seated[k] == view->seated[i])
            return true;
    return false;
}

int view_decode(struct byte_reader *in, struct view *out)
{
    out->number = read_u32(in);
    out->incarnation = read_u32(in);
    out->count = read_u32(in);
    if (out->count > VIEW_MEMBERS_MAX)
        return ERR_PROTOCOL;
    out->leaves = out->fresh = out->elders = (struct members){{0}};
    for (size_t i = 0; i < out->count; i++) {
        out->node[i] = read_u32(in);
        read_text(in, out->address[i], sizeof out->address[i]);
        out->seated[i] = read_u32(in);
        uint8_t flags = read_u8(in);
        if (flags > 7 || out->node[i] >= VIEW_MEMBERS_MAX ||
            (i > 0 && out->node[i] <= out->node[i - 1]) || out->seated[i] > VIEW_MEMBERS_MAX ||
            seat_is_taken(out, i))
            return ERR_PROTOCOL;
        members_put(&out->leaves, out->node[i], flags & 1);
        members_put(&out->fresh, out->node[i], flags >> 1 & 1);
        members_put(&out->elders, out->node[i], flags >> 2);
    }
    const struct members stay = view_participants(out);
    bool some = out->count == 0 || !(members_empty(&stay) || members_empty(&out->elders));
    return byte_reader_done(in) && out->number > 0 && some ? OK : ERR_PROTOCOL;
}
