#include "train/due.h"

#include "train/model.h"

/* Multiples of n from `before` on, up to `after`? */
static bool passed(uint64_t n, uint64_t before, uint64_t after)
{
    return n > 0 && after / n > before / n;
}

static uint64_t snapshot_steps(const Paceline__Job *job)
{
    return (uint64_t)job->solver->snapshot;
}

uint32_t due_uses(const Paceline__Job *job, uint64_t exchanges, const struct course *before,
                  const struct course *after)
{
    const Paceline__Evaluate *e = job->evaluate;
    bool evaluate = e->has_every_steps ? passed(e->every_steps, before->steps, after->steps)
                                       : passed(exchanges, before->exchanges, after->exchanges);
    bool snapshot = passed(snapshot_steps(job), before->steps, after->steps);
    return (evaluate ? MODEL_EVALUATE : 0u) | (snapshot ? MODEL_SNAPSHOT : 0u);
}

struct due_counts due_counts(const Paceline__Job *job, uint64_t exchanges, size_t records,
                             const struct course *all)
{
    const Paceline__Evaluate *e = job->evaluate;
    struct due_counts due = {.evaluations = all->place / records};
    if (e->has_every_steps)
        due.evaluations = all->steps / e->every_steps;
    else if (e->has_every_exchanges)
        due.evaluations = all->exchanges / exchanges;
    if (snapshot_steps(job) > 0)
        due.snapshots = all->steps / snapshot_steps(job);
    return due;
}
