/* `sync`: synchronous model averaging (SparkNet §2.1, Algorithm 2; MPCA §3.1).
 *
 * A round: every worker takes τ local optimizer steps from the global model x̃; the driver reduces
 * the arithmetic mean of the workers' models and broadcasts it,
 *
 *     x̃ ← 1/K Σ x_i ,
 *
 * and every worker replaces its weights by it. A lossy wire sends the differences x_i − x̃. State
 * that is not learnt (s) is averaged and replaced with x. The first x̃ needs no broadcast: initial
 * values are a function of the seed. The round that reaches the end of the run is shorter.
 *
 * How long a round is:
 *   tau       τ steps
 *   tau_auto  τ = round(5 · T_exchange / T_step) (MPCA Table 1: five parts of computing to one of
 *             exchanging), measured in the first rounds: T_step is the slowest worker's, all wait
 *             for it; T_exchange that of the last worker to arrive, which did not wait. Both are
 *             part of the exchange metadata, so all derive the same τ from the same committed
 *             result.
 *   seconds   the steps that a worker begins within this time by its own clock: SparkNet's remedy
 *             for stragglers (§3.2). The mean is the same: a slow worker counts no less.
 *
 * init_iterations: SGD on one node first, whose model the others take (SparkNet §2.1). SparkNet
 * does it on the driver; here the driver has no learner, and the first worker does it, as a round
 * without other contributions.
 *
 * on_replace decides what happens to the optimizer's state when x is replaced: it is kept (`keep`),
 * reset (`reset`), or averaged and replaced with x (`average`). */
#include "strategy/slice_group.h"
#include "strategy/sliced_rule.h"
#include "world/trace.h"

#include <math.h>

enum { AUTO_ROUNDS = 3, AUTO_STEPS = 10 }; /* tau_auto: the first rounds, which measure */

#define AUTO_SHARE 5   /* parts of computing to one part of exchanging */
#define LONG_S     1e9 /* seconds; the longest round */

static const Paceline__Sync *settings_of(const Paceline__Job *job)
{
    return job->strategy->sync;
}

/* The state that worker and driver derive from committed results alone. */
struct rounds {
    const Paceline__Job *job;
    size_t records;        /* of the training set */
    struct exchange *lane; /* for x, s, and with `average` the optimizer's state */
    size_t n_x;            /* floats of x */
    size_t states;         /* number of vectors of that state */
    uint64_t first;        /* exchange behind which the run began, or resumed */
    uint64_t tau;          /* the agreed τ; tau_auto: 0 until it is agreed */
    uint64_t updates;      /* updates behind the optimizer's state when the round began */
    struct vec x, s;       /* a worker's: x̃ and its s, in the lane's newest result */
};

enum { JOIN_FIRST, JOIN_TAU, JOIN_UPDATES, JOIN_WORDS }; /* words of the join state */

static int rounds_open(struct rounds *r, struct lanes *lanes, struct group *group,
                       const Paceline__Job *job, const struct vec *both, size_t n_x,
                       const struct optim *optim, const struct progress *progress, size_t records,
                       struct arena *arena)
{
    struct exchange_config config = strategy_exchange_config(job);
    size_t n_s = both->n - n_x;
    bool average = settings_of(job)->on_replace == PACELINE__ON_REPLACE__average;
    *r = (struct rounds){
        .job = job,
        .records = records,
        .n_x = n_x,
        .states = average ? optim->ops->states : 0,
        .first = progress->exchanges,
        .tau = settings_of(job)->tau_auto ? 0 : settings_of(job)->tau,
    };
    config.exact = (struct range){n_x, n_s};
    size_t n = n_x * (1 + r->states) + n_s;
    int rc = lanes_open(lanes, group, true, n, &config, progress->exchanges, arena, &r->lane);
    if (rc == OK) /* the first x̃, of which a lossy codec sends differences */
        vec_export(both, vec_all(both), exchange_result(r->lane)->at);
    return rc;
}

