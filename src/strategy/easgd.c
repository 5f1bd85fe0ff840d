/* `easgd`: elastic averaging (MPCA §3.2). Each worker trains its own model x, which an elastic
 * force pulls towards a centre x̃, and the centre towards it.
 *
 * mode: async. Every τ steps of its own, independently of others, a worker
 *
 *     fetches x̃                      the only wait
 *     d = α(x − x̃),  x ← x − d       Eq. 2
 *     sends d, and trains on         at the driver:  x̃ ← x̃ + d   Eq. 3
 *
 * so the centre gains what the worker loses. The state of layers, s̃, is a mean with the same
 * weights: the driver adds α(s − s̃); workers keep their own s. The driver is a parameter server
 * (ps_server.h). Memory: four vectors on a worker, from which a recovered driver takes the
 * newest x̃ (shard.h); on the driver x̃, and one vector a worker. While the driver recovers,
 * each worker trains on until its next visit. Workers send updates again that were added after
 * the newest x̃ that any worker has fetched. A joiner of a run under way begins with its donor's x,
 * since the driver's link is busy and links between members are free.
 *
 * mode: sync. Every τ steps all exchange, and with the previous x̃
 *
 *     x ← x − α(x − x̃)               Eq. 2
 *     x̃ ← (1 − β)x̃ + β·mean(x)       Eq. 8; with β = Kα the centre gains the workers' loss
 *
 * K follows the run's membership: α is 0.9/K with the workers of the view, and β is α times the
 * workers whose models are in the mean, so the force is symmetric when workers join and leave. A
 * job may set either.
 *
 * A worker whose loss is not finite starts over from the centre. If that happens between two visits
 * in a row, it reports a lost update; when the last update of every worker is lost, the run ends.
 *
 * `momentum` (EAMSGD) is Nesterov's, in each worker's own optimizer, which the job's check
 * enforces.
 *
 * The global model is x̃, without the steps since a worker's last visit. */
#include "base/fault.h"
#include "strategy/mean_rules.h"
#include "strategy/ps_client.h"
#include "strategy/slice_group.h"
#include "strategy/sliced_rule.h"
#include "world/trace.h"

#include <inttypes.h>
#include <math.h>

static const Paceline__Easgd *settings_of(const Paceline__Job *job)
{
    return job->strategy->easgd;
}

static bool easgd_is_async(const Paceline__Job *job)
{
    return settings_of(job)->mode == PACELINE__EASGD__MODE__async;
}

/* A model that is not finite any more has nothing to give: its worker starts over. */
static int reset_worker(struct member *m, const struct vec *centre)
{
    struct learner *l = m->learner;
    if (!vec_finite(centre, vec_all(centre)))
        return ERR_DIVERGED;
    log_warn(m->group->log, "worker %u, step %" PRIu64 ": loss %g; it starts over from the centre",
             m->world->self, l->steps, l->loss);
    vec_copy(&l->both, centre, vec_all(centre));
    optim_reset(&l->optim);
    return OK;
}

/* ---- async ---- */

struct elastic {
    struct ps_client c;
    uint64_t samples;  /* since the last update */
    bool started_over; /* at the last visit */
    uint64_t tau;
    double download_s, step_s; /* the shortest so far */
};

/* The driver serves the centre as a parameter server that adds updates. */
static struct ps_server_config server_config(const Paceline__Job *job)
{
    return (struct ps_server_config){
        .servers = 1,
        .shard.rule = SHARD_ELASTIC,
        .push = settings_of(job)->tau * (uint64_t)job_step_records(job),
        .pushes_a_fetch = 1,
        .admits_in_waits = true,
        .keeps_lost = true,
        .clock = {.job = job, .consistency.kind = CONSISTENCY_ASP, .endless = true},
    };
}

/* Wait for x̃, and, if the link is so slow that τ steps were not enough, until the last d is
 * decided. The driver may serve others first, so only the driver's end limits the wait. */
