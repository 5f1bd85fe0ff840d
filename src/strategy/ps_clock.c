#include "strategy/ps_clock.h"

#include "base/fault.h"

void ps_clock_init(struct ps_clock *clock, const struct ps_clock_config *config,
                   const struct progress *start, const struct members *members)
{
    *clock = (struct ps_clock){
        .config = *config,
        .start = *start,
        .progress = *start,
        .first = config->job->workers, /* whose steps one step of the run counts */
        .base = (double)start->steps,
    };
    consistency_init(&clock->consistency, &config->consistency);
    consistency_join(&clock->consistency, members);
}

/* Steps of `workers` in the samples up to the present offset, since so many before. Where the only
 * workers are joiners that have not pushed, `workers` is 0 and there are no samples. */
static double steps_of(const struct ps_clock *clock, uint64_t samples, uint64_t workers)
{
    const Paceline__Job *job = clock->config.job;
    uint64_t to = clock->progress.sample_offset;
    PL_ASSERT(workers > 0 || samples == 0);
    if (samples == 0)
        return 0;
    if (!job->batch_growth)
        return (double)samples / (double)(workers * job_step_records(job));
    return strategy_grown_steps(job, to, clock->config.records) -
           strategy_grown_steps(job, to - samples, clock->config.records);
}

/* The rate's clock: pushes / K, with K members, so that it counts the steps of each worker, and a
 * round of bsp is one. In epochs: the sample offset of all. */
double ps_clock_value(const struct ps_clock *clock)
{
    if (clock->config.job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)clock->progress.sample_offset / (double)clock->config.records;
    return clock->base + steps_of(clock, clock->since, members_count(&clock->consistency.in));
}

static void advance_clock(struct ps_clock *clock, uint64_t samples)
{
    uint64_t all = clock->first * job_step_records(clock->config.job);
    clock->since += samples;
    clock->progress.sample_offset += samples;
    uint64_t done = clock->progress.sample_offset - clock->start.sample_offset;
    bool grows = clock->config.job->batch_growth != NULL;
    clock->progress.steps =
        clock->start.steps + (grows ? (uint64_t)steps_of(clock, done, clock->first) : done / all);
}

static bool is_over(const struct ps_clock *clock)
{
    return !clock->config.endless &&
           strategy_done(clock->config.job, &clock->progress, clock->config.records);
}

bool ps_clock_ends_with(struct ps_clock *clock, uint64_t samples)
{
    const struct progress now = clock->progress;
    uint64_t since = clock->since;
    advance_clock(clock, members_count(&clock->consistency.in) * samples);
    bool ends = strategy_done(clock->config.job, &clock->progress, clock->config.records);
    clock->progress = now;
    clock->since = since;
    return ends;
}

/* K changes: keep the rate's present clock value. */
static void change_number(struct ps_clock *clock)
{
    if (clock->since == 0)
        return;
    clock->base += steps_of(clock, clock->since, members_count(&clock->consistency.in));
    clock->since = 0;
}

void ps_clock_join(struct ps_clock *clock, uint32_t node)
{
    if (!members_has(&clock->consistency.in, node))
        members_add(&clock->coming, node);
}

static void count_in(struct ps_clock *clock, uint32_t node)
{
    const struct members members = members_only(node);
    members_remove(&clock->coming, node);
    change_number(clock);
    consistency_join(&clock->consistency, &members);
}

void ps_clock_fetched(struct ps_clock *clock, uint32_t node)
{
    if (members_has(&clock->coming, node) && clock->config.consistency.kind == CONSISTENCY_BSP)
        count_in(clock, node);
}

void ps_clock_have(struct ps_clock *clock, uint32_t node, size_t shard, uint64_t samples,
                   enum push_state state, int64_t now)
{
    bool joins = members_has(&clock->coming, node);
    if (!(joins || consistency_expects(&clock->consistency, node)) ||
        members_has(&clock->ready, node) || shard >= clock->config.shards)
        return;
    struct ps_clock_worker *w = &clock->worker[node];
    members_add(&w->have, (uint32_t)shard);
    if (state != PUSH_SOUND)
        members_add(&clock->bad, node);
    if (state == PUSH_INFINITE)
        members_add(&clock->infinite, node);
    if (members_count(&w->have) < clock->config.shards)
        return;
    if (joins)
        count_in(clock, node);
    members_add(&clock->ready, node);
    w->arrived = now;
    w->samples = samples;
    clock->latest = node;
}