static int exchange_models(struct rounds *r, const struct exchange_meta *mine)
{
    r->lane->base = vec_part(exchange_result(r->lane), 0, r->n_x);
    return exchange_run(r->lane, mine);
}

/* Is the next round the first one, of init_iterations? */
static bool begins_round(const struct rounds *r, const struct progress *progress)
{
    return settings_of(r->job)->init_iterations > 0 && progress->sample_offset == 0;
}

/* Largest number of steps of the next round. */
static uint64_t longest_round(const struct rounds *r)
{
    if (settings_of(r->job)->has_seconds)
        return UINT64_MAX;
    return r->tau > 0 ? r->tau : AUTO_STEPS;
}

/* Advance by a round that a clock ended. The sample offset advances by the samples that counted,
 * and `steps` by their mean over the contributors. So no sample of the round is missed; the work of
 * a worker that died in it is not counted anywhere. */
static void advance_by_samples(struct progress *progress, uint32_t batch,
                               const struct exchange_meta *meta)
{
    double batches = (double)meta->samples / batch;
    strategy_advance(progress, 0, 0, meta);
    progress->sample_offset += meta->samples;
    progress->steps += (uint64_t)llround(batches / (double)members_count(&meta->contributors));
}

static void choose_tau(struct rounds *r, const struct progress *progress)
{
    const struct exchange_meta *meta = exchange_result_meta(r->lane);
    if (r->tau > 0 || progress->exchanges < r->first + AUTO_ROUNDS || meta->step_s <= 0)
        return;
    double tau = round(AUTO_SHARE * meta->exchange_s / meta->step_s);
    r->tau = tau < 1 ? 1 : tau > UINT32_MAX ? UINT32_MAX : (uint64_t)tau;
}

/* A round of at most `tau` steps has committed. ERR_DIVERGED: no member had a finite model. */
static int advance_round(struct rounds *r, struct progress *progress, uint64_t tau)
{
    const struct exchange_meta *meta = exchange_result_meta(r->lane);
    if (meta->weight == 0)
        return ERR_DIVERGED;
    if (settings_of(r->job)->has_seconds)
        advance_by_samples(progress, job_step_records(r->job), meta);
    else
        strategy_advance(progress, tau, strategy_step_samples(r->job, progress, r->records), meta);
    choose_tau(r, progress);
    return OK;
}

/* The first round has committed: its samples are used, and no worker has taken a step of its own.
 * If its worker died, nothing was contributed, and the next worker repeats the round. */
static int advance_first(struct rounds *r, struct progress *progress)
{
    const struct exchange_meta *meta = exchange_result_meta(r->lane);
    uint32_t first = 0;
    while (!members_has(&progress->sharers, first))
        first++;
    if (meta->weight == 0 && members_has(&meta->participants, first))
        return ERR_DIVERGED;
    strategy_advance(progress, 0, 0, meta);
    progress->sample_offset += meta->samples;
    return OK;
}

/* Fill the exchanged vector: x, then s, then the optimizer's state. */
static void put_model(const struct rounds *r, const struct learner *l)
{
    struct world *world = r->lane->group->world;
    int64_t begun = trace_now(world);
    float *at = r->lane->input.at;
    vec_export(&l->both, vec_all(&l->both), at);
    at += l->both.n;
    for (size_t i = 0; i < r->states; i++, at += l->x.n)
        vec_export(&l->optim.state[i], vec_all(&l->optim.state[i]), at);
    trace_copied(world, begun, TRACE_STEPS, r->lane->completed + 1,
                 (uint64_t)(at - r->lane->input.at) * sizeof *at);
}

/* Between two exchanges, too, the global model is the newest result. A lone worker's model is its
 * own. */
static void show_model(struct rounds *r, struct member *m)
{
    const struct vec *result = exchange_result(r->lane);
    if (job_is_alone(r->job))
        return;
    r->x = vec_part(result, 0, r->n_x);
    r->s = vec_part(result, r->n_x, m->learner->s.n);
    m->model.x = &r->x;
    m->model.s = &r->s;
}

