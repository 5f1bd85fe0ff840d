#include "strategy/strategy.h"

#include "base/fault.h"

#include <string.h>

static const struct strategy_ops *const strategies[] = {
    &strategy_single, &strategy_sync,     &strategy_allreduce, &strategy_async_allreduce,
    &strategy_diloco, &strategy_easgd,    &strategy_gossip,    &strategy_mpca,
    &strategy_ps,     &strategy_downpour,
};

int strategy_find(const Paceline__Job *job, const struct strategy_ops **out, struct err *err)
{
    const char *name = job_strategy_name(job);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            *out = strategies[i];
            return (*out)->check ? (*out)->check(job, err) : OK;
        }
    }
    return err_set(err, ERR_UNSUPPORTED, "strategy %s is not supported", name);
}

bool strategy_leads(const struct strategy_ops *strategy, const Paceline__Job *job)
{
    return strategy->leads && strategy->leads(job);
}

bool strategy_runs_free(const struct strategy_ops *strategy, const Paceline__Job *job)
{
    return strategy->runs_free && strategy->runs_free(job);
}

bool strategy_leases(const struct strategy_ops *strategy, const Paceline__Job *job)
{
    return strategy_runs_free(strategy, job) && !(strategy->in_rounds && strategy->in_rounds(job));
}

bool strategy_joinable(const struct strategy_ops *strategy, const Paceline__Job *job)
{
    return strategy->joinable && strategy->joinable(job);
}

bool strategy_joins_bare(const struct strategy_ops *strategy, const Paceline__Job *job)
{
    return strategy->joins_bare && strategy->joins_bare(job);
}

bool strategy_always(const Paceline__Job *job)
{
    (void)job;
    return true;
}

int lanes_open(struct lanes *lanes, struct group *group, bool driver_takes_part, size_t n,
               const struct exchange_config *how, uint64_t completed, struct arena *arena,
               struct exchange **out)
{
    PL_ASSERT(lanes->count < ROSTER_LANES_MAX);
    struct exchange *e = *out = arena_new(arena, struct exchange);
    if (!e)
        return ERR_NOMEM;
    int rc = exchange_init(e, group, (uint32_t)lanes->count, driver_takes_part, n, how, completed,
                           arena);
    lanes->at[lanes->count++] = e;
    if (rc == OK && lanes->blank)
        exchange_join_unsynced(e);
    if (rc != OK || !lanes->entered)
        return rc;
    if (e->lane >= lanes->entered->lanes)
        return ERR_PROTOCOL;
    exchange_join(e, lanes->entered->completed[e->lane]);
    return OK;
}

void lanes_release(struct lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++)
        exchange_release(lanes->at[i]);
    lanes->count = 0;
}

void course_encode(const struct course *course, struct buf *out)
{
    buf_put_u64(out, course->place);
    buf_put_u64(out, course->steps);
    buf_put_u64(out, course->exchanges);
    buf_put_u64(out, course->used);
    members_encode(&course->who, out);
}

void course_decode(struct byte_reader *in, struct course *out)
{
    out->place = read_u64(in);
    out->steps = read_u64(in);
    out->exchanges = read_u64(in);
    out->used = read_u64(in);
    members_decode(in, &out->who);
}

bool strategy_done(const Paceline__Job *job, const struct course *course, size_t records)
{
    const Paceline__Stop *stop = job->stop;
    return (stop->has_epochs && (double)course->place >= stop->epochs * (double)records) ||
           (stop->has_steps && course->steps >= stop->steps);
}

uint64_t strategy_round(const Paceline__Job *job, const struct course *course, size_t records,
                        uint64_t most)
{
    const Paceline__Stop *stop = job->stop;
    uint64_t steps = most;
    if (stop->has_epochs) {
        double left = stop->epochs * (double)records - (double)course->place;
        double step = (double)members_count(&course->who) * job_step_records(job);
        uint64_t needed = left > 0 ? (uint64_t)(left / step) : 0;
        if ((double)needed * step < left)
            needed++;
        steps = needed < steps ? needed : steps;
    }
    if (stop->has_steps && stop->steps - course->steps < steps)
        steps = stop->steps - course->steps;
    return steps > 0 ? steps : 1;
}

