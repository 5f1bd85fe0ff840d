/* Sets of workers, by node number. Views, exchanges, the parameter server, the key-value store and
 * shared variables all use them; a set of shards is one, too. Pure functions on values; a set that
 * is all zero is empty. */
#ifndef PL_GROUP_MEMBERS_H
#define PL_GROUP_MEMBERS_H

#include "base/bytes.h"
#include "wire/wire_limits.h"

struct members {
    uint64_t word[MEMBER_WORDS];
};

/* Node numbers of changed sets are below VIEW_MEMBERS_MAX. */
void members_add(struct members *set, uint32_t node);
void members_remove(struct members *set, uint32_t node);
void members_put(struct members *set, uint32_t node, bool in);

/* The set { node }. */
struct members members_only(uint32_t node);

/* false for any number from VIEW_MEMBERS_MAX on. */
static inline bool members_has(const struct members *set, uint32_t node)
{
    return node / 64 < MEMBER_WORDS && (set->word[node / 64] >> node % 64 & 1);
}

bool members_empty(const struct members *set);
size_t members_count(const struct members *set);

/* How many members have a smaller number: the rank of a member. */
size_t members_rank(const struct members *set, uint32_t node);

/* The smallest member that is not below `from`; VIEW_MEMBERS_MAX: there is none. */
uint32_t members_next(const struct members *set, uint32_t from);

/* A loop over the members in ascending order. The body may change the set. */
#define MEMBERS_EACH(node, set)                                         \
    for (uint32_t node = members_next(set, 0); node < VIEW_MEMBERS_MAX; \
         node = members_next(set, node + 1))

/* a ∪ b, a ∩ b, a without b */
struct members members_union(const struct members *a, const struct members *b);
struct members members_intersection(const struct members *a, const struct members *b);
struct members members_without(const struct members *a, const struct members *b);

/* a ⊆ b */
bool members_within(const struct members *a, const struct members *b);

/* A fixed number of bytes: 8 MEMBER_WORDS. */
void members_encode(const struct members *set, struct buf *out);
void members_decode(struct byte_reader *in, struct members *out);

#endif