static void take_model(const struct rounds *r, struct vec *both)
{
    struct world *world = r->lane->group->world;
    int64_t begun = trace_now(world);
    vec_import(both, vec_all(both), exchange_result(r->lane)->at);
    trace_copied(world, begun, TRACE_STEPS, r->lane->completed, both->n * sizeof(float));
}

/* ---- a worker ---- */

/* With rounds by the clock, workers take unequal numbers of steps. Each trains on its own stripe of
 * the stream, as if all took equally many. */
struct stripe {
    struct progress from; /* start of all stripes */
    uint64_t taken;       /* steps taken in this stripe */
};

/* Steps of a round in which this worker has taken `samples`. */
static uint64_t count_steps(const struct member *m, const struct rounds *r, uint64_t samples)
{
    uint64_t step = strategy_step_samples(m->job, &m->progress, r->records);
    return samples > 0 ? samples / strategy_share(&m->progress, m->world->self, 0, step).count : 0;
}

/* Take the steps of a round. */
static int train_round(struct member *m, const struct rounds *r, uint64_t most, struct stripe *own,
                       struct exchange_meta *mine)
{
    const Paceline__Sync *config = settings_of(r->job);
    int64_t start = world_now(m->world);
    int64_t until = start + (int64_t)(fmin(config->seconds, LONG_S) * WORLD_SECOND);
    *mine = (struct exchange_meta){.weight = 1, .hash_min = UINT64_MAX};
    bool by_clock = config->has_seconds && strategy_shares(m, &m->progress);
    int rc = by_clock ? strategy_steps(m, &own->from, own->taken, most, until, mine)
                      : strategy_steps(m, &m->progress, 0, most, WORLD_FOREVER, mine);
    uint64_t steps = count_steps(m, r, mine->samples);
    own->taken += steps + (mine->weight == 0);
    if (config->tau_auto && steps > 0) {
        mine->step_s = world_seconds(world_now(m->world) - start) / (double)steps;
        mine->exchange_s = r->lane->cost.seconds;
    }
    mine->stop_votes = atomic_load(&m->group->stop);
    uint64_t samples = strategy_step_samples(m->job, &m->progress, r->records);
    mine->flush_votes =
        strategy_flush_vote(m, r->lane, !by_clock && strategy_done_after(m, most, samples));
    mine->checkpoint_votes = strategy_checkpoint_vote(m);
    return rc;
}

/* The first worker takes init_iterations steps on samples of its own. All others contribute
 * nothing. */
static int train_first(struct member *m, struct exchange_meta *mine)
{
    struct progress alone = {.sample_offset = m->progress.sample_offset};
    bool first = members_rank(&m->progress.sharers, m->world->self) == 0;
    *mine = (struct exchange_meta){
        .weight = first ? 1 : 0,
        .stop_votes = atomic_load(&m->group->stop),
        .hash_min = UINT64_MAX,
    };
    members_add(&alone.sharers, m->world->self);
    return first ? strategy_steps(m, &alone, 0, settings_of(m->job)->init_iterations, WORLD_FOREVER,
                                  mine)
                 : OK;
}

/* A worker without a contribution takes x̃ like all others, and resets its optimizer, whose state
 * is as damaged as its model was. */
static void reset_rounds(struct learner *l, const struct progress *progress)
{
    optim_reset(&l->optim);
    l->steps = progress->steps;
}

/* Replace x, s and the optimizer's state, together with the number of updates behind it. */
static void replace_model(const struct rounds *r, struct learner *l,
                          const struct progress *progress, uint64_t steps)
{
    take_model(r, &l->both);
    if (!exchange_counted(r->lane))
        reset_rounds(l, progress);
    else if (settings_of(r->job)->on_replace == PACELINE__ON_REPLACE__reset)
        optim_reset(&l->optim);
    const float *at = exchange_result(r->lane)->at + l->both.n;
    for (size_t i = 0; i < r->states; i++, at += l->x.n)
        vec_import(&l->optim.state[i], vec_all(&l->optim.state[i]), at);
    if (r->states > 0)
        l->optim.updates = r->updates + steps;
}