static int await_centre(struct elastic *e, struct member *m, struct exchange_cost *cost)
{
    int64_t start = world_now(m->world);
    int rc = ps_client_flush(&e->c);
    int64_t requested = world_now(m->world);
    if (rc == OK)
        rc = ps_client_fetch(&e->c);
    double seconds = world_seconds(world_now(m->world) - requested);
    if (e->download_s == 0 || seconds < e->download_s)
        e->download_s = seconds;
    cost->waited_s = cost->seconds = world_seconds(world_now(m->world) - start);
    cost->waited_for = WORLD_DRIVER;
    cost->bytes = ps_client_push_bytes(&e->c) + e->c.copy_bytes;
    trace_end(m->world, start,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_DRIVER,
                                  .n = m->progress.exchanges + 1});
    return rc;
}

/* Eq. 2, and d, which is the next push. The worker keeps what a lossy codec loses of d. */
static void pull_to_centre(struct elastic *e, struct learner *l, float alpha)
{
    struct vec *d = &e->c.out;
    const struct vec x = vec_part(d, 0, l->x.n);
    vec_copy(d, &l->both, vec_all(d));
    vec_axpy(d, -1.0f, &e->c.global, vec_all(d));
    vec_scale(d, alpha, vec_all(d));
    ps_client_round(&e->c);
    vec_axpy(&l->x, -1.0f, &x, vec_all(&x));
}

/* One that starts over a second time without an update has lost it, and says so: the clock knows
 * whether all have. */
static int start_over(struct elastic *e, struct member *m)
{
    int rc = reset_worker(m, &e->c.global);
    return rc == OK && e->started_over ? ps_client_push(&e->c, e->samples, true) : rc;
}

static int visit_centre(struct elastic *e, struct member *m, bool diverged)
{
    struct exchange_cost cost = {0};
    int rc = await_centre(e, m, &cost);
    int64_t begun = trace_now(m->world);
    if (rc == OK)
        rc = world_copied(m->world, e->c.out.n * sizeof(float));
    if (rc == OK && diverged) {
        rc = start_over(e, m);
    } else if (rc == OK) {
        pull_to_centre(e, m->learner,
                       easgd_alpha(settings_of(m->job), group_view(m->group)->count));
        trace_copied(m->world, begun, TRACE_STEPS, m->progress.exchanges + 1,
                     e->c.out.n * sizeof(float));
        rc = ps_client_push(&e->c, e->samples, false);
    }
    e->samples = 0;
    e->started_over = diverged;
    return rc == OK ? m->on_exchange(m, 0, &cost) : rc;
}

/* `tau_auto`: τ = round(1.3·K·T_download / T_step) (MPCA §3.2), from the shortest time of each that
 * this worker has measured, so that the load of other workers on the link is not counted twice. */
static void choose_tau(struct elastic *e, const struct member *m)
{
    if (!settings_of(m->job)->tau_auto || e->step_s <= 0)
        return;
    double workers = (double)group_view(m->group)->count;
    double tau = round(1.3 * workers * e->download_s / e->step_s);
    e->tau = tau < 1 ? 1 : tau < UINT32_MAX ? (uint64_t)tau : UINT32_MAX;
}

/* τ steps. A step with a loss that is not finite counts, or a run with only such steps would never
 * end. */
static int local_steps(struct elastic *e, struct member *m, bool *diverged)
{
    int rc = OK;
    *diverged = false;
    for (uint64_t t = 0; rc == OK && !*diverged && t < e->tau; t++) {
        int64_t start = world_now(m->world);
        struct stretch share = strategy_async_share(m);
        rc = learner_step(m->learner, share.start, share.count);
        double seconds = world_seconds(world_now(m->world) - start);
        if (e->step_s == 0 || seconds < e->step_s)
            e->step_s = seconds;
        e->samples += share.count;
        *diverged = rc == ERR_DIVERGED;
        if (rc == OK || *diverged)
            rc = strategy_async_stepped(m);
        if (rc == OK)
            rc = ps_client_step(&e->c);
    }
    return rc;
}

/* The global model is the centre, which the driver has: the model here stays the learner's, with
 * which a joiner begins. */
