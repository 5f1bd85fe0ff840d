#include "train/triggers.h"

#include "train/model.h"

/* Multiples of n from `before` on, up to `after`? */
static bool has_passed(uint64_t n, uint64_t before, uint64_t after)
{
    return n > 0 && after / n > before / n;
}

static uint64_t snapshot_steps(const Paceline__Job *job)
{
    return (uint64_t)job->solver->snapshot;
}

static bool evaluation_due(const Paceline__Job *job, uint64_t exchanges, size_t records,
                           const struct progress *before, const struct progress *after)
{
    const Paceline__Evaluate *e = job->evaluate;
    if (e->has_every_steps)
        return has_passed(e->every_steps, before->steps, after->steps);
    if (job->batch_growth && !e->has_every_exchanges)
        return has_passed(records, before->sample_offset, after->sample_offset);
    return has_passed(exchanges, before->exchanges, after->exchanges);
}

uint32_t trigger_uses(const Paceline__Job *job, uint64_t exchanges, size_t records,
                      const struct progress *before, const struct progress *after)
{
    bool evaluate = evaluation_due(job, exchanges, records, before, after);
    bool snapshot = has_passed(snapshot_steps(job), before->steps, after->steps);
    return (evaluate ? MODEL_EVALUATE : 0u) | (snapshot ? MODEL_SNAPSHOT : 0u);
}

uint32_t trigger_awaits_exchange(const struct exchange *e, bool keeps_streams, uint32_t uses)
{
    bool flush = exchange_may_flush(e) && !exchange_has_flushed(e);
    bool vote = keeps_streams && exchange_result_meta(e)->checkpoint_votes == 0;
    return !(uses & MODEL_URGENT) && (flush || vote) ? MODEL_CHECKPOINT : 0;
}

uint32_t trigger_awaits_owed(bool owes, uint32_t uses)
{
    return owes && !(uses & MODEL_URGENT) ? MODEL_CHECKPOINT : 0;
}

struct trigger_counts trigger_counts_of(const Paceline__Job *job, uint64_t exchanges,
                                        size_t records, const struct progress *all)
{
    const Paceline__Evaluate *e = job->evaluate;
    struct trigger_counts triggers = {.evaluations = all->sample_offset / records};
    if (e->has_every_steps)
        triggers.evaluations = all->steps / e->every_steps;
    else if (e->has_every_exchanges)
        triggers.evaluations = all->exchanges / exchanges;
    if (snapshot_steps(job) > 0)
        triggers.snapshots = all->steps / snapshot_steps(job);
    return triggers;
}