static int first_round(struct member *m, struct rounds *r)
{
    struct learner *l = m->learner;
    struct exchange_meta mine;
    int rc = train_first(m, &mine);
    if (rc != OK)
        return rc;
    put_model(r, l);
    rc = exchange_models(r, &mine);
    if (rc == OK)
        rc = advance_first(r, &m->progress);
    if (rc != OK)
        return rc;
    if (exchange_result_meta(r->lane)->weight > 0)
        take_model(r, &l->both);
    reset_rounds(l, &m->progress); /* all members alike */
    show_model(r, m);
    return m->on_commit(m, r->lane);
}

static int one_round(struct member *m, struct rounds *r, struct stripe *own)
{
    struct learner *l = m->learner;
    uint64_t steps = m->progress.steps;
    uint64_t tau = strategy_round(m->job, &m->progress, l->epoch_records, longest_round(r));
    struct exchange_meta mine;
    r->updates = l->optim.updates;
    int rc = train_round(m, r, tau, own, &mine);
    if (rc != OK)
        return rc;
    put_model(r, l);
    rc = exchange_models(r, &mine);
    if (rc == OK)
        rc = advance_round(r, &m->progress, tau);
    if (rc != OK)
        return rc;
    replace_model(r, l, &m->progress, m->progress.steps - steps);
    r->updates = l->optim.updates;
    show_model(r, m);
    return m->on_commit(m, r->lane);
}

static int sync_worker(struct member *m)
{
    if (m->job->slices > 1)
        return sliced_worker(m);
    struct learner *l = m->learner;
    size_t records = l->epoch_records;
    struct rounds *r = m->own = arena_new(m->arena, struct rounds);
    int rc = r ? rounds_open(r, &m->lanes, m->group, m->job, &l->both, l->x.n, &l->optim,
                             &m->progress, records, m->arena)
               : ERR_NOMEM;
    if (rc == OK && m->join_state && m->join_state->words == JOIN_WORDS) {
        r->first = m->join_state->word[JOIN_FIRST];
        r->tau = m->join_state->word[JOIN_TAU];
        l->optim.updates = m->join_state->word[JOIN_UPDATES];
    }
    while (rc == OK && begins_round(r, &m->progress))
        rc = first_round(m, r);
    struct stripe own = {.from = m->progress};
    if (m->join_state) /* a joiner's own stripe, as if all began theirs here (our choice) */
        members_add(&own.from.sharers, m->world->self);
    while (rc == OK && !strategy_done(m->job, &m->progress, records))
        rc = one_round(m, r, &own);
    return rc == ERR_STOP ? OK : rc;
}

static size_t sync_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct rounds *r = m->own;
    word[JOIN_FIRST] = r->first;
    word[JOIN_TAU] = r->tau;
    word[JOIN_UPDATES] = r->updates;
    return JOIN_WORDS;
}

/* ---- the driver, which gives nothing to the mean and keeps it as x̃ ---- */

static void report_tau(const struct driver_part *l, const struct rounds *r)
{
    const struct exchange_meta *meta = exchange_result_meta(r->lane);
    log_info(l->log, "tau is %llu: an exchange takes %.3g s, a step %.3g s",
             (unsigned long long)r->tau, meta->exchange_s, meta->step_s);
}

/* The round behind l->progress has been exchanged. */
static int driver_commits(struct driver_part *l, struct rounds *r)
{
    bool first = begins_round(r, &l->progress);
    uint64_t before = r->tau;
    uint64_t tau = strategy_round(l->job, &l->progress, l->records, longest_round(r));
    int rc = first ? advance_first(r, &l->progress) : advance_round(r, &l->progress, tau);
    if (rc != OK)
        return rc;
    if (exchange_result_meta(r->lane)->weight > 0)
        take_model(r, &l->both);
    if (r->tau != before)
        report_tau(l, r);
    return l->on_commit(l, r->lane);
}

