#include "strategy/ps_clock.h"

void ps_clock_init(struct ps_clock *clock, const struct ps_clock_how *how,
                   const struct course *start, const struct members *who)
{
    *clock = (struct ps_clock){
        .how = *how,
        .start = *start,
        .course = *start,
        .first = how->job->workers, /* whoever has come back, or come to it, since */
        .base = (double)start->steps,
    };
    consistency_init(&clock->consistency, &how->consistency);
    consistency_join(&clock->consistency, who);
}

static uint64_t step_of_all(const struct ps_clock *clock)
{
    return members_count(&clock->consistency.in) * job_step_records(clock->how.job);
}

/* The rate's clock: pushes / K, K those who are in, so that it goes by the steps of each, and a
 * round of bsp is one. In epochs: the place that all have come to. */
static double value(const struct ps_clock *clock)
{
    if (clock->how.job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)clock->course.place / (double)clock->how.records;
    return clock->base + (double)clock->since / (double)step_of_all(clock);
}

static void advance(struct ps_clock *clock, uint64_t samples)
{
    uint64_t all = clock->first * job_step_records(clock->how.job);
    clock->since += samples;
    clock->course.place += samples;
    clock->course.steps = clock->start.steps + (clock->course.place - clock->start.place) / all;
}

static bool is_over(const struct ps_clock *clock)
{
    return strategy_done(clock->how.job, &clock->course, clock->how.records);
}

static struct members both(const struct members *a, const struct members *b)
{
    struct members out;
    for (int i = 0; i < MEMBER_WORDS; i++)
        out.word[i] = a->word[i] & b->word[i];
    return out;
}

static struct members without(const struct members *a, const struct members *b)
{
    struct members out;
    for (int i = 0; i < MEMBER_WORDS; i++)
        out.word[i] = a->word[i] & ~b->word[i];
    return out;
}

static bool none(const struct members *set)
{
    return members_count(set) == 0;
}

/* Another K from here on: what the rate has come to stays. */
static void change_number(struct ps_clock *clock)
{
    if (clock->since == 0)
        return;
    clock->base = clock->base + (double)clock->since / (double)step_of_all(clock);
    clock->since = 0;
}

void ps_clock_come(struct ps_clock *clock, uint32_t node)
{
    if (!members_has(&clock->consistency.in, node))
        members_add(&clock->coming, node);
}

static void count_in(struct ps_clock *clock, uint32_t node)
{
    struct members who = {{0}};
    members_add(&who, node);
    clock->coming = without(&clock->coming, &who);
    change_number(clock);
    consistency_join(&clock->consistency, &who);
}

void ps_clock_fetched(struct ps_clock *clock, uint32_t node)
{
    if (members_has(&clock->coming, node) && clock->how.consistency.kind == CONSISTENCY_BSP)
        count_in(clock, node);
}

void ps_clock_have(struct ps_clock *clock, uint32_t node, size_t shard, uint64_t samples, bool bad,
                   int64_t now)
{
    bool comes = members_has(&clock->coming, node);
    if (!(comes || consistency_expects(&clock->consistency, node)) ||
        members_has(&clock->ready, node) || shard >= clock->how.shards)
        return;
    struct ps_clock_worker *w = &clock->worker[node];
    members_add(&w->have, (uint32_t)shard);
    if (bad)
        members_add(&clock->bad, node);
    if (members_count(&w->have) < clock->how.shards)
        return;
    if (comes)
        count_in(clock, node);
    members_add(&clock->ready, node);
    w->arrived = now;
    w->samples = samples;
    clock->latest = node;
}

/* Is everybody's last push lost? Then so is the model. (At the end of the run, when some have left,
 * it may be one alone.) */
static bool is_diverged(const struct ps_clock *clock)
{
    const struct members sound = without(&clock->consistency.in, &clock->lost);
    return none(&sound) && !none(&clock->consistency.in);
}

bool ps_clock_decide(struct ps_clock *clock, int64_t now, struct ps_decision *out)
{
    const struct members who = clock->ready;
    const struct members missing = without(&clock->consistency.in, &who);
    if (none(&who) || (clock->how.consistency.kind == CONSISTENCY_BSP && !none(&missing)))
        return false;
    *out = (struct ps_decision){
        .applied = without(&who, &clock->bad),
        .dropped = both(&who, &clock->bad),
        .t = value(clock),
        .by = clock->latest,
    };
    uint64_t samples = 0;
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (members_has(&who, p)) {
            samples += clock->worker[p].samples;
            clock->worker[p].have = (struct members){{0}};
        }
    clock->lost = without(&clock->lost, &out->applied);
    for (int i = 0; i < MEMBER_WORDS; i++)
        clock->lost.word[i] |= out->dropped.word[i];
    clock->bad = without(&clock->bad, &who);
    clock->ready = (struct members){{0}};
    advance(clock, samples);
    consistency_push(&clock->consistency, &who, now, &out->ok);
    out->stop = is_over(clock);
    out->diverged = !out->stop && is_diverged(clock);
    return true;
}

void ps_clock_leave(struct ps_clock *clock, uint32_t node, bool died, struct ps_decision *out)
{
    struct members who = {{0}};
    *out = (struct ps_decision){.by = node};
    members_add(&who, node);
    clock->coming = without(&clock->coming, &who);
    if (!members_has(&clock->consistency.in, node))
        return;
    change_number(clock);
    clock->ready = without(&clock->ready, &who);
    clock->bad = without(&clock->bad, &who);
    clock->lost = without(&clock->lost, &who);
    /* Who dies may not have told the driver of its last push: the others make up for it. */
    if (died && clock->consistency.worker[node].t > 0)
        clock->course.place -= clock->worker[node].samples;
    consistency_leave(&clock->consistency, &who, &out->ok);
    out->stop = is_over(clock);
    out->diverged = !out->stop && is_diverged(clock);
}

void ps_clock_forget(struct ps_clock *clock, size_t shard)
{
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        clock->worker[p].have.word[shard / 64] &= ~(UINT64_C(1) << shard % 64);
    clock->ready = (struct members){{0}};
}

void ps_clock_go_on(struct ps_clock *clock, uint64_t place, const struct members *who)
{
    const struct ps_clock_how how = clock->how;
    const struct course start = clock->start;
    ps_clock_init(clock, &how, &start, who);
    advance(clock, place - start.place);
    clock->base += (double)clock->since / (double)(clock->first * job_step_records(how.job));
    clock->since = 0;
}

int64_t ps_clock_waited(const struct ps_clock *clock, uint32_t node, int64_t now)
{
    return now - clock->worker[node].arrived;
}
