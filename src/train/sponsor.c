#include "train/sponsor.h"

#include "base/fault.h"

/* ADMISSION_NOT_HERE, or the words that the strategy adds. */
static size_t look_around(const struct sponsor *s, const struct member *m, struct admission *a)
{
    *a = (struct admission){.lanes = (uint32_t)m->lanes.count};
    for (size_t i = 0; i < m->lanes.count; i++)
        a->completed[i] = m->lanes.at[i]->completed;
    size_t words = s->strategy->tell ? s->strategy->tell(m, a->word) : 0;
    a->words = words == ADMISSION_NOT_HERE ? 0 : (uint32_t)words;
    PL_ASSERT(a->words <= ADMISSION_WORDS);
    return words;
}

static int make_ready(struct sponsor *s, const struct member *m)
{
    size_t floats = strategy_joins_bare(s->strategy, m->job) ? 0 : s->floats;
    if (s->ready)
        return OK;
    int rc =
        publisher_init(&s->publisher, m->world, WORLD_ANY, floats, s->strategy->extras, m->arena);
    s->ready = rc == OK;
    return rc;
}

int sponsor_if_asked(struct sponsor *s, const struct member *m, const struct course *course,
                     const struct joint *joint)
{
    struct admission admission;
    uint32_t ward = atomic_load(&m->group->ward);
    if (ward == ROSTER_NOBODY || (s->ready && atomic_load(&s->publisher.busy)) ||
        look_around(s, m, &admission) == ADMISSION_NOT_HERE)
        return OK;
    int rc = make_ready(s, m);
    bool in = false;
    if (rc == OK)
        rc = group_sponsor(m->group, ward, &in);
    if (rc != OK || !in)
        return rc;
    bool sent = publisher_admit(&s->publisher, ward, course, &admission,
                                strategy_joins_bare(s->strategy, m->job) ? NULL : joint);
    return sent ? OK : ERR_NOMEM;
}

void sponsor_release(struct sponsor *s)
{
    if (s->ready)
        publisher_release(&s->publisher);
}
