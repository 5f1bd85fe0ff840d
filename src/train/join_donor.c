#include "train/join_donor.h"

#include "base/fault.h"

/* Fill in the join state: the last completed exchange of each lane, behind which the joiner begins,
 * and the strategy's own words. JOIN_STATE_NOT_HERE: this member cannot be a donor now. */
static size_t fill_join_state(const struct strategy_ops *strategy, const struct member *m,
                              struct join_state *a)
{
    *a = (struct join_state){.lanes = (uint32_t)m->lanes.count};
    for (size_t i = 0; i < m->lanes.count; i++)
        a->completed[i] = m->lanes.at[i]->completed;
    size_t words = strategy->export_join_state ? strategy->export_join_state(m, a->word) : 0;
    a->words = words == JOIN_STATE_NOT_HERE ? 0 : (uint32_t)words;
    PL_ASSERT(a->words <= JOIN_STATE_WORDS);
    return words;
}

int join_donor_admit(const struct strategy_ops *strategy, const struct strategy_traits *traits,
                     struct publisher *publisher, const struct member *m,
                     const struct progress *progress, const struct global_model *model)
{
    struct join_state admission;
    uint32_t joiner = atomic_load(&m->group->joiner);
    if (joiner == ROSTER_NO_NODE || atomic_load(&publisher->busy) ||
        fill_join_state(strategy, m, &admission) == JOIN_STATE_NOT_HERE)
        return OK;
    bool in = false;
    int rc = group_admit_joiner(m->group, joiner, &in);
    if (rc != OK || !in)
        return rc;
    bool sent = publisher_admit(publisher, joiner, progress, &admission,
                                traits->join_needs_no_model ? NULL : model);
    return sent ? OK : ERR_NOMEM;
}