/* Was the last push of every worker not finite? Then the model is lost. (At the end of the run,
 * when some have left, this may be a single worker.) */
static bool is_diverged(const struct ps_clock *clock)
{
    const struct members sound = members_without(&clock->consistency.in, &clock->lost);
    return members_empty(&sound) && !members_empty(&clock->consistency.in);
}

bool ps_clock_decide(struct ps_clock *clock, int64_t now, struct ps_decision *out)
{
    const struct members members = clock->ready;
    const struct members missing = members_without(&clock->consistency.in, &members);
    if (members_empty(&members) ||
        (clock->config.consistency.kind == CONSISTENCY_BSP && !members_empty(&missing)))
        return false;
    *out = (struct ps_decision){
        .applied = members_without(&members, &clock->bad),
        .dropped = members_intersection(&members, &clock->bad),
        .t = ps_clock_value(clock),
        .by = clock->latest,
    };
    uint64_t samples = 0;
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (members_has(&members, p)) {
            samples += clock->worker[p].samples;
            clock->worker[p].have = (struct members){{0}};
        }
    const struct members infinite = members_intersection(&members, &clock->infinite);
    clock->lost = members_without(&clock->lost, &members);
    clock->lost = members_union(&clock->lost, &infinite);
    clock->bad = members_without(&clock->bad, &members);
    clock->infinite = members_without(&clock->infinite, &members);
    clock->ready = (struct members){{0}};
    advance_clock(clock, samples);
    consistency_push(&clock->consistency, &members, now, &out->ok);
    out->stop = is_over(clock);
    out->diverged = !out->stop && is_diverged(clock);
    return true;
}

void ps_clock_leave(struct ps_clock *clock, uint32_t node, bool died, struct ps_decision *out)
{
    const struct members members = members_only(node);
    *out = (struct ps_decision){.by = node};
    members_remove(&clock->coming, node);
    if (!members_has(&clock->consistency.in, node))
        return;
    change_number(clock);
    members_remove(&clock->ready, node);
    members_remove(&clock->bad, node);
    members_remove(&clock->infinite, node);
    members_remove(&clock->lost, node);
    /* A worker that died may not have reported its last push to the driver: the others take the
     * missing steps. */
    if (died && clock->consistency.worker[node].t > 0)
        clock->progress.sample_offset -= clock->worker[node].samples;
    consistency_leave(&clock->consistency, &members, &out->ok);
    out->stop = is_over(clock);
    out->diverged = !out->stop && is_diverged(clock);
}

void ps_clock_resume(struct ps_clock *clock, uint64_t offset, const struct members *members)
{
    const struct ps_clock_config config = clock->config;
    struct progress start = clock->start;
    if (offset < start.sample_offset) { /* a joiner's clock: the run's steps back to there */
        uint64_t all = clock->first * job_step_records(config.job);
        uint64_t steps = (start.sample_offset - offset + all - 1) / all;
        if (config.job->batch_growth)
            steps =
                (uint64_t)(strategy_grown_steps(config.job, start.sample_offset, config.records) -
                           strategy_grown_steps(config.job, offset, config.records));
        start.steps -= steps < start.steps ? steps : start.steps;
        start.sample_offset = offset;
    }
    ps_clock_init(clock, &config, &start, members);
    advance_clock(clock, offset - start.sample_offset);
    clock->base += steps_of(clock, clock->since, clock->first);
    clock->since = 0;
}

void ps_clock_set(struct ps_clock *clock, double value)
{
    clock->base = value;
    clock->since = 0;
}

int64_t ps_clock_waited(const struct ps_clock *clock, uint32_t node, int64_t now)
{
    return now - clock->worker[node].arrived;
}
