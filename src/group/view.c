#include "group/view.h"

int view_rank(const struct view *view, uint32_t node)
{
    for (size_t i = 0; i < view->count; i++)
        if (view->node[i] == node)
            return (int)i;
    return -1;
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

void members_encode(const struct members *set, struct buf *out)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        buf_put_u64(out, set->word[i]);
}

void members_decode(struct byte_reader *in, struct members *out)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        out->word[i] = read_u64(in);
}

struct members members_union(const struct members *a, const struct members *b)
{
    struct members both;
    for (int i = 0; i < MEMBER_WORDS; i++)
        both.word[i] = a->word[i] | b->word[i];
    return both;
}

struct members members_without(const struct members *a, const struct members *b)
{
    struct members left;
    for (int i = 0; i < MEMBER_WORDS; i++)
        left.word[i] = a->word[i] & ~b->word[i];
    return left;
}

size_t members_count(const struct members *set)
{
    size_t n = 0;
    for (int i = 0; i < MEMBER_WORDS; i++)
        n += (size_t)__builtin_popcountll(set->word[i]);
    return n;
}

size_t members_rank(const struct members *set, uint32_t node)
{
    size_t n = 0;
    for (uint32_t i = 0; i < node / 64; i++)
        n += (size_t)__builtin_popcountll(set->word[i]);
    uint64_t below = (UINT64_C(1) << node % 64) - 1;
    return n + (size_t)__builtin_popcountll(set->word[node / 64 % MEMBER_WORDS] & below);
}
