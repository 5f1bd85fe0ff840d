/* `easgd`: elastic averaging (MPCA §3.2). Each worker trains its own model x, held to a centre x̃
 * by an elastic force, and the centre is pulled in turn.
 *
 * mode: async. Every τ steps of its own, without regard to others, a worker
 *
 *     fetches x̃                      all that it waits for
 *     d = α(x − x̃),  x ← x − d       Eq. 2
 *     sends d, and trains on         at the driver:  x̃ ← x̃ + d   Eq. 3
 *
 * so the centre gains what the worker gives. The state of layers, s̃, is a mean weighted alike:
 * the driver adds α(s − s̃); workers keep their own s. Memory: two vectors on a worker; on the
 * driver x̃, and one vector a worker.
 *
 * mode: sync. Every τ steps all exchange, and with the x̃ of before
 *
 *     x ← x − α(x − x̃)               Eq. 2
 *     x̃ ← (1 − β)x̃ + β·mean(x)       Eq. 8; with β = Kα it gains what they give
 *
 * `momentum` (EAMSGD) is Nesterov's, in each worker's own optimizer: the job's check sees to it.
 *
 * The joint model is x̃: steps since a worker's last visit are not in it. */
#include "strategy/centre.h"
#include "strategy/courier.h"
#include "world/trace.h"

#include <inttypes.h>
#include <math.h>

enum easgd_signal { SIGNAL_GIVE = STRATEGY_SIGNAL_FIRST, SIGNAL_GIVEN };

static const Paceline__Easgd *settings(const Paceline__Job *job)
{
    return job->strategy->easgd;
}

static bool easgd_runs_free(const Paceline__Job *job)
{
    return settings(job)->mode == PACELINE__EASGD__MODE__async;
}

static uint64_t easgd_round(const Paceline__Job *job)
{
    return settings(job)->tau;
}

/* A model that is no number any more has nothing to give: its worker begins afresh. */
static int begin_afresh(struct member *m, const struct vec *centre)
{
    struct learner *l = m->learner;
    struct vec x = centre_x(centre, l->x.n), s = centre_s(centre, l->x.n);
    if (!vec_finite(centre, vec_all(centre)))
        return ERR_DIVERGED;
    log_warn(m->group->log,
             "worker %u, step %" PRIu64 ": loss %g; it begins afresh from the centre",
             m->world->self, l->steps, l->loss);
    vec_copy(&l->x, &x, vec_all(&x));
    vec_copy(&l->s, &s, vec_all(&s));
    optim_reset(&l->optim);
    return OK;
}

/* ---- async: a worker ---- */

struct visitor {
    struct parcels post;
    struct parcel ask, fetched;
    struct courier courier; /* carries d, beside training */
    struct vec centre;      /* x̃ and s̃ as fetched */
    struct vec d;
    double download_s, step_s; /* the shortest yet */
    uint64_t tau;
};

static int visitor_init(struct visitor *v, struct member *m)
{
    size_t n = m->learner->x.n + m->learner->s.n;
    parcels_init(&v->post, m->world, m->group, CENTRE_LANE_VISIT);
    v->tau = settings(m->job)->tau;
    if (vec_init(&v->centre, m->arena, n) != OK || vec_init(&v->d, m->arena, n) != OK)
        return ERR_NOMEM;
    return courier_start(&v->courier, m->world, m->group, CENTRE_LANE_GIVE, SIGNAL_GIVE,
                         SIGNAL_GIVEN);
}

/* How a parcel from or to the driver ended: if not well, the driver is no driver any more. */
static int with_driver(int status)
{
    bool gone = status == ERR_PEER || status == ERR_STOP;
    return gone ? ERR_DRIVER : status;
}

/* A note alone asks, and is refused, since nothing comes with it; what comes back is the centre. */
static int fetch(struct visitor *v, int64_t deadline)
{
    struct message *note;
    parcel_send(&v->ask, &v->post,
                &(struct parcel_out){.to = WORLD_DRIVER, .lane = CENTRE_LANE_VISIT});
    int rc = parcels_await(&v->post, WORLD_DRIVER, deadline, &note);
    if (rc == OK) {
        parcel_accept(&v->fetched, &v->post, note,
                      &(struct parcel_in){.x = v->centre.at, .n = v->centre.n});
        rc = parcel_finish(&v->fetched, deadline);
    }
    parcel_cancel(&v->ask); /* the refusal may be under way yet */
    return rc;
}

/* Wait for x̃; and, if a link is so slow that τ steps were not enough for it, for the last d to
 * have left. Others may have to be served first: what ends the wait is the driver's end. */