static int async_worker(struct member *m)
{
    struct elastic *e = arena_new(m->arena, struct elastic);
    const struct global_model own = m->model;
    const struct ps_server_config config = server_config(m->job);
    int rc = e ? ps_client_open(&e->c, m, &config) : ERR_NOMEM;
    m->model = own;
    if (rc == OK)
        e->tau = settings_of(m->job)->tau;
    if (rc == OK)
        rc = m->on_begin(m);
    while (rc == OK) {
        bool diverged;
        rc = local_steps(e, m, &diverged);
        if (rc == OK)
            rc = visit_centre(e, m, diverged);
        if (rc == OK && e->c.ok.flags & PS_LOST)
            rc = ERR_DIVERGED;
        choose_tau(e, m);
    }
    return rc == ERR_STOP ? ps_client_leave(&e->c) : rc;
}

/* The centre, as this worker fetched it last. */
static bool easgd_last_model(struct member *m, uint64_t *version)
{
    const struct elastic *e = m->own;
    if (!easgd_is_async(m->job) || !e || !ps_client_last_model(m, version))
        return false;
    m->model = (struct global_model){.x = &e->c.state.x, .s = &e->c.state.s};
    return true;
}

static size_t easgd_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    return easgd_is_async(m->job) ? ps_client_export_join_state(m, word) : 0;
}

/* ---- sync ---- */

/* Every node has the centre: all compute the same one from the same mean. */
struct ring {
    struct exchange *lane;
    struct vec both, x, s; /* x̃, then s̃; and its parts */
};

static int ring_init(struct ring *r, struct lanes *lanes, struct group *group,
                     const Paceline__Job *job, const struct vec *both, size_t n_x,
                     uint64_t completed, struct arena *arena)
{
    struct exchange_config config = strategy_exchange_config(job);
    if (vec_init_model(&r->both, &r->x, &r->s, arena, n_x, both->n - n_x) != OK)
        return ERR_NOMEM;
    config.kept = r->both; /* for a driver that returns */
    config.exact = (struct range){n_x, r->s.n};
    config.states = true; /* workers keep their models */
    vec_copy(&r->both, both, vec_all(both));
    int rc = lanes_open(lanes, group, true, r->both.n, &config, completed, arena, &r->lane);
    if (rc == OK)
        r->lane->base = r->x;
    return rc;
}

/* Eq. 2 of x, if it is not NULL, and Eq. 8: the same on all nodes, since the exchange's metadata
 * is. s̃ is the mean itself. */
static int move_centre(struct ring *r, const Paceline__Job *job, struct vec *x)
{
    const struct vec *result = exchange_result(r->lane);
    struct vec mean = vec_part(result, 0, r->x.n), mean_s = vec_part(result, r->x.n, r->s.n);
    const struct exchange_meta *meta = exchange_result_meta(r->lane);
    const struct easgd_round round = {members_count(&meta->participants),
                                      members_count(&meta->contributors)};
    if (meta->weight == 0)
        return ERR_DIVERGED;
    easgd_step(settings_of(job), &round, x, &r->x, &mean);
    vec_copy(&r->s, &mean_s, vec_all(&r->s));
    return OK;
}

/* One round: Eq. 2 with the previous centre, then Eq. 8. */
static int sync_round(struct ring *r, struct member *m, uint64_t tau)
{
    struct learner *l = m->learner;
    struct exchange_meta mine;
    int rc = strategy_local_steps(m, tau, &mine);
    if (rc != OK)
        return rc;
    int64_t begun = trace_now(m->world);
    vec_copy(&r->lane->input, &l->both, vec_all(&l->both));
    trace_copied(m->world, begun, TRACE_STEPS, r->lane->completed + 1, l->both.n * sizeof(float));
    rc = exchange_run(r->lane, &mine);
    begun = trace_now(m->world);
    bool counted = rc == OK && exchange_counted(r->lane);
    if (rc == OK && !counted)
        rc = reset_worker(m, &r->both);
    if (rc == OK)
        rc = move_centre(r, m->job, counted ? &l->x : NULL);
    trace_copied(m->world, begun, TRACE_STEPS, r->lane->completed, 2 * l->both.n * sizeof(float));
    return rc;
}

