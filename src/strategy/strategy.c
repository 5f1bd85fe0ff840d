#include "strategy/strategy.h"

#include "base/fault.h"
#include "plan/batch_growth.h"

#include <math.h>
#include <string.h>

static const struct strategy_ops *const strategies[] = {
    &strategy_single,     &strategy_sync,  &strategy_allreduce, &strategy_async_allreduce,
    &strategy_diloco,     &strategy_easgd, &strategy_gossip,    &strategy_mpca,
    &strategy_pace,       &strategy_ps,    &strategy_downpour,  &strategy_survey,
    &strategy_full_batch,
};

/* Workers that step at their own pace take steps of one size, unless leases give them their
 * samples. */
static int check_batch(const Paceline__Job *job, const struct strategy_traits *traits,
                       struct err *err)
{
    const char *name = job_strategy_name(job);
    bool scales = job->solver->has_lr_batch;
    if (scales && (traits->is_async || !job_shares_batch(job)))
        return err_set(err, ERR_UNSUPPORTED,
                       "solver.lr_batch: needs global_batch or batch_growth, and a strategy that "
                       "exchanges in rounds, such as allreduce; here it is %s",
                       name);
    if (job->follow_batch && !traits->joinable)
        return err_set(
            err, ERR_UNSUPPORTED,
            "follow_batch: with these fields strategy %s admits no worker to a run under "
            "way",
            name);
    if (!traits->is_async || !job_shares_batch(job))
        return OK;
    if (job->follow_batch && !job->follow_batch->has_samples_per_s)
        return err_set(err, ERR_UNSUPPORTED,
                       "follow_batch.samples_per_s: is missing; workers of strategy %s step at "
                       "their own pace, and no step of all is measured",
                       name);
    if (job->batch_growth && !traits->takes_leases)
        return err_set(err, ERR_UNSUPPORTED,
                       "batch_growth: with these fields workers of strategy %s have fixed parts of "
                       "each batch; write --strategy allreduce, or another consistency than bsp",
                       name);
    if (job->batch_growth)
        return OK;
    if (job->workers == job_workers_max(job) && job->global_batch % job->workers == 0)
        return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "global_batch: strategy %s needs a multiple of a fixed number of workers, is %u "
                   "for %u to %u workers; write `batch`, the records of each",
                   name, job->global_batch, job->workers, job_workers_max(job));
}

/* A run in which no worker can join would never end its pause. */
static int check_pause(const Paceline__Job *job, const struct strategy_traits *traits,
                       struct err *err)
{
    if (!job->has_pause_below || traits->joinable)
        return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "pause_below: strategy %s admits no workers during a run, so a pause would not "
                   "end; leave it out",
                   job_strategy_name(job));
}

int strategy_find(const Paceline__Job *job, const struct strategy_ops **out,
                  struct strategy_traits *traits, struct err *err)
{
    const char *name = job_strategy_name(job);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategies[i]->name, name) != 0)
            continue;
        *out = strategies[i];
        *traits = (struct strategy_traits){0};
        int rc = (*out)->configure(job, traits, err);
        PL_ASSERT(rc != OK || (traits->round > 0 && (traits->is_async || !traits->takes_leases)));
        PL_ASSERT(rc != OK || !traits->driver_part || (*out)->driver);
        traits->workers_hold_model =
            !traits->driver_part || (job_is_alone(job) && !traits->is_async);
        rc = rc == OK ? check_batch(job, traits, err) : rc;
        return rc == OK ? check_pause(job, traits, err) : rc;
    }
    if (job_is_auto(job))
        return err_set(err, ERR_USAGE,
                       "strategy.auto: no strategy has been chosen, since the workers cannot be "
                       "measured before the run: paceline plan --listen ADDR --emit FILE measures "
                       "them, and strategy { auto { cluster: \"FILE\" } } chooses by that file");
    return err_set(err, ERR_UNSUPPORTED, "strategy %s is not supported", name);
}

int lanes_open(struct lanes *lanes, struct group *group, bool driver_takes_part, size_t n,
               const struct exchange_config *config, uint64_t completed, struct arena *arena,
               struct exchange **out)
{
    PL_ASSERT(lanes->count < ROSTER_LANES_MAX);
    struct exchange *e = *out = arena_new(arena, struct exchange);
    if (!e)
        return ERR_NOMEM;
    int rc = exchange_init(e, group, (uint32_t)lanes->count, driver_takes_part, n, config,
                           completed, arena);
    e->config.on_view = lanes->on_view;
    e->config.on_view_user = lanes->user;
    lanes->at[lanes->count++] = e;
    if (rc == OK && lanes->needs_sync)
        exchange_join_unsynced(e);
    if (rc != OK || !lanes->joined)
        return rc;
    if (e->lane >= lanes->joined->lanes)
        return ERR_PROTOCOL;
    exchange_join(e, lanes->joined->completed[e->lane]);
    return OK;
}