static int await_centre(struct visitor *v, struct member *m, struct exchange_cost *cost)
{
    int64_t start = world_now(m->world);
    atomic_store(&m->group->busy, false);
    int rc = courier_wait(&v->courier, WORLD_FOREVER);
    int64_t asked = world_now(m->world);
    if (rc == OK)
        rc = fetch(v, WORLD_FOREVER);
    atomic_store(&m->group->busy, true);
    double seconds = world_seconds(world_now(m->world) - asked);
    if (v->download_s == 0 || seconds < v->download_s)
        v->download_s = seconds;
    cost->waited_s = cost->seconds = world_seconds(world_now(m->world) - start);
    cost->waited_for = WORLD_DRIVER;
    cost->bytes = 2 * v->centre.n * sizeof(float);
    trace_end(m->world, start,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_DRIVER,
                                  .n = m->course.exchanges + 1});
    return with_driver(rc);
}

/* Eq. 2, and d as it is sent. */
static void pull(struct visitor *v, struct learner *l, float alpha)
{
    struct vec x = centre_x(&v->d, l->x.n), s = centre_s(&v->d, l->x.n);
    vec_copy(&x, &l->x, vec_all(&x));
    vec_copy(&s, &l->s, vec_all(&s));
    vec_axpy(&v->d, -1.0f, &v->centre, vec_all(&v->d));
    vec_scale(&v->d, alpha, vec_all(&v->d));
    vec_axpy(&l->x, -1.0f, &x, vec_all(&x));
}

static int visit(struct visitor *v, struct member *m, bool diverged)
{
    struct exchange_cost cost = {0};
    int rc = await_centre(v, m, &cost);
    if (rc == OK)
        rc = world_copied(m->world, v->d.n * sizeof(float));
    if (rc == OK && diverged) {
        rc = begin_afresh(m, &v->centre);
    } else if (rc == OK) {
        pull(v, m->learner, settings(m->job)->alpha);
        courier_send(&v->courier,
                     &(struct parcel_out){
                         .to = WORLD_DRIVER, .lane = CENTRE_LANE_VISIT, .x = v->d.at, .n = v->d.n});
    }
    return rc == OK ? m->exchanged(m, 0, &cost) : rc;
}

/* `tau_auto`: τ = round(1.3·K·T_download / T_step) (MPCA §3.2), by the shortest of each that
 * this worker has seen: what others do to the link is not to be counted twice. */
static void choose_tau(struct visitor *v, const struct member *m)
{
    if (!settings(m->job)->tau_auto || v->step_s <= 0)
        return;
    double workers = (double)group_view(m->group)->count;
    double tau = round(1.3 * workers * v->download_s / v->step_s);
    v->tau = tau < 1 ? 1 : tau < UINT32_MAX ? (uint64_t)tau : UINT32_MAX;
}

/* τ steps. One whose loss is no number counts, or a run in which all are such would never end. */
static int local_steps(struct visitor *v, struct member *m, bool *diverged)
{
    int rc = OK;
    *diverged = false;
    for (uint64_t t = 0; rc == OK && !*diverged && t < v->tau; t++) {
        int64_t start = world_now(m->world);
        rc = learner_step(m->learner, strategy_free_place(m), job_step_records(m->job));
        double seconds = world_seconds(world_now(m->world) - start);
        if (v->step_s == 0 || seconds < v->step_s)
            v->step_s = seconds;
        *diverged = rc == ERR_DIVERGED;
        if (rc == OK || *diverged)
            rc = strategy_free_stepped(m);
    }
    return rc;
}

/* Who comes to a run under way begins as the centre is. */
static int enter(struct visitor *v, struct member *m)
{
    struct learner *l = m->learner;
    struct vec x = centre_x(&v->centre, l->x.n), s = centre_s(&v->centre, l->x.n);
    int rc = with_driver(fetch(v, WORLD_FOREVER));
    if (rc != OK)
        return rc;
    vec_copy(&l->x, &x, vec_all(&x));
    vec_copy(&l->s, &s, vec_all(&s));
    return OK;
}

static int async_worker(struct member *m)
{
    struct visitor *v = m->own = arena_new(m->arena, struct visitor);
    if (!v)
        return ERR_NOMEM;
    int rc = visitor_init(v, m);
    if (rc == OK && m->admission)
        rc = enter(v, m);
    while (rc == OK) {
        bool diverged;
        rc = local_steps(v, m, &diverged);
        if (rc == OK)
            rc = visit(v, m, diverged);
        choose_tau(v, m);
    }
    parcels_close(&v->post);
    atomic_store(&m->group->busy, false);
    if (rc == ERR_STOP) /* what has been given is to arrive */
        rc = with_driver(courier_wait(&v->courier, WORLD_FOREVER));
    return rc;
}

static void easgd_close(struct member *m)
{
    struct visitor *v = m->own;
    if (v)
        courier_stop(&v->courier);
}

