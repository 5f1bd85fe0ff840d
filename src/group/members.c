#include "group/members.h"

#include "base/fault.h"

void members_put(struct members *set, uint32_t node, bool in)
{
    PL_ASSERT(node < VIEW_MEMBERS_MAX);
    uint64_t bit = UINT64_C(1) << node % 64;
    uint64_t *word = &set->word[node / 64];
    *word = in ? *word | bit : *word & ~bit;
}

void members_add(struct members *set, uint32_t node)
{
    members_put(set, node, true);
}

void members_remove(struct members *set, uint32_t node)
{
    members_put(set, node, false);
}

struct members members_only(uint32_t node)
{
    struct members set = {{0}};
    members_add(&set, node);
    return set;
}

bool members_empty(const struct members *set)
{
    uint64_t any = 0;
    for (int i = 0; i < MEMBER_WORDS; i++)
        any |= set->word[i];
    return any == 0;
}

size_t members_count(const struct members *set)
{
    size_t n = 0;
    for (int i = 0; i < MEMBER_WORDS; i++)
        if (set->word[i]) /* most are none, and the count may be a call */
            n += (size_t)__builtin_popcountll(set->word[i]);
    return n;
}

size_t members_rank(const struct members *set, uint32_t node)
{
    size_t n = 0;
    PL_ASSERT(node < VIEW_MEMBERS_MAX);
    for (uint32_t i = 0; i < node / 64; i++)
        n += (size_t)__builtin_popcountll(set->word[i]);
    uint64_t below = (UINT64_C(1) << node % 64) - 1;
    return n + (size_t)__builtin_popcountll(set->word[node / 64] & below);
}

uint32_t members_next(const struct members *set, uint32_t from)
{
    for (uint32_t i = from / 64; i < MEMBER_WORDS; i++) {
        uint64_t word = set->word[i];
        if (i == from / 64)
            word &= UINT64_MAX << from % 64;
        if (word != 0)
            return i * 64 + (uint32_t)__builtin_ctzll(word);
    }
    return VIEW_MEMBERS_MAX;
}

struct members members_union(const struct members *a, const struct members *b)
{
    struct members out;
    for (int i = 0; i < MEMBER_WORDS; i++)
        out.word[i] = a->word[i] | b->word[i];
    return out;
}

struct members members_intersection(const struct members *a, const struct members *b)
{
    struct members out;
    for (int i = 0; i < MEMBER_WORDS; i++)
        out.word[i] = a->word[i] & b->word[i];
    return out;
}

struct members members_without(const struct members *a, const struct members *b)
{
    struct members out;
    for (int i = 0; i < MEMBER_WORDS; i++)
        out.word[i] = a->word[i] & ~b->word[i];
    return out;
}

bool members_within(const struct members *a, const struct members *b)
{
    const struct members outside = members_without(a, b);
    return members_empty(&outside);
}

void members_encode(const struct members *set, struct buf *out)
{
    uint8_t bytes[8 * MEMBER_WORDS];
    for (int i = 0; i < MEMBER_WORDS; i++)
        bytes_put_le64(bytes + 8 * i, set->word[i]);
    buf_put(out, bytes, sizeof bytes);
}

void members_decode(struct byte_reader *in, struct members *out)
{
    const uint8_t *bytes = byte_reader_take(in, 8 * MEMBER_WORDS);
    *out = (struct members){0};
    for (int i = 0; bytes && i < MEMBER_WORDS; i++)
        out->word[i] = bytes_le64(bytes + 8 * i);
}
