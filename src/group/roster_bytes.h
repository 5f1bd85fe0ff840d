/* The roster in a few bytes, for a test that keeps millions of its states: one lane, and the time
 * does not change. */
#ifndef PL_GROUP_ROSTER_BYTES_H
#define PL_GROUP_ROSTER_BYTES_H

#include "group/roster.h"

enum { NODES = 4 };

/* The part that can change. */
struct roster_state {
    uint8_t number, in_view, known, in, waits, join_pending;
    uint8_t donor[NODES]; /* + 1 */
    uint8_t leaf, view_leaves, view_elders;
    uint8_t decided, reported, joined, were_leaves;
    uint8_t at[NODES];
    uint8_t second, reforming;      /* the driver has returned; it collects */
    uint8_t reconnected;            /* workers that have returned */
    uint8_t last, last_in, highest; /* the newest view that was */
    uint8_t seen, elders;           /* and that a returned worker has seen */
};

static enum member_state state_of(const struct roster_state *b, uint32_t i)
{
    if (b->in >> i & 1)
        return b->join_pending >> i & 1 ? MEMBER_JOINING : MEMBER_IN;
    return b->waits >> i & 1         ? MEMBER_WAITS
           : b->reconnected >> i & 1 ? MEMBER_RETURNED
                                     : MEMBER_OUT;
}

static void unpack_roster(struct roster *r, const struct roster_state *b)
{
    r->departed = (struct members){0}; /* the test has its own check of that */
    r->options.incarnation = 1u + b->second;
    r->options.recovers = b->second;
    r->recovery = (struct roster_recovery){
        .on = b->reforming,
        .until = 1,
        .view = b->last,
        .incarnation = b->last ? 1 : 0,
        .members.word[0] = b->last_in,
        .highest = b->highest,
        .seating = {.view = b->seen, .incarnation = b->seen ? 1 : 0, .elders.word[0] = b->elders},
    };
    r->view.number = b->number;
    r->view.count = 0;
    r->view.leaves.word[0] = b->view_leaves;
    r->view.elders.word[0] = b->view_elders;
    r->check = (struct roster_check){0};
    r->asked_until[0] = r->no_leaf_until = 0; /* a leaf that was asked may be one again */
    r->count = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        if (b->in_view >> i & 1)
            r->view.node[r->view.count++] = i;
        if (b->known >> i & 1)
            r->member[r->count++] = (struct roster_member){
                .node = i,
                .state = state_of(b, i),
                .donor = b->donor[i] ? b->donor[i] - 1u : ROSTER_NO_NODE,
                .leaf = b->leaf >> i & 1,
                .leaf_times = b->leaf >> i & 1, /* one round is enough */
            };
    }
    struct roster_lane *lane = &r->lane[0];
    lane->decided = b->decided;
    lane->in.word[0] = b->reported;
    lane->joined.word[0] = b->joined;
    lane->needs_sync.word[0] = lane->were_leaves.word[0] = b->were_leaves;
    for (size_t i = 0; i < NODES; i++)
        lane->at[i] = b->at[i];
}

static void pack_roster(const struct roster *r, struct roster_state *b)
{
    const struct roster_lane *lane = &r->lane[0];
    const struct roster_recovery *recovery = &r->recovery;
    *b = (struct roster_state){.number = (uint8_t)r->view.number, .second = r->options.recovers};
    if (b->second && b->number == 0) { /* not needed afterwards */
        b->reforming = recovery->on;
        b->last = (uint8_t)recovery->view;
        b->last_in = (uint8_t)recovery->members.word[0];
        b->highest = (uint8_t)recovery->highest;
        b->seen = (uint8_t)recovery->seating.view;
        b->elders = (uint8_t)recovery->seating.elders.word[0];
    }
    for (size_t i = 0; i < r->view.count; i++)
        b->in_view |= (uint8_t)(1u << r->view.node[i]);
    for (size_t i = 0; i < r->count; i++) {
        const struct roster_member *m = &r->member[i];
        b->known |= (uint8_t)(1u << m->node);
        uint8_t bit = (uint8_t)(1u << m->node);
        b->in |= roster_is_in(m) ? bit : 0;
        b->waits |= m->state == MEMBER_WAITS ? bit : 0;
        b->join_pending |= m->state == MEMBER_JOINING ? bit : 0;
        b->reconnected |= m->state == MEMBER_RETURNED ? bit : 0;
        b->leaf |= m->leaf ? bit : 0;
        b->donor[m->node] = m->donor == ROSTER_NO_NODE ? 0 : (uint8_t)(m->donor + 1);
    }
    b->view_leaves = (uint8_t)r->view.leaves.word[0];
    b->view_elders = (uint8_t)r->view.elders.word[0];
    b->decided = lane->decided;
    b->reported = (uint8_t)lane->in.word[0];
    b->joined = (uint8_t)lane->joined.word[0];
    b->were_leaves = (uint8_t)lane->were_leaves.word[0];
    for (size_t i = 0; i < NODES; i++)
        b->at[i] = (uint8_t)lane->at[i];
}

#endif
