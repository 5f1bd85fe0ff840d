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
 * weights: the driver adds α(s − s̃); workers keep their own s. Memory: three vectors on a worker,
 * from which a recovered driver takes the newest x̃ (centre.h); on the driver x̃, and one vector a
 * worker. While the driver recovers, each worker trains on until its next visit. Workers send
 * updates again that were added after the newest x̃ that any worker has fetched. A joiner of a run
 * under way begins with its donor's x, since the driver's link is busy and links between members
 * are free.
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
 * `momentum` (EAMSGD) is Nesterov's, in each worker's own optimizer, which the job's check
 * enforces.
 *
 * The global model is x̃, without the steps since a worker's last visit. */
#include "base/fault.h"
#include "strategy/async_sender.h"
#include "strategy/centre.h"
#include "world/trace.h"

#include <inttypes.h>
#include <math.h>

enum easgd_signal { SIGNAL_UPDATE = STRATEGY_SIGNAL_FIRST, SIGNAL_GIVEN };

static const Paceline__Easgd *settings_of(const Paceline__Job *job)
{
    return job->strategy->easgd;
}

static bool easgd_is_async(const Paceline__Job *job)
{
    return settings_of(job)->mode == PACELINE__EASGD__MODE__async;
}

/* α with K workers (MPCA §3.2). */
static float alpha_of(const Paceline__Job *job, size_t workers)
{
    const Paceline__Easgd *set = settings_of(job);
    PL_ASSERT(workers > 0);
    return set->has_alpha ? set->alpha : 0.9f / (float)workers;
}

/* A model that is not finite any more has nothing to give: its worker starts over. */
static int reset_worker(struct member *m, const struct vec *centre)
{
    struct learner *l = m->learner;
    struct vec x = centre_x(centre, l->x.n), s = centre_s(centre, l->x.n);
    if (!vec_finite(centre, vec_all(centre)))
        return ERR_DIVERGED;
    log_warn(m->group->log, "worker %u, step %" PRIu64 ": loss %g; it starts over from the centre",
             m->world->self, l->steps, l->loss);
    vec_copy(&l->x, &x, vec_all(&x));
    vec_copy(&l->s, &s, vec_all(&s));
    optim_reset(&l->optim);
    return OK;
}

/* ---- async: a worker ---- */

struct centre_client {
    struct member *m;
    struct transfers receiver;
    struct transfer request, fetched;
    struct async_sender sender; /* sends d while training continues; or an offer */
    struct async_part part;
    uint8_t message[CENTRE_MESSAGE];
    struct vec centre;         /* x̃ and s̃ as fetched last, */
    struct centre_message is;  /* the header of that centre */
    struct vec landing;        /* receives the next centre; separate, since `centre` may be the
                                  only copy left */
    struct vec d;              /* the last that was given */
    bool has_centre;           /* false: a joiner before its first fetch */
    uint64_t given;            /* so many */
    uint32_t incarnation;      /* of the driver that is dealt with */
    bool offered;              /* to a recovered driver, whose centre has not been fetched yet */
    struct task *lingering;    /* after its loop has ended, this task serves a recovered driver */
    double download_s, step_s; /* the shortest so far */
    uint64_t tau;
};

static int centre_client_init(struct centre_client *v, struct member *m)
{
    struct learner *l = m->learner;
    size_t n = l->x.n + l->s.n;
    v->m = m;
    v->incarnation = group_first_view(m->group)->incarnation;
    transfers_init(&v->receiver, m->world, m->group, CENTRE_LANE_VISIT);
    v->receiver.chunk = strategy_chunk(m->job);
    v->tau = settings_of(m->job)->tau;
    if (vec_init(&v->centre, m->arena, n) != OK || vec_init(&v->landing, m->arena, n) != OK ||
        vec_init(&v->d, m->arena, n) != OK)
        return ERR_NOMEM;
    v->has_centre = !m->join_state;
    if (v->has_centre) { /* the driver began with the same */
        struct vec x = centre_x(&v->centre, l->x.n), s = centre_s(&v->centre, l->x.n);
        vec_copy(&x, &l->x, vec_all(&x));
        vec_copy(&s, &l->s, vec_all(&s));
    }
    return async_sender_start(&v->sender, m, &v->part, 1, CENTRE_LANE_UPDATE, SIGNAL_UPDATE,
                              SIGNAL_GIVEN);
}