uint64_t strategy_place(const struct course *course, uint32_t node, uint64_t t, uint32_t batch)
{
    uint64_t shares = members_count(&course->who);
    return course->place + (t * shares + members_rank(&course->who, node)) * batch;
}

bool strategy_shares(const struct member *m, const struct course *course)
{
    return members_has(&course->who, m->world->self);
}

void strategy_give_nothing(const struct member *m, struct exchange_meta *mine)
{
    mine->weight = 0;
    members_add(&mine->non_contributing, m->world->self);
}

struct members strategy_sharers(const struct exchange_meta *tally)
{
    struct members stay = members_without(&tally->participants, &tally->leaving);
    return members_count(&stay) > 0 ? stay : tally->participants;
}

void strategy_advance(struct course *course, uint64_t steps, uint32_t batch,
                      const struct exchange_meta *tally)
{
    course->place += steps * batch * members_count(&course->who);
    course->steps += steps;
    course->exchanges++;
    course->who = strategy_sharers(tally);
}

int strategy_steps(struct member *m, const struct course *from, uint64_t first, uint64_t most,
                   int64_t until, struct exchange_meta *mine)
{
    uint32_t batch = job_step_records(m->job);
    if (!strategy_shares(m, from))
        strategy_give_nothing(m, mine);
    for (uint64_t k = 0; k < most && strategy_shares(m, from); k++) {
        if (atomic_load(&m->group->over))
            return ERR_DRIVER; /* a round can be long, and nobody waits for it any more */
        if (k > 0 && world_now(m->world) >= until)
            break;
        uint64_t place = strategy_place(from, m->world->self, first + k, batch);
        int rc = learner_step(m->learner, place, batch);
        if (rc == ERR_DIVERGED)
            mine->weight = 0;
        if (rc != OK)
            return rc == ERR_DIVERGED ? OK : rc;
        mine->samples += batch;
        mine->loss += m->learner->loss * batch;
        rc = k + 1 < most ? m->amid(m) : OK;
        if (rc != OK)
            return rc;
    }
    return OK;
}

int strategy_local_steps(struct member *m, uint64_t tau, struct exchange_meta *mine)
{
    *mine = (struct exchange_meta){.weight = 1, .hash_min = UINT64_MAX};
    int rc = strategy_steps(m, &m->course, 0, tau, WORLD_FOREVER, mine);
    mine->stop_votes = atomic_load(&m->group->stop);
    return rc;
}

uint64_t strategy_free_place(struct member *m)
{
    if (!m->leased)
        return strategy_place(&m->start, m->world->self, m->course.steps - m->start.steps,
                              job_step_records(m->job));
    if (m->hold.count == 0)
        m->used_up(m);
    learner_expect(m->learner, lease_cursor_next_offset(&m->hold));
    return lease_cursor_offset(&m->hold);
}

int strategy_free_stepped(struct member *m)
{
    if (m->leased)
        lease_cursor_step(&m->hold);
    m->course.steps++;
    m->course.place += job_step_records(m->job);
    m->course.used += job_step_records(m->job);
    return m->stepped(m);
}

int strategy_free_step(struct member *m)
{
    int rc = learner_step(m->learner, strategy_free_place(m), job_step_records(m->job));
    return rc == OK ? strategy_free_stepped(m) : rc;
}

/* The job's numbers are those of enum coll_algorithm and enum codec. */
_Static_assert((int)PACELINE__COLLECTIVE__ALGORITHM__scatter_gather == (int)COLL_SCATTER_GATHER &&
                   (int)PACELINE__COLLECTIVE__WIRE__int8 == (int)CODEC_INT8,
               "names in job.proto and their numbers here have parted");

struct exchange_config strategy_exchange_how(const Paceline__Job *job)
{
    const Paceline__Collective *c = job->collective;
    return (struct exchange_config){
        .algorithm = (enum coll_algorithm)c->algorithm,
        .pinned = job->deterministic,
        .chunk = (size_t)c->chunk_kb * 1024 / sizeof(float),
        .codec = (enum codec)c->wire,
        .stripes = c->has_stripes || c->algorithm == PACELINE__COLLECTIVE__ALGORITHM__auto
                       ? c->stripes
                       : 1,
    };
}
