/* `survey`: measures the machines of a run, and ends it. All workers take steps at the same time,
 * each at its own pace, and exchange nothing but what they have measured:
 *
 *     FIRST steps     which also warm caches and choose kernels; the slowest worker's tell how many
 *                     steps take settings.seconds
 *     those steps     the median of a worker's own is its step
 *     all pairs       messages between them measure the links (coll/probe.h), the driver's, too
 *
 * The numbers travel as a sum: each worker adds its own to its place of a vector of zeros. The
 * driver takes part and gives them to train, machine by machine. */
#include "strategy/strategy.h"

#include "base/minmax.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST = 3, ROUNDS = 2 };

#define PROBE_S 0.1 /* of a message one way, at most: more than a token bucket holds */

struct survey {
    const Paceline__Job *job;
    size_t records;
    struct exchange *lane; /* a step's seconds for each node, by its number */
    double *seconds;       /* of this worker's steps in the round under way */
};

static const Paceline__Survey *settings_of(const Paceline__Job *job)
{
    return job->strategy->survey;
}

static bool is_last(const struct progress *progress)
{
    return progress->exchanges + 1 >= ROUNDS;
}

static int survey_open(struct survey *s, struct lanes *lanes, struct group *group,
                       uint64_t completed, struct arena *arena)
{
    const struct exchange_config config = {
        .algorithm = COLL_TREE,
        .chunk = VIEW_MEMBERS_MAX,
        .plain = true,
    };
    return lanes_open(lanes, group, true, VIEW_MEMBERS_MAX, &config, completed, arena, &s->lane);
}

/* Steps of the round that follows `progress`, which is the same on all nodes. The last one measures
 * the links. */
static uint64_t begin_round(const struct survey *s, const struct progress *progress)
{
    const Paceline__Survey *set = settings_of(s->job);
    double step_s = s->lane->completed > 0 ? exchange_result_meta(s->lane)->step_s : 0;
    double wanted = step_s > 0 ? ceil(set->seconds / step_s) : FIRST;
    double most = set->steps > FIRST ? set->steps : FIRST;
    uint64_t steps = (uint64_t)min_double(most, wanted > FIRST ? wanted : FIRST);
    s->lane->config.probe_s = is_last(progress) ? PROBE_S : 0;
    return strategy_round(s->job, progress, s->records, steps);
}

/* The round has been exchanged. ERR_DIVERGED: no worker could take all of its steps. */
static int survey_advance(const struct survey *s, struct progress *progress, uint64_t steps)
{
    const struct exchange_meta *meta = exchange_result_meta(s->lane);
    if (meta->weight == 0)
        return ERR_DIVERGED;
    strategy_advance(progress, steps, strategy_step_samples(s->job, progress, s->records), meta);
    return OK;
}

/* ---- a worker ---- */

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *seconds, size_t count)
{
    qsort(seconds, count, sizeof *seconds, compare_seconds);
    return (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
}

/* One step, timed. A loss that is not finite ends this worker's part. */
static int time_step(struct survey *s, struct member *m, uint64_t t, uint64_t steps,
                     struct exchange_meta *mine)
{
    if (atomic_load(&m->group->end.over))
        return ERR_DRIVER;
    int64_t begun = world_now(m->world);
    struct stretch share = strategy_begin_step(m, &m->progress, t, steps);
    int rc = learner_step(m->learner, share.start, share.count);
    s->seconds[t] = world_seconds(world_now(m->world) - begun);
    if (rc == ERR_DIVERGED)
        mine->weight = 0;
    if (rc != OK)
        return rc == ERR_DIVERGED ? OK : rc;
    mine->samples += share.count;
    mine->loss += m->learner->loss * (double)share.count;
    return t + 1 < steps ? m->on_step_boundary(m) : OK;
}

/* The steps of a round, and this worker's number. */
static int time_steps(struct survey *s, struct member *m, uint64_t steps,
                      struct exchange_meta *mine)
{
    struct vec *own = &s->lane->input;
    int rc = OK;
    *mine = (struct exchange_meta){.weight = 1, .hash_min = UINT64_MAX};
    if (!strategy_shares(m, &m->progress)) /* it leaves */
        strategy_contribute_nothing(m, mine);
    for (uint64_t t = 0; rc == OK && t < steps && mine->weight > 0; t++)
        rc = time_step(s, m, t, steps, mine);
    mine->stop_votes = is_last(&m->progress) || atomic_load(&m->group->stop);
    if (rc != OK || mine->weight == 0)
        return rc;
    mine->step_s = median_of(s->seconds, (size_t)steps);
    vec_fill(own, vec_all(own), 0);
    own->at[m->world->self] = (float)mine->step_s;
    return OK;
}

static int survey_worker(struct member *m)
{
    struct survey *s = arena_new(m->arena, struct survey);
    size_t records = m->learner->epoch_records, most = settings_of(m->job)->steps;
    int rc = s ? OK : ERR_NOMEM;
    if (rc == OK) {
        *s = (struct survey){.job = m->job, .records = records};
        s->seconds = arena_array(m->arena, most > FIRST ? most : FIRST, double);
        rc = s->seconds ? survey_open(s, &m->lanes, m->group, m->progress.exchanges, m->arena)
                        : ERR_NOMEM;
    }
    while (rc == OK && !strategy_done(m->job, &m->progress, records)) {
        uint64_t steps = begin_round(s, &m->progress);
        struct exchange_meta mine;
        rc = time_steps(s, m, steps, &mine);
        if (rc == OK)
            rc = exchange_run(s->lane, &mine);
        if (rc == OK)
            rc = survey_advance(s, &m->progress, steps);
        if (rc == OK)
            rc = m->on_commit(m, s->lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

/* ---- the driver ---- */

/* Ranks are the driver, then the participants in ascending order. */
static void report_machines(struct driver_part *l, const struct survey *s)
{
    const struct probe *probe = &s->lane->automatic.probe;
    const struct members *participants = &exchange_result_meta(s->lane)->participants;
    struct machine machine = {
        .node = WORLD_DRIVER, .link_rate = probe->rate[0], .latency_s = probe->latency};
    size_t rank = 1;
    l->on_machine(l, &machine);
    MEMBERS_EACH (node, participants) {
        machine.node = node;
        machine.step_s = (double)exchange_result(s->lane)->at[node];
        machine.link_rate = probe->rate[rank++];
        l->on_machine(l, &machine);
    }
}

static int survey_driver(struct driver_part *l)
{
    struct survey s = {.job = l->job, .records = l->records};
    if (l->lanes.needs_sync)
        return ERR_UNSUPPORTED; /* a survey takes seconds: it is begun again */
    int rc = survey_open(&s, &l->lanes, l->group, l->progress.exchanges, l->arena);
    while (rc == OK && !strategy_done(l->job, &l->progress, l->records)) {
        uint64_t steps = begin_round(&s, &l->progress);
        rc = exchange_run(s.lane, &(struct exchange_meta){.hash_min = UINT64_MAX});
        if (rc == OK)
            rc = survey_advance(&s, &l->progress, steps);
        if (rc == OK && s.lane->config.probe_s > 0)
            report_machines(l, &s);
        if (rc == OK)
            rc = l->on_commit(l, s.lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static int survey_configure(const Paceline__Job *job, struct strategy_traits *traits,
                            struct err *err)
{
    (void)job, (void)err;
    traits->driver_part = true;
    traits->round = FIRST;
    return OK;
}

const struct strategy_ops strategy_survey = {
    .name = "survey",
    .configure = survey_configure,
    .worker = survey_worker,
    .driver = survey_driver,
};