/* ---- the driver goes and comes ---- */

/* Wait until the sender's transfer has ended, or its driver is lost: the next centre shows whether
 * an update has arrived. */
static int await_sender(struct centre_client *v)
{
    return async_sender_wait(&v->sender, WORLD_FOREVER);
}

static void start_transfer(struct centre_client *v, const struct centre_message *message,
                           const struct vec *what)
{
    v->part.what = (struct transfer_out){.to = WORLD_DRIVER,
                                         .lane = CENTRE_LANE_VISIT,
                                         .x = what ? what->at : NULL,
                                         .n = what ? what->n : 0,
                                         .header = v->message,
                                         .header_len = centre_message_encode(message, v->message)};
    async_sender_send(&v->sender);
}

static bool is_another(const struct centre_client *v)
{
    return group_view(v->m->group)->incarnation != v->incarnation;
}

/* If another driver has taken over, offer it the centre: this worker's copy may be the newest. */
static int look_up(struct centre_client *v)
{
    struct centre_message offer = v->is;
    if (atomic_load(&v->m->group->end.over))
        return ERR_DRIVER;
    if (!is_another(v))
        return OK;
    int rc = await_sender(v);
    if (rc != OK)
        return rc;
    v->incarnation = group_view(v->m->group)->incarnation;
    v->offered = true;
    offer.op = CENTRE_OFFER;
    offer.number = v->given;
    start_transfer(v, &offer, v->has_centre ? &v->centre : NULL);
    return OK;
}