bool driver_part_saves(const struct driver_part *l)
{
    return l->job->has_pause_below && group_view(l->group)->count < l->job->pause_below &&
           l->checkpoint_due(l);
}

void lanes_release(struct lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++)
        exchange_release(lanes->at[i]);
    lanes->count = 0;
}

void progress_encode(const struct progress *progress, struct buf *out)
{
    buf_put_u64(out, progress->sample_offset);
    buf_put_u64(out, progress->steps);
    buf_put_u64(out, progress->exchanges);
    buf_put_u64(out, progress->samples_used);
    members_encode(&progress->sharers, out);
}

void progress_decode(struct byte_reader *in, struct progress *out)
{
    out->sample_offset = read_u64(in);
    out->steps = read_u64(in);
    out->exchanges = read_u64(in);
    out->samples_used = read_u64(in);
    members_decode(in, &out->sharers);
}

void model_scores_encode(const struct model_scores *scores, struct buf *out)
{
    buf_put_u8(out, scores->here);
    buf_put_u64(out, scores->exchanges);
    for (int i = 0; i < SCORES_SETS; i++) {
        buf_put_f64(out, scores->sum[i].loss);
        buf_put_f64(out, scores->sum[i].right);
        buf_put_u8(out, scores->sum[i].has_right);
        buf_put_u64(out, scores->sum[i].count);
    }
    buf_put_u32(out, (uint32_t)scores->text.len);
    buf_put(out, scores->text.at, scores->text.room);
}

void model_scores_decode(struct byte_reader *in, struct model_scores *out)
{
    out->here = read_u8(in) != 0;
    out->exchanges = read_u64(in);
    for (int i = 0; i < SCORES_SETS; i++) {
        out->sum[i].loss = read_f64(in);
        out->sum[i].right = read_f64(in);
        out->sum[i].has_right = read_u8(in) != 0;
        out->sum[i].count = read_u64(in);
    }
    struct drawn_text *text = &out->text;
    size_t len = read_u32(in);
    const void *bytes = byte_reader_take(in, text->room);
    in->failed |= len > text->room;
    text->len = in->failed ? 0 : len;
    if (text->len > 0)
        memcpy(text->at, bytes, text->room);
}

bool strategy_done(const Paceline__Job *job, const struct progress *progress, size_t records)
{
    const Paceline__Stop *stop = job->stop;
    return (stop->has_epochs &&
            (double)progress->sample_offset >= stop->epochs * (double)records) ||
           (stop->has_steps && progress->steps >= stop->steps);
}

uint64_t strategy_round(const Paceline__Job *job, const struct progress *progress, size_t records,
                        uint64_t most)
{
    const Paceline__Stop *stop = job->stop;
    uint64_t steps = most;
    if (stop->has_epochs) {
        double left = stop->epochs * (double)records - (double)progress->sample_offset;
        double step = (double)strategy_step_samples(job, progress, records);
        uint64_t needed = left > 0 ? (uint64_t)(left / step) : 0;
        if ((double)needed * step < left)
            needed++;
        steps = needed < steps ? needed : steps;
    }
    if (stop->has_steps && stop->steps - progress->steps < steps)
        steps = stop->steps - progress->steps;
    return steps > 0 ? steps : 1;
}

/* Eq. 6.7 in whole samples, the nearest number. Members must agree, and two mathematical libraries
 * may differ in the last bit of a power, so the limit between two numbers lies a little below the
 * half, which m/M and P of few digits do hit. */
static uint64_t grown_batch(const Paceline__BatchGrowth *g, double epochs)
{
    const struct batch_growth growth = {g->first, g->last, g->power};
    double progress = epochs < g->epochs ? epochs / g->epochs : 1;
    return (uint64_t)floor(batch_growth_at(&growth, progress) + 0.5 + 1e-6);
}

double strategy_grown_steps(const Paceline__Job *job, uint64_t offset, size_t records)
{
    const Paceline__BatchGrowth *g = job->batch_growth;
    const struct batch_growth growth = {g->first, g->last, g->power};
    double epochs = (double)offset / (double)records, grows = fmin(epochs, g->epochs);
    double updates =
        batch_growth_updates(&growth, grows / g->epochs) * g->epochs + (epochs - grows) / g->last;
    return updates * (double)records;
}

