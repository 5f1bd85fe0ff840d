/* `full_batch`: conjugate gradient or L-BFGS over all records (SparkDML §3 trains its fully
 * connected net so). One step is one evaluation of
 *
 *     f(x) = 1/N Σ loss_i(x) + w/2 ‖x‖² ,   ∇f(x) ,
 *
 * over all N records: each worker sums its share of them, and one exchange adds the shares up, as
 * in `allreduce`. All members then know f and ∇f, bit for bit, and compute the same next point
 * from them (optim/descent.h): the dot products of a direction and of a line search are of vectors
 * that each has whole, so they need no message.
 *
 * Every evaluation takes the records of the first epoch, in that order, with the random maps and
 * masks of that epoch: else f would be another function each time, and a line search would compare
 * values of different ones. Members evaluate the point under trial; the global model is the
 * iterate, which the search has accepted.
 *
 * After a change of the members the evaluation under way is discarded, and all restart at the
 * iterate, with no direction: some records may be missing in that evaluation, and a joiner has the
 * iterate, from its donor, and nothing else. All see the change in the metadata of one exchange.
 * With local_data, where N is the sum of what the workers have, a change of N restarts them as
 * well. */
#include "base/fault.h"
#include "optim/descent.h"
#include "strategy/strategy.h"

#include <math.h>
#include <string.h>

struct searcher {
    struct member *m;
    struct exchange *lane; /* for the gradient, then s */
    struct descent descent;
    enum descent_verdict verdict; /* of the last evaluation */
    struct vec s;                 /* before the evaluation under way */
    struct members together;      /* took part in the last exchange */
    uint64_t records;             /* N of the last evaluation; 0: there was none */
    bool joins;                   /* a joiner, before its first exchange */
};

static const Paceline__FullBatch *settings_of(const Paceline__Job *job)
{
    return job->strategy->full_batch;
}

static const struct direction_ops *directions_of(const Paceline__Job *job)
{
    return strcmp(job->solver->type, "CG") == 0 ? &direction_cg : &direction_lbfgs;
}

/* A worker without a record would have nothing to contribute, as one that has returned. */
static int check_records(const struct member *m)
{
    size_t records = m->learner->epoch_records;
    uint32_t most = job_workers_max(m->job);
    return records >= most || m->job->local_data
               ? OK
               : err_set(&m->learner->err, ERR_UNSUPPORTED,
                         "train_data: has %zu records to train on, and strategy full_batch needs "
                         "one for each of up to %u workers",
                         records, most);
}

static int searcher_open(struct searcher *f, struct member *m)
{
    struct learner *l = m->learner;
    struct exchange_config config = strategy_exchange_config(m->job);
    const Paceline__FullBatch *settings = settings_of(m->job);
    *f = (struct searcher){
        .m = m,
        .together = m->progress.sharers,
        .joins = m->join_state != NULL,
    };
    int rc = check_records(m);
    if (rc == OK)
        rc = descent_init(&f->descent, directions_of(m->job), settings->history,
                          settings->tolerance, l->x.n, m->arena);
    if (rc == OK)
        rc = vec_init(&f->s, m->arena, l->s.n);
    if (rc == OK)
        rc = lanes_open(&m->lanes, m->group, false, l->dx.n + l->s.n, &config,
                        m->progress.exchanges, m->arena, &f->lane);
    if (rc != OK)
        return rc;
    descent_begin(&f->descent, &l->x);
    m->model.x = &f->descent.iterate;
    return OK;
}

static bool has_ended(const struct searcher *f)
{
    return f->verdict == DESCENT_CONVERGED || f->verdict == DESCENT_STUCK;
}

/* This worker's share of the records, in the first epoch; or the records that it has. */
static struct stretch find_share(const struct searcher *f)
{
    const struct member *m = f->m;
    const struct learner *l = m->learner;
    const struct progress first = {.sharers = m->progress.sharers};
    if (m->job->local_data)
        return (struct stretch){0, l->share.sampler.n};
    return strategy_share(&first, m->world->self, 0, l->epoch_records);
}

/* The gradient over the share. Records of its own stay at their place, so that the next evaluation
 * takes the same in the same order. */
static int compute_share(struct learner *l, const struct stretch *share)
{
    const uint64_t place = l->share.next;
    learner_expect(l, share, 1);
    int rc = learner_gradient(l, share->start, share->count);
    l->share.next = place;
    return rc;
}

/* Evaluate this worker's share at x, and describe the contribution. A member whose search has ended
 * votes for the end of the run; all have ended with it. */
