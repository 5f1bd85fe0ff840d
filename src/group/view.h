/* A view: a numbered membership of the group (D5). Immutable once made; members learn of a new one
 * by message and keep every view of the run, so that a task may hold on to one without counting. */
#ifndef PL_GROUP_VIEW_H
#define PL_GROUP_VIEW_H

#include "base/bytes.h"
#include "base/err.h"

enum { VIEW_MEMBERS_MAX = 1024, NODE_ADDRESS_MAX = 64 };

struct view {
    uint32_t number;      /* from 1 */
    uint32_t incarnation; /* of the driver that made it */
    size_t count;
    uint32_t node[VIEW_MEMBERS_MAX]; /* workers, ascending, < VIEW_MEMBERS_MAX; rank is the index */
    char address[VIEW_MEMBERS_MAX][NODE_ADDRESS_MAX];
};

/* Rank of a node, or -1 when it is no member. */
int view_rank(const struct view *view, uint32_t node);

void view_encode(const struct view *view, struct buf *out);
/* ERR_PROTOCOL */
int view_decode(struct byte_reader *in, struct view *out);

/* A set of workers by number, as exchanges carry it: who contributed. */
enum { MEMBER_WORDS = VIEW_MEMBERS_MAX / 64 };

struct members {
    uint64_t word[MEMBER_WORDS];
};

static inline void members_add(struct members *set, uint32_t node)
{
    set->word[node / 64 % MEMBER_WORDS] |= UINT64_C(1) << node % 64;
}

static inline bool members_has(const struct members *set, uint32_t node)
{
    return node / 64 < MEMBER_WORDS && (set->word[node / 64] >> node % 64 & 1);
}

void members_encode(const struct members *set, struct buf *out);
void members_decode(struct byte_reader *in, struct members *out);

/* a ∪ b, a without b */
struct members members_union(const struct members *a, const struct members *b);
struct members members_without(const struct members *a, const struct members *b);

size_t members_count(const struct members *set);

/* How many of the set have a smaller number: a member's rank among them. */
size_t members_rank(const struct members *set, uint32_t node);

#endif