/* ---- sync ---- */

/* The centre is everybody's: all compute the same one from the same mean. */
struct ring {
    struct exchange *lane;
    struct vec both, x, s; /* x̃, then s̃; and its parts */
};

static int ring_init(struct ring *r, struct lanes *lanes, struct group *group,
                     const Paceline__Job *job, const struct vec *x, const struct vec *s,
                     uint64_t completed, struct arena *arena)
{
    const struct exchange_how how = strategy_exchange_how(job);
    if (vec_init(&r->both, arena, x->n + s->n) != OK)
        return ERR_NOMEM;
    r->x = centre_x(&r->both, x->n);
    r->s = centre_s(&r->both, x->n);
    vec_copy(&r->x, x, vec_all(x));
    vec_copy(&r->s, s, vec_all(s));
    return lanes_open(lanes, group, true, r->both.n, &how, completed, arena, &r->lane);
}

/* Eq. 8; s̃ is the mean itself. */
static int move_centre(struct ring *r, const Paceline__Job *job)
{
    const struct vec *mean = exchange_result(r->lane);
    struct vec mean_s = centre_s(mean, r->x.n);
    if (exchange_tally(r->lane)->weight == 0)
        return ERR_DIVERGED;
    vec_lerp(&r->x, settings(job)->beta, mean, vec_all(&r->x));
    vec_copy(&r->s, &mean_s, vec_all(&r->s));
    return OK;
}

/* One round: Eq. 2 with the centre of before, then Eq. 8. */
static int sync_round(struct ring *r, struct member *m, uint64_t tau)
{
    struct learner *l = m->learner;
    struct tally mine;
    int rc = strategy_local_steps(m, tau, &mine);
    if (rc != OK)
        return rc;
    vec_export(&l->x, vec_all(&l->x), r->lane->input.at);
    vec_export(&l->s, vec_all(&l->s), r->lane->input.at + l->x.n);
    rc = exchange_run(r->lane, &mine);
    if (rc == OK && r->lane->mine.weight > 0)
        vec_penalise(&l->x, settings(m->job)->alpha, &r->x, vec_all(&l->x));
    else if (rc == OK)
        rc = begin_afresh(m, &r->both);
    return rc == OK ? move_centre(r, m->job) : rc;
}

static int sync_worker(struct member *m)
{
    struct learner *l = m->learner;
    struct ring *r = arena_new(m->arena, struct ring);
    int rc =
        r ? ring_init(r, &m->lanes, m->group, m->job, &l->x, &l->s, m->course.exchanges, m->arena)
          : ERR_NOMEM;
    if (rc == OK) {
        m->joint.x = &r->x;
        m->joint.s = &r->s;
    }
    size_t records = l->corpus->set[SET_TRAIN].count;
    while (rc == OK && !strategy_done(m->job, &m->course, records)) {
        uint64_t tau = strategy_round(m->job, &m->course, records, settings(m->job)->tau);
        rc = sync_round(r, m, tau);
        if (rc != OK)
            break;
        strategy_advance(&m->course, tau, job_step_records(m->job), exchange_tally(r->lane));
        l->steps = m->course.steps; /* who has begun afresh has taken fewer */
        rc = m->committed(m, r->lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static int sync_driver(struct leader *l)
{
    struct ring r;
    int rc =
        ring_init(&r, &l->lanes, l->group, l->job, &l->x, &l->s, l->course.exchanges, l->arena);
    while (rc == OK && !strategy_done(l->job, &l->course, l->records)) {
        uint64_t tau = strategy_round(l->job, &l->course, l->records, settings(l->job)->tau);
        rc = exchange_run(r.lane, &(struct tally){.hash_min = UINT64_MAX});
        if (rc == OK)
            rc = move_centre(&r, l->job);
        if (rc != OK)
            break;
        vec_copy(&l->x, &r.x, vec_all(&r.x));
        vec_copy(&l->s, &r.s, vec_all(&r.s));
        strategy_advance(&l->course, tau, job_step_records(l->job), exchange_tally(r.lane));
        rc = l->committed(l, r.lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static int easgd_worker(struct member *m)
{
    return easgd_runs_free(m->job) ? async_worker(m) : sync_worker(m);
}

static int easgd_driver(struct leader *l)
{
    return easgd_runs_free(l->job) ? centre_run(l) : sync_driver(l);
}

const struct strategy_ops strategy_easgd = {
    .name = "easgd",
    .runs_free = easgd_runs_free,
    .round = easgd_round,
    .joinable = strategy_always,
    .joins_bare = easgd_runs_free,
    .worker = easgd_worker,
    .close = easgd_close,
    .leads = strategy_always,
    .driver = easgd_driver,
};