static int evaluate_share(struct searcher *f, struct exchange_meta *mine)
{
    struct member *m = f->m;
    struct learner *l = m->learner;
    *mine = (struct exchange_meta){
        .stop_votes = has_ended(f) || atomic_load(&m->group->stop),
        .hash_min = UINT64_MAX,
    };
    vec_copy(&f->s, &l->s, vec_all(&l->s));
    if (f->joins || has_ended(f) || !strategy_shares(m, &m->progress)) {
        strategy_contribute_nothing(m, mine);
        return OK;
    }
    struct stretch share = find_share(f);
    mine->hash_min = mine->hash_max = vec_hash(&l->x, vec_all(&l->x));
    mine->weight = (double)share.count;
    mine->samples = share.count;
    l->steps = m->progress.steps;
    int rc = compute_share(l, &share);
    mine->loss = l->loss * (double)share.count;
    if (rc == ERR_DIVERGED) /* perhaps the step under trial is too long */
        mine->weight = 0;
    return rc == ERR_DIVERGED ? OK : rc;
}

static int exchange_sums(struct searcher *f, const struct exchange_meta *mine)
{
    const struct learner *l = f->m->learner;
    vec_export(&l->dx, vec_all(&l->dx), f->lane->input.at);
    vec_export(&l->s, vec_all(&l->s), f->lane->input.at + l->dx.n);
    return exchange_run(f->lane, mine);
}

/* Have the members changed since the exchange before? Then some lack the state of the descent, or
 * records are missing. A worker that was lost and has returned counts, too: it has a share,
 * and nothing to contribute. */
static bool members_changed(struct searcher *f, const struct exchange_meta *meta)
{
    const struct members *sharers = &f->m->progress.sharers, *now = &meta->participants;
    const struct members idle = members_intersection(&meta->non_contributing, sharers);
    bool changed = f->joins || !members_within(now, &f->together) ||
                   !members_within(&f->together, now) || !members_empty(&idle);
    f->together = *now;
    f->joins = false;
    return changed;
}

/* Is it another function than that of the evaluation before? */
static bool records_changed(struct searcher *f, const struct exchange_meta *meta)
{
    bool changed = f->records > 0 && meta->samples != f->records;
    f->records = meta->samples;
    return changed;
}

static void take_sums(struct searcher *f, const struct exchange_meta *meta)
{
    struct learner *l = f->m->learner;
    const float *mean = exchange_result(f->lane)->at;
    vec_import(&l->dx, vec_all(&l->dx), mean);
    if (meta->weight > 0)
        vec_import(&l->s, vec_all(&l->s), mean + l->dx.n);
    else
        vec_copy(&l->s, &f->s, vec_all(&l->s));
}

/* The next point, from the sums over all members. */
static int take_step(struct searcher *f)
{
    struct learner *l = f->m->learner;
    const struct exchange_meta *meta = exchange_result_meta(f->lane);
    const Caffe__SolverParameter *solver = f->m->job->solver;
    bool changed = members_changed(f, meta);
    if (meta->hash_max != 0 && meta->hash_min != meta->hash_max)
        return ERR_REPLICAS;
    take_sums(f, meta);
    if (has_ended(f))
        return OK;
    /* Where a contribution was not finite, neither is f. */
    bool whole = members_within(&f->m->progress.sharers, &meta->contributors);
    if (changed || (whole && records_changed(f, meta))) {
        f->records = 0;
        descent_restart(&f->descent, &l->x);
        return OK;
    }
    double loss = whole ? meta->loss / (double)meta->samples : INFINITY;
    loss += descent_add_decay(solver->weight_decay, l->table, &l->x, &l->dx);
    f->verdict = descent_next(&f->descent, loss, &l->dx, &l->x);
    return f->verdict == DESCENT_DIVERGED ? ERR_DIVERGED : OK;
}

static int run_step(struct searcher *f)
{
    struct member *m = f->m;
    struct exchange_meta mine;
    int rc = evaluate_share(f, &mine);
    if (rc == OK)
        rc = exchange_sums(f, &mine);
    if (rc == OK)
        rc = take_step(f);
    if (rc != OK)
        return rc;
    /* An exchange in which nothing was evaluated is no step. */
    const struct exchange_meta *meta = exchange_result_meta(f->lane);
    size_t records = m->job->local_data ? meta->samples : m->learner->epoch_records;
    strategy_advance(&m->progress, meta->weight > 0, records, meta);
    return m->on_commit(m, f->lane);
}

static int full_batch_worker(struct member *m)
{
    struct searcher *f = arena_new(m->arena, struct searcher);
    int rc = f ? searcher_open(f, m) : ERR_NOMEM;
    while (rc == OK && !strategy_done(m->job, &m->progress, m->learner->epoch_records))
        rc = run_step(f);
    return rc == ERR_STOP ? OK : rc;
}

static int full_batch_configure(const Paceline__Job *job, struct strategy_traits *traits,
                                struct err *err)
{
    traits->joinable = true;
    traits->replicas_agree = true;
    traits->round = 1;
    return strategy_is_lossy(job)
               ? err_set(err, ERR_UNSUPPORTED,
                         "collective.wire: strategy full_batch needs f32: a line search compares "
                         "exact gradients")
               : OK;
}

const struct strategy_ops strategy_full_batch = {
    .name = "full_batch",
    .configure = full_batch_configure,
    .worker = full_batch_worker,
};