/* Wait for a view of another driver. ERR_DRIVER: there is none */
static int await_another(struct centre_client *v)
{
    for (;;) {
        const struct wait_for change = wait_signal(v->m->world, SIGNAL_GROUP);
        if (atomic_load(&v->m->group->end.over))
            return ERR_DRIVER;
        if (is_another(v))
            return OK;
        struct wake wake;
        int rc = world_wait(v->m->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

/* ---- the centre is fetched ---- */

static void take_reply(struct centre_client *v, struct message *m)
{
    struct centre_message message;
    bool fits = centre_message_decode(transfer_header_reader(m), &message) == OK &&
                message.op == CENTRE_MODEL;
    if (!fits || v->fetched.all || m->from != WORLD_DRIVER) {
        transfer_refuse(&v->receiver, m);
        return;
    }
    transfer_accept(&v->fetched, &v->receiver, m,
                    &(struct transfer_in){.x = v->landing.at, .n = v->landing.n});
}

static void end_transfer(struct centre_client *v)
{
    struct vec before = v->centre;
    v->centre = v->landing;
    v->landing = before;
    (void)centre_message_decode(transfer_reader(&v->fetched), &v->is);
    v->has_centre = true;
}

/* Send a header without a vector, which the driver refuses; its reply is the centre. ERR_PEER: that
 * driver is lost */
static int request_centre(struct centre_client *v)
{
    const struct centre_message request = {.op = CENTRE_REQUEST, .number = v->incarnation};
    uint8_t bytes[CENTRE_MESSAGE];
    int rc = OK;
    bool here = false;
    transfer_send(&v->request, &v->receiver,
                  &(struct transfer_out){.to = WORLD_DRIVER,
                                         .lane = CENTRE_LANE_VISIT,
                                         .header = bytes,
                                         .header_len = centre_message_encode(&request, bytes)});
    while (rc == OK && !here) {
        struct transfer_wake got;
        const struct wait_for change = wait_signal(v->m->world, SIGNAL_GROUP);
        rc = v->lingering ? OK : v->m->on_step_boundary(v->m); /* x stays as it is meanwhile */
        if (rc == OK && atomic_load(&v->m->group->end.over))
            rc = ERR_DRIVER;
        else if (rc == OK && is_another(v))
            rc = ERR_PEER;
        else if (rc == OK)
            rc = transfers_next(&v->receiver, &change, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            take_reply(v, got.header);
        else if (rc == OK && got.ended)
            rc = got.ended->status == ERR_STOP && got.ended == &v->request ? OK : got.ended->status;
        here = rc == OK && got.ended == &v->fetched;
    }
    transfer_cancel(&v->request); /* the refusal may still be under way */
    transfer_cancel(&v->fetched);
    if (here)
        end_transfer(v);
    return rc;
}

static int fetch_centre(struct centre_client *v)
{
    for (;;) {
        int rc = look_up(v);
        if (rc == OK)
            rc = request_centre(v);
        if (rc != ERR_PEER && rc != ERR_STOP)
            return rc;
        rc = await_another(v);
        if (rc != OK)
            return rc;
    }
}

static bool lacks_the_last(const struct centre_client *v)
{
    return members_has(&v->is.parity, v->m->world->self) != (v->given & 1);
}

static void give_update(struct centre_client *v)
{
    start_transfer(v, &(struct centre_message){.op = CENTRE_UPDATE, .number = v->given}, &v->d);
}

/* Fetch a centre with all updates of this worker. A recovered centre may lack the last one, which
 * is then sent again. */
static int fetch_whole(struct centre_client *v)
{
    int rc = await_sender(v);
    if (rc == OK)
        rc = fetch_centre(v);
    while (rc == OK && lacks_the_last(v)) {
        log_info(v->m->group->log, "worker %u sends again an update that the centre lacks",
                 v->m->world->self);
        rc = await_sender(v);
        if (rc == OK)
            give_update(v);
        if (rc == OK)
            rc = await_sender(v);
        if (rc == OK)
            rc = fetch_centre(v);
    }
    v->offered &= rc != OK;
    return rc;
}

/* Waits until all updates have been sent, and a recovered driver lacks none of them. */
static int leave_nothing(struct centre_client *v)
{
    return v->offered ? fetch_whole(v) : await_sender(v);
}

/* Wait for x̃, and, if the link is so slow that τ steps were not enough, until the last d has been
 * sent. The driver may serve others first, so only the driver's end limits the wait. */
static int await_centre(struct centre_client *v, struct member *m, struct exchange_cost *cost)
{
    int64_t start = world_now(m->world);
    atomic_store(&m->group->work.busy, false);
    int rc = await_sender(v);
    int64_t requested = world_now(m->world);
    if (rc == OK)
        rc = fetch_whole(v);
    atomic_store(&m->group->work.busy, true);
    double seconds = world_seconds(world_now(m->world) - requested);
    if (v->download_s == 0 || seconds < v->download_s)
        v->download_s = seconds;
    cost->waited_s = cost->seconds = world_seconds(world_now(m->world) - start);
    cost->waited_for = WORLD_DRIVER;
    cost->bytes = 2 * v->centre.n * sizeof(float);
    trace_end(m->world, start,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_DRIVER,
                                  .n = m->progress.exchanges + 1});
    return rc;
}

/* Eq. 2, and d as it is sent. */
static void pull_to_centre(struct centre_client *v, struct learner *l, float alpha)
{
    struct vec x = centre_x(&v->d, l->x.n), s = centre_s(&v->d, l->x.n);
    vec_copy(&x, &l->x, vec_all(&x));
    vec_copy(&s, &l->s, vec_all(&s));
    vec_axpy(&v->d, -1.0f, &v->centre, vec_all(&v->d));
    vec_scale(&v->d, alpha, vec_all(&v->d));
    vec_axpy(&l->x, -1.0f, &x, vec_all(&x));
}

static int visit_centre(struct centre_client *v, struct member *m, bool diverged)
{
    struct exchange_cost cost = {0};
    int rc = await_centre(v, m, &cost);
    if (rc == OK)
        rc = world_copied(m->world, v->d.n * sizeof(float));
    if (rc == OK && diverged) {
        rc = reset_worker(m, &v->centre);
    } else if (rc == OK) {
        rc = await_sender(v); /* d is about to change; at most an offer is under way */
        pull_to_centre(v, m->learner, alpha_of(m->job, group_view(m->group)->count));
        v->given++;
        give_update(v);
    }
    return rc == OK ? m->on_exchange(m, 0, &cost) : rc;
}

/* `tau_auto`: τ = round(1.3·K·T_download / T_step) (MPCA §3.2), from the shortest time of each that
 * this worker has measured, so that the load of other workers on the link is not counted twice. */
static void choose_tau(struct centre_client *v, const struct member *m)
{
    if (!settings_of(m->job)->tau_auto || v->step_s <= 0)
        return;
    double workers = (double)group_view(m->group)->count;
    double tau = round(1.3 * workers * v->download_s / v->step_s);
    v->tau = tau < 1 ? 1 : tau < UINT32_MAX ? (uint64_t)tau : UINT32_MAX;
}

/* τ steps. A step with a loss that is not finite counts, or a run with only such steps would never
 * end. */
static int local_steps(struct centre_client *v, struct member *m, bool *diverged)
{
    int rc = OK;
    *diverged = false;
    for (uint64_t t = 0; rc == OK && !*diverged && t < v->tau; t++) {
        int64_t start = world_now(m->world);
        rc = learner_step(m->learner, strategy_async_offset(m), job_step_records(m->job));
        double seconds = world_seconds(world_now(m->world) - start);
        if (v->step_s == 0 || seconds < v->step_s)
            v->step_s = seconds;
        *diverged = rc == ERR_DIVERGED;
        if (rc == OK || *diverged)
            rc = strategy_async_stepped(m);
        if (rc == OK)
            rc = look_up(v);
    }
    return rc;
}

/* Waits until the last update has arrived, and offers the centre to a recovered driver. */
static int serve_offers(void *arg)
{
    struct centre_client *v = arg;
    int rc = OK;
    while (rc == OK) {
        rc = await_another(v);
        if (rc == OK)
            rc = fetch_whole(v);
    }
    return rc;
}

static int async_worker(struct member *m)
{
    struct centre_client *v = m->own = arena_new(m->arena, struct centre_client);
    if (!v)
        return ERR_NOMEM;
    int rc = centre_client_init(v, m);
    while (rc == OK) {
        bool diverged;
        rc = local_steps(v, m, &diverged);
        if (rc == OK)
            rc = visit_centre(v, m, diverged);
        choose_tau(v, m);
    }
    atomic_store(&m->group->work.busy, false);
    if (rc == ERR_STOP)
        rc = leave_nothing(v);
    return rc == OK ? world_spawn(m->world, "worker", serve_offers, v, &v->lingering) : rc;
}

static void easgd_close(struct member *m)
{
    struct centre_client *v = m->own;
    if (!v || !v->m)
        return;
    world_end_task(m->world, &v->lingering);
    transfers_close(&v->receiver);
    async_sender_stop(&v->sender);
}

/* ---- sync ---- */

/* Every node has the centre: all compute the same one from the same mean. */
struct ring {
    struct exchange *lane;
    struct vec both, x, s; /* x̃, then s̃; and its parts */
};

static int ring_init(struct ring *r, struct lanes *lanes, struct group *group,
                     const Paceline__Job *job, const struct vec *x, const struct vec *s,
                     uint64_t completed, struct arena *arena)
{
    struct exchange_config config = strategy_exchange_config(job);
    if (vec_init(&r->both, arena, x->n + s->n) != OK)
        return ERR_NOMEM;
    config.kept = r->both; /* for a driver that returns */
    r->x = centre_x(&r->both, x->n);
    r->s = centre_s(&r->both, x->n);
    vec_copy(&r->x, x, vec_all(x));
    vec_copy(&r->s, s, vec_all(s));
    return lanes_open(lanes, group, true, r->both.n, &config, completed, arena, &r->lane);
}

/* α of the exchange that has just completed: the same on all nodes, since its metadata is. */
static float committed_alpha(const struct ring *r, const Paceline__Job *job)
{
    return alpha_of(job, members_count(&exchange_result_meta(r->lane)->participants));
}

/* β of that exchange: α for each worker whose model is in the mean. */
static float committed_beta(const struct ring *r, const Paceline__Job *job)
{
    const Paceline__Easgd *set = settings_of(job);
    size_t workers = members_count(&exchange_result_meta(r->lane)->contributors);
    return set->has_beta ? set->beta : committed_alpha(r, job) * (float)workers;
}

/* Eq. 8; s̃ is the mean itself. */
static int move_centre(struct ring *r, const Paceline__Job *job)
{
    const struct vec *mean = exchange_result(r->lane);
    struct vec mean_s = centre_s(mean, r->x.n);
    if (exchange_result_meta(r->lane)->weight == 0)
        return ERR_DIVERGED;
    vec_lerp(&r->x, committed_beta(r, job), mean, vec_all(&r->x));
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
    vec_export(&l->x, vec_all(&l->x), r->lane->input.at);
    vec_export(&l->s, vec_all(&l->s), r->lane->input.at + l->x.n);
    rc = exchange_run(r->lane, &mine);
    if (rc == OK && r->lane->mine.weight > 0)
        vec_penalise(&l->x, committed_alpha(r, m->job), &r->x, vec_all(&l->x));
    else if (rc == OK)
        rc = reset_worker(m, &r->both);
    return rc == OK ? move_centre(r, m->job) : rc;
}

static int sync_worker(struct member *m)
{
    struct learner *l = m->learner;
    struct ring *r = arena_new(m->arena, struct ring);
    int rc =
        r ? ring_init(r, &m->lanes, m->group, m->job, &l->x, &l->s, m->progress.exchanges, m->arena)
          : ERR_NOMEM;
    if (rc == OK) {
        m->model.x = &r->x;
        m->model.s = &r->s;
    }
    size_t records = l->corpus->set[SET_TRAIN].count;
    while (rc == OK && !strategy_done(m->job, &m->progress, records)) {
        uint64_t tau = strategy_round(m->job, &m->progress, records, settings_of(m->job)->tau);
        rc = sync_round(r, m, tau);
        if (rc != OK)
            break;
        strategy_advance(&m->progress, tau, job_step_records(m->job),
                         exchange_result_meta(r->lane));
        l->steps = m->progress.steps; /* a worker that started over has taken fewer */
        rc = m->on_commit(m, r->lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

/* The round that follows l->progress has been exchanged, and the centre moved. */
static int sync_commits(struct driver_part *l, struct ring *r)
{
    uint64_t tau = strategy_round(l->job, &l->progress, l->records, settings_of(l->job)->tau);
    vec_copy(&l->x, &r->x, vec_all(&r->x));
    vec_copy(&l->s, &r->s, vec_all(&r->s));
    strategy_advance(&l->progress, tau, job_step_records(l->job), exchange_result_meta(r->lane));
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
    vec_copy(&l->x, &r->x, vec_all(&r->x));
    vec_copy(&l->s, &r->s, vec_all(&r->s));
    return rc;
}

static int sync_driver(struct driver_part *l)
{
    struct ring r;
    int rc =
        ring_init(&r, &l->lanes, l->group, l->job, &l->x, &l->s, l->progress.exchanges, l->arena);
    if (rc == OK && l->lanes.needs_sync)
        rc = sync_takes_up(l, &r);
    while (rc == OK && !strategy_done(l->job, &l->progress, l->records)) {
        rc = exchange_run(r.lane, &(struct exchange_meta){.hash_min = UINT64_MAX});
        if (rc == OK)
            rc = move_centre(&r, l->job);
        if (rc == OK)
            rc = sync_commits(l, &r);
    }
    return rc == ERR_STOP ? OK : rc;
}

static int easgd_worker(struct member *m)
{
    return easgd_is_async(m->job) ? async_worker(m) : sync_worker(m);
}

static int easgd_driver(struct driver_part *l)
{
    return easgd_is_async(l->job) ? centre_run(l) : sync_driver(l);
}

static int easgd_configure(const Paceline__Job *job, struct strategy_traits *traits,
                           struct err *err)
{
    (void)err;
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
    .worker = easgd_worker,
    .close = easgd_close,
    .driver = easgd_driver,
};
