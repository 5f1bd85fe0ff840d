#include "train/sponsor.h"

#include "base/fault.h"

/* ADMISSION_NOT_HERE, or the words that the strategy adds. */
static size_t look_around(const struct strategy_ops *strategy, const struct member *m,
                          struct admission *a)
{
    *a = (struct admission){.lanes = (uint32_t)m->lanes.count};
    for (size_t i = 0; i < m->lanes.count; i++)
        a->completed[i] = m->lanes.at[i]->completed;
    size_t words = strategy->tell ? strategy->tell(m, a->word) : 0;
    a->words = words == ADMISSION_NOT_HERE ? 0 : (uint32_t)words;
    PL_ASSERT(a->words <= ADMISSION_WORDS);
    return words;
}

int sponsor_if_asked(const struct strategy_ops *strategy, struct publisher *publisher,
                     const struct member *m, const struct course *course, const struct joint *joint)
{
    struct admission admission;
    uint32_t ward = atomic_load(&m->group->joiner);
    if (ward == ROSTER_NOBODY || atomic_load(&publisher->busy) ||
        look_around(strategy, m, &admission) == ADMISSION_NOT_HERE)
        return OK;
    bool in = false;
    int rc = group_admit_joiner(m->group, ward, &in);
    if (rc != OK || !in)
        return rc;
    bool sent = publisher_admit(publisher, ward, course, &admission,
                                strategy_joins_bare(strategy, m->job) ? NULL : joint);
    return sent ? OK : ERR_NOMEM;
}