uint64_t strategy_step_samples(const Paceline__Job *job, const struct progress *progress,
                               size_t records)
{
    if (job->batch_growth)
        return grown_batch(job->batch_growth, (double)progress->sample_offset / (double)records);
    if (job_takes_all(job))
        return records;
    if (job->has_global_batch)
        return (uint64_t)job->global_batch * job->iter_size;
    return (uint64_t)(members_count(&progress->sharers) / job->slices) * job_step_records(job);
}

struct stretch strategy_share(const struct progress *progress, uint32_t node, uint64_t t,
                              uint64_t samples)
{
    struct range cut = range_cut(samples, members_count(&progress->sharers),
                                 members_rank(&progress->sharers, node), 1);
    return (struct stretch){progress->sample_offset + t * samples + cut.from, cut.len};
}

double strategy_share_weight(const struct progress *progress, size_t count, uint64_t samples)
{
    return (double)(count * members_count(&progress->sharers)) / (double)samples;
}

double strategy_rate_scale(const Paceline__Job *job, uint64_t samples)
{
    const Caffe__SolverParameter *solver = job->solver;
    return solver->has_lr_batch ? (double)samples / solver->lr_batch : 1;
}

static void expect_steps(struct member *m, struct progress at, uint64_t t, uint64_t steps)
{
    struct stretch next[LEARNER_EXPECTS];
    size_t records = m->learner->epoch_records;
    uint64_t samples = strategy_step_samples(m->job, &at, records);
    for (size_t i = 0; i < LEARNER_EXPECTS; i++) {
        if (++t == steps) {
            at.sample_offset += steps * samples;
            samples = strategy_step_samples(m->job, &at, records);
            t = 0;
        }
        next[i] = strategy_share(&at, m->world->self, t, samples);
    }
    learner_expect(m->learner, next, LEARNER_EXPECTS);
}

struct stretch strategy_begin_step(struct member *m, const struct progress *from, uint64_t t,
                                   uint64_t steps)
{
    uint64_t samples = strategy_step_samples(m->job, from, m->learner->epoch_records);
    m->learner->optim.scale = strategy_rate_scale(m->job, samples);
    if (m->job->batch_growth) /* else the loader finds the stride itself */
        expect_steps(m, *from, t, steps);
    return strategy_share(from, m->world->self, t, samples);
}

bool strategy_shares(const struct member *m, const struct progress *progress)
{
    return members_has(&progress->sharers, m->world->self);
}

void strategy_contribute_nothing(const struct member *m, struct exchange_meta *mine)
{
    mine->weight = 0;
    members_add(&mine->non_contributing, m->world->self);
}

struct members strategy_sharers(const struct exchange_meta *meta)
{
    struct members stay = members_without(&meta->participants, &meta->leaving);
    return members_empty(&stay) ? meta->participants : stay;
}

void strategy_advance(struct progress *progress, uint64_t steps, uint64_t samples,
                      const struct exchange_meta *meta)
{
    progress->sample_offset += steps * samples;
    progress->steps += steps;
    progress->exchanges++;
    progress->sharers = strategy_sharers(meta);
}

int strategy_steps(struct member *m, const struct progress *from, uint64_t first, uint64_t most,
                   int64_t until, struct exchange_meta *mine)
{
    if (!strategy_shares(m, from))
        strategy_contribute_nothing(m, mine);
    for (uint64_t k = 0; k < most && strategy_shares(m, from); k++) {
        if (atomic_load(&m->group->end.over))
            return ERR_DRIVER; /* a round can be long, and no member waits for it any more */
        if (k > 0 && world_now(m->world) >= until)
            break;
        struct stretch share = strategy_begin_step(m, from, first + k, first + most);
        int rc = learner_step(m->learner, share.start, share.count);
        if (rc == ERR_DIVERGED)
            mine->weight = 0;
        if (rc != OK)
            return rc == ERR_DIVERGED ? OK : rc;
        mine->samples += share.count;
        mine->loss += m->learner->loss * (double)share.count;
        rc = k + 1 < most ? m->on_step_boundary(m) : OK;
        if (rc != OK)
            return rc;
    }
    return OK;
}

int strategy_local_steps(struct member *m, uint64_t tau, struct exchange_meta *mine)
{
    *mine = (struct exchange_meta){.weight = 1, .hash_min = UINT64_MAX};
    int rc = strategy_steps(m, &m->progress, 0, tau, WORLD_FOREVER, mine);
    mine->stop_votes = atomic_load(&m->group->stop);
    return rc;
}

bool strategy_keeps_streams(const Paceline__Job *job, const struct strategy_traits *traits,
                            size_t floats)
{
    bool fixed = traits->fixed_shares || job->slices > 1;
    return fixed && !job->batch_growth && !job->local_data && !job_is_alone(job) && floats > 0;
}

bool strategy_checkpoint_vote(const struct member *m)
{
    return m->keeps_streams && m->checkpoint_due(m);
}

