/* `sync`: synchronous model averaging (SparkNet §2.1, Algorithm 2; MPCA §3.1).
 *
 * A round: every worker takes τ local optimizer steps from the joint model x̃; the driver reduces
 * the arithmetic mean of the workers' models and broadcasts it,
 *
 *     x̃ ← 1/K Σ x_i ,
 *
 * and every worker replaces its weights by it. State that is not learnt (s) is averaged and
 * replaced with x; optimizer state stays where it is. The first x̃ needs no broadcast: initial
 * values are a function of the seed. The round that reaches the end of the run is shorter than τ.
 */
#include "strategy/strategy.h"

static int open_lane(struct lanes *lanes, struct group *group, const Paceline__Job *job,
                     const struct vec *x, const struct vec *s, uint64_t completed,
                     struct arena *arena, struct exchange **out)
{
    const struct exchange_how how = strategy_exchange_how(job);
    return lanes_open(lanes, group, true, x->n + s->n, &how, completed, arena, out);
}

/* What is exchanged is x, then s. */
static void put_model(struct exchange *lane, const struct vec *x, const struct vec *s)
{
    vec_export(x, vec_all(x), lane->input.at);
    vec_export(s, vec_all(s), lane->input.at + x->n);
}

static int take_model(const struct exchange *lane, struct vec *x, struct vec *s)
{
    const struct vec *mean = exchange_result(lane);
    if (exchange_tally(lane)->weight == 0)
        return ERR_DIVERGED; /* nobody had anything left to give */
    vec_import(x, vec_all(x), mean->at);
    vec_import(s, vec_all(s), mean->at + x->n);
    return OK;
}

static uint64_t sync_round(const Paceline__Job *job)
{
    return job->strategy->sync->tau;
}

/* τ local steps; a worker whose loss is no number any more has nothing to give to the mean. */
static int local_steps(struct member *m, uint64_t tau, struct tally *mine)
{
    uint32_t batch = m->job->batch;
    *mine = (struct tally){
        .weight = 1,
        .hash_min = UINT64_MAX,
    };
    for (uint64_t t = 0; t < tau; t++) {
        if (atomic_load(&m->group->over))
            return ERR_DRIVER; /* a round can be long, and nobody waits for it any more */
        uint64_t place = strategy_place(&m->course, m->world->self, t, batch);
        int rc = learner_step(m->learner, place, batch);
        if (rc == ERR_DIVERGED) {
            mine->weight = 0;
            return OK;
        }
        if (rc != OK)
            return rc;
        mine->samples += batch;
        mine->loss += m->learner->loss * batch;
    }
    return OK;
}

/* Whoever had nothing to give takes x̃ like all others, and begins afresh: what its optimizer
 * remembers is as broken as its model was. */
static void begin_afresh(struct learner *l, const struct course *course)
{
    optim_reset(&l->optim);
    l->steps = course->steps;
}

static int sync_worker(struct member *m)
{
    struct learner *l = m->learner;
    size_t records = l->corpus->set[SET_TRAIN].count;
    struct exchange *lane;
    int rc = open_lane(&m->lanes, m->group, m->job, &l->x, &l->s, m->course.exchanges, m->arena,
                       &lane);
    while (rc == OK && !strategy_done(m->job, &m->course, records)) {
        uint64_t tau = strategy_round(m->job, &m->course, records, sync_round(m->job));
        struct tally mine;
        rc = local_steps(m, tau, &mine);
        if (rc != OK)
            break;
        mine.stop_votes = atomic_load(&m->group->stop);
        put_model(lane, &l->x, &l->s);
        rc = exchange_run(lane, &mine);
        if (rc != OK)
            break;
        rc = take_model(lane, &l->x, &l->s);
        if (rc != OK)
            break;
        strategy_advance(&m->course, tau, m->job->batch, exchange_tally(lane));
        if (lane->mine.weight == 0)
            begin_afresh(l, &m->course);
        rc = m->committed(m, lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

/* The driver gives nothing to the mean and keeps it as x̃. */
static int sync_driver(struct leader *l)
{
    struct exchange *lane;
    int rc = open_lane(&l->lanes, l->group, l->job, &l->x, &l->s, l->course.exchanges, l->arena,
                       &lane);
    while (rc == OK && !strategy_done(l->job, &l->course, l->records)) {
        uint64_t tau = strategy_round(l->job, &l->course, l->records, sync_round(l->job));
        struct tally none = {.hash_min = UINT64_MAX};
        rc = exchange_run(lane, &none);
        if (rc != OK)
            break;
        rc = take_model(lane, &l->x, &l->s);
        if (rc != OK)
            break;
        strategy_advance(&l->course, tau, l->job->batch, exchange_tally(lane));
        rc = l->committed(l, lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static bool sync_leads(const Paceline__Job *job)
{
    (void)job;
    return true;
}

const struct strategy_ops strategy_sync = {
    .name = "sync",
    .round = sync_round,
    .worker = sync_worker,
    .leads = sync_leads,
    .driver = sync_driver,
};