static int sync_worker(struct member *m)
{
    struct learner *l = m->learner;
    struct ring *r = arena_new(m->arena, struct ring);
    int rc = r ? ring_init(r, &m->lanes, m->group, m->job, &l->both, l->x.n, m->progress.exchanges,
                           m->arena)
               : ERR_NOMEM;
    if (rc == OK) {
        m->model.x = &r->x;
        m->model.s = &r->s;
    }
    size_t records = l->epoch_records;
    while (rc == OK && !strategy_done(m->job, &m->progress, records)) {
        uint64_t tau = strategy_round(m->job, &m->progress, records, settings_of(m->job)->tau);
        uint64_t samples = strategy_step_samples(m->job, &m->progress, records);
        rc = sync_round(r, m, tau);
        if (rc != OK)
            break;
        strategy_advance(&m->progress, tau, samples, exchange_result_meta(r->lane));
        l->steps = m->progress.steps; /* a worker that started over has taken fewer */
        rc = m->on_commit(m, r->lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

/* The round that follows l->progress has been exchanged, and the centre moved. */
static int sync_commits(struct driver_part *l, struct ring *r)
{
    uint64_t tau = strategy_round(l->job, &l->progress, l->records, settings_of(l->job)->tau);
    vec_copy(&l->both, &r->both, vec_all(&r->both));
    strategy_advance(&l->progress, tau, strategy_step_samples(l->job, &l->progress, l->records),
                     exchange_result_meta(r->lane));
    return l->on_commit(l, r->lane);
}

/* Driver recovery: a worker sends the centre of the last exchange, which is that of l->progress, or
 * the next. */
static int sync_takes_up(struct driver_part *l, struct ring *r)
{
    int rc = exchange_sync(r->lane);
    if (rc == OK && r->lane->standing == LANE_UNKNOWN)
        rc = ERR_PEER; /* no worker is left to ask */
    if (rc == OK && r->lane->completed > l->progress.exchanges)
        return sync_commits(l, r);
    vec_copy(&l->both, &r->both, vec_all(&r->both));
    return rc == OK && exchange_was_last(r->lane) ? ERR_STOP : rc;
}

static int sync_driver(struct driver_part *l)
{
    struct ring r;
    int rc = ring_init(&r, &l->lanes, l->group, l->job, &l->both, l->x.n, l->progress.exchanges,
                       l->arena);
    if (rc == OK && l->lanes.needs_sync)
        rc = sync_takes_up(l, &r);
    while (rc == OK && !strategy_done(l->job, &l->progress, l->records)) {
        rc = exchange_run(r.lane, &(struct exchange_meta){.hash_min = UINT64_MAX});
        if (rc == OK)
            rc = move_centre(&r, l->job, NULL);
        if (rc == OK)
            rc = sync_commits(l, &r);
    }
    return rc == ERR_STOP ? OK : rc;
}

static int easgd_worker(struct member *m)
{
    return m->job->slices > 1       ? sliced_worker(m)
           : easgd_is_async(m->job) ? async_worker(m)
                                    : sync_worker(m);
}

static int easgd_driver(struct driver_part *l)
{
    const struct ps_server_config config = server_config(l->job);
    return easgd_is_async(l->job) ? ps_server_lead(l, &config) : sync_driver(l);
}

static void easgd_close(struct member *m)
{
    if (m->job->slices > 1)
        sliced_close(m);
    else
        ps_client_close(m);
}

static int easgd_configure(const Paceline__Job *job, struct strategy_traits *traits,
                           struct err *err)
{
    const struct sliced_refusal refused[] = {{"tau_auto", settings_of(job)->tau_auto}};
    if (job->slices > 1)
        return sliced_configure(job, settings_of(job)->tau, refused, 1, traits, err);
    traits->is_async = easgd_is_async(job);
    traits->takes_leases = traits->is_async;
    traits->driver_part = true;
    traits->joinable = true;
    traits->round = settings_of(job)->tau;
    return OK;
}

const struct strategy_ops strategy_easgd = {
    .name = "easgd",
    .configure = easgd_configure,
    .export_join_state = easgd_export_join_state,
    .worker = easgd_worker,
    .close = easgd_close,
    .last_model = easgd_last_model,
    .driver = easgd_driver,
};