bool strategy_flush_begin(struct strategy_flush *flush, int64_t now)
{
    const int64_t rest = 20; /* times what a flush took */
    if (!flush->on && now - flush->ended >= rest * flush->took) {
        flush->on = true;
        flush->begun = now;
    }
    return flush->on;
}

void strategy_flush_end(struct strategy_flush *flush, int64_t now, int64_t took)
{
    flush->on = false;
    flush->took = took;
    flush->ended = now;
}

bool strategy_flush_vote(const struct member *m, const struct exchange *lane, bool last)
{
    struct group *group = m->group;
    if (!exchange_may_flush(lane))
        return false;
    return last || m->checkpoint_due(m) || atomic_load(&group->stop) || group_is_leaving(group);
}

bool strategy_done_after(const struct member *m, uint64_t steps, uint64_t samples)
{
    struct progress after = m->progress;
    after.steps += steps;
    after.sample_offset += steps * samples;
    return strategy_done(m->job, &after, m->learner->epoch_records);
}

uint64_t strategy_lease_grain(const Paceline__Job *job)
{
    return job->batch_growth ? 1 : job_step_records(job);
}

/* One member's part of the batch at its place. */
static uint64_t own_part(struct member *m)
{
    const struct progress here = {.sample_offset = lease_cursor_share(&m->lease_cursor).start};
    uint64_t all = strategy_step_samples(m->job, &here, m->learner->epoch_records);
    size_t members = group_view(m->group)->count;
    uint64_t part = (all + members / 2) / (members > 0 ? members : 1);
    return part > 0 ? part : 1;
}

static struct stretch leased_share(struct member *m)
{
    struct stretch next[LEARNER_EXPECTS];
    if (m->lease_cursor.count == 0)
        m->on_leases_exhausted(m);
    if (m->job->batch_growth)
        m->lease_cursor.step = own_part(m);
    size_t known = lease_cursor_following(&m->lease_cursor, next, LEARNER_EXPECTS);
    learner_expect(m->learner, next, known);
    return lease_cursor_share(&m->lease_cursor);
}

struct stretch strategy_async_share(struct member *m)
{
    uint64_t all = (uint64_t)members_count(&m->start.sharers) * job_step_records(m->job);
    struct stretch share = m->leased ? leased_share(m)
                                     : strategy_share(&m->start, m->world->self,
                                                      m->progress.steps - m->start.steps, all);
    share.count = m->leased ? share.count : job_step_records(m->job);
    m->share = share.count;
    return share;
}

int strategy_async_stepped(struct member *m)
{
    if (m->leased)
        lease_cursor_step(&m->lease_cursor);
    m->progress.steps++;
    m->progress.sample_offset += m->share;
    m->progress.samples_used += m->share;
    return m->on_step(m);
}

int strategy_async_step(struct member *m)
{
    struct stretch share = strategy_async_share(m);
    int rc = learner_step(m->learner, share.start, share.count);
    return rc == OK ? strategy_async_stepped(m) : rc;
}

/* The job's numbers are those of enum coll_algorithm and enum codec. */
_Static_assert((int)PACELINE__COLLECTIVE__ALGORITHM__scatter_gather == (int)COLL_SCATTER_GATHER &&
                   (int)PACELINE__COLLECTIVE__WIRE__topk64 == (int)CODEC_TOPK64,
               "names in job.proto and their numbers here differ");

bool strategy_is_lossy(const Paceline__Job *job)
{
    return job->collective && job->collective->wire != PACELINE__COLLECTIVE__WIRE__f32;
}

bool strategy_wire_drops(const Paceline__Job *job)
{
    return job->collective && codec_drops((enum codec)job->collective->wire);
}

int strategy_refuse_average(const char *strategy, struct err *err)
{
    return err_set(
        err, ERR_UNSUPPORTED,
        "strategy.%s.on_replace: average needs collective.wire: f32, bf16 or int8: of the "
        "optimizer's state most numbers would be 0",
        strategy);
}

size_t strategy_chunk(const Paceline__Job *job)
{
    return (size_t)job->collective->chunk_kb * 1024 / sizeof(float);
}

struct exchange_config strategy_exchange_config(const Paceline__Job *job)
{
    const Paceline__Collective *c = job->collective;
    return (struct exchange_config){
        .algorithm = (enum coll_algorithm)c->algorithm,
        .pinned = job->deterministic,
        .reject = job->reject == PACELINE__JOB__REJECT__outliers,
        .chunk = strategy_chunk(job),
        .codec = (enum codec)c->wire,
        .stripes = c->has_stripes || c->algorithm == PACELINE__COLLECTIVE__ALGORITHM__auto
                       ? c->stripes
                       : 1,
    };
}