static int driver_round(struct driver_part *l, struct rounds *r)
{
    const struct exchange_meta mine = {
        .flush_votes = exchange_may_flush(r->lane) && l->checkpoint_due(l),
        .checkpoint_votes = l->keeps_streams && l->checkpoint_due(l),
        .hash_min = UINT64_MAX,
    };
    int rc = exchange_models(r, &mine);
    return rc == OK ? driver_commits(l, r) : rc;
}

/* Driver recovery: x̃ is the result that the workers hold. It is that of the exchange at
 * l->progress, or of the next one, if the last driver completed that for at least one worker. */
static int take_up(struct driver_part *l, struct rounds *r)
{
    if (l->recovered) {
        r->first = l->recovered[JOIN_FIRST];
        r->tau = l->recovered[JOIN_TAU];
    }
    int rc = exchange_sync(r->lane);
    if (rc == OK && r->lane->standing == LANE_UNKNOWN)
        rc = ERR_PEER; /* no worker is left that holds it */
    if (rc != OK)
        return rc;
    if (r->lane->completed > l->progress.exchanges)
        return driver_commits(l, r);
    if (exchange_result_meta(r->lane)->weight > 0)
        take_model(r, &l->both);
    return exchange_was_last(r->lane) ? ERR_STOP : OK;
}

static int sync_driver(struct driver_part *l)
{
    struct optim optim; /* used only for the number of its state vectors */
    struct err err;
    struct rounds r;
    int rc = optim_init(&optim, l->job->solver, 0, l->arena, &err);
    if (rc == OK)
        rc = rounds_open(&r, &l->lanes, l->group, l->job, &l->both, l->x.n, &optim, &l->progress,
                         l->records, l->arena);
    if (rc == OK && l->lanes.needs_sync)
        rc = take_up(l, &r);
    while (rc == OK &&
           (begins_round(&r, &l->progress) || !strategy_done(l->job, &l->progress, l->records)))
        rc = driver_round(l, &r);
    return rc == ERR_STOP ? OK : rc;
}

static void sync_close(struct member *m)
{
    if (m->job->slices > 1)
        sliced_close(m);
}

static int sync_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err)
{
    const Paceline__Sync *sync = settings_of(job);
    const struct sliced_refusal refused[] = {
        {"tau_auto", sync->tau_auto},
        {"seconds", sync->has_seconds},
        {"init_iterations", sync->init_iterations > 0},
        {"on_replace: average", sync->on_replace == PACELINE__ON_REPLACE__average},
    };
    if (job->slices > 1)
        return sliced_configure(job, sync->tau, refused, sizeof refused / sizeof *refused, traits,
                                err);
    if (sync->has_seconds && job_shares_batch(job))
        return err_set(
            err, ERR_UNSUPPORTED,
            "strategy.sync.seconds: with rounds by the clock workers take unequal numbers "
            "of steps, each of its own `batch`, and the job sets %s",
            job->batch_growth ? "batch_growth" : "global_batch");
    if (strategy_wire_drops(job) && sync->on_replace == PACELINE__ON_REPLACE__average)
        return strategy_refuse_average("sync", err);
    traits->driver_part = true;
    traits->joinable = true;
    /* A lossy codec sends differences to x̃, which a joiner needs before its first exchange. */
    traits->join_needs_no_model = !strategy_is_lossy(job);
    traits->fixed_shares = !sync->has_seconds;
    traits->round = sync->tau; /* also where tau_auto or seconds decide */
    return OK;
}

const struct strategy_ops strategy_sync = {
    .name = "sync",
    .configure = sync_configure,
    .export_join_state = sync_export_join_state,
    .worker = sync_worker,
    .close = sync_close,
    .driver = sync_driver,
};
