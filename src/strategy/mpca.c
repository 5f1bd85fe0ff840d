/* `mpca`: multi-phase coordinated asynchronous SGD (MPCA §4). The model is cut into shards, each
 * exchanged in a lane of its own; while one is reduced, another is prepared and a third broadcast.
 * Workers train meanwhile, each at its own pace; a penalty holds them to the global model:
 *
 *     a worker, every step                                  symbols are those of mpca_rules.h
 *         x ← x − α(x − x̃*)             Eq. 7 (displace)
 *         g = ∇ℓ(x)                     + α(x − x̃*), Eq. 6 (gradient)
 *         x ← the optimizer's step
 *         τ_s ← τ_s + 1                 of each shard s
 *
 *     shard s, exchange after exchange                      c of them are complete
 *         R  = Σ τ_s·x_s / Σ τ_s        Eq. 9; τ_s is counted from 0 again
 *         x̃ ← (1 − β_c)x̃ + β_c·R        Eq. 8
 *         ṽ ← δṽ + (1 − δ)·(change of x̃)  Eq. 4
 *         x̃* = x̃ + γ_c·ṽ                Eq. 5, sent to all
 *
 * Training stops only to copy a shard: at the last step boundary before the shard's turn, which the
 * measured pace of ticks and steps predicts (ours; the paper interrupts workers at the turn). If
 * the turn of a lane comes before its copy, the lane waits for two typical steps of all workers,
 * and then takes part with weight 0. */
#include "strategy/mpca.h"
#include "world/trace.h"

struct worker {
    struct mpca_node node;
    struct vec both;     /* x̃*, then s̃, as adopted; */
    struct vec star, s;  /* its two parts */
    struct vec joint, v; /* x̃ and ṽ of that moment, if the driver does not have them */
    struct vec scratch;  /* for Eq. 6 */
    struct mpca_pace steps;
    /* Of checks of the links: when one was requested, in which view, and the cycle before it. */
    int64_t checked_at;
    uint32_t checked_in;
    uint64_t checked_cycle;
};

static const Paceline__Mpca *settings_of(const Paceline__Job *job)
{
    return job->strategy->mpca;
}

static bool driver_hosts(const Paceline__Job *job)
{
    return settings_of(job)->coordination == PACELINE__MPCA__COORDINATION__driver;
}

/* After a restart each lane continues with its number, and so with its schedules. */
static uint64_t completed_exchanges(const Paceline__Job *job, const struct progress *start)
{
    return start->exchanges / settings_of(job)->shards;
}

/* ---- a worker: what goes out ---- */

/* Is the turn expected before the next step boundary, or shortly after? */
static bool is_due(const struct worker *w, const struct mpca_lane *lane)
{
    const struct mpca_node *node = &w->node;
    int state = atomic_load(&lane->slot.state);
    int64_t tick = atomic_load(&node->tick_ns), step = atomic_load(&node->step_ns);
    if (lane->tau == 0 || state == SLOT_READY)
        return false;
    if (state == SLOT_REQUESTED || tick == 0 || group_is_leaf(node->group))
        return state == SLOT_REQUESTED;
    int64_t ticks = (int64_t)(atomic_load(&lane->slot.turn) - atomic_load(&node->tick));
    int64_t turn = atomic_load(&node->tick_at) + ticks * tick;
    return turn < world_now(node->world) + step + step / 2 + tick / 8;
}

/* Training stands still while a shard is copied out or in. */
static int copy_result(const struct mpca_lane *lane, uint64_t exchange)
{
    struct world *world = lane->node->world;
    size_t bytes = lane->exchange.n_floats * sizeof(float);
    int64_t begun = trace_now(world);
    int rc = world_copied(world, bytes);
    trace_end(
        world, begun,
        (struct trace_span){.kind = SPAN_COPY, .row = TRACE_STEPS, .n = exchange, .amount = bytes});
    return rc;
}

static int add_contribution(struct mpca_lane *lane, const struct learner *l)
{
    struct mpca_slot *slot = &lane->slot;
    int rc = copy_result(lane, atomic_load(&slot->turn) / lane->node->lanes + 1);
    vec_export(&l->both, mpca_range(lane), slot->x.at);
    slot->tau = lane->tau;
    lane->tau = 0;
    atomic_store(&slot->state, SLOT_READY);
    world_raise(lane->node->world, SIGNAL_MPCA);
    return rc;
}

/* ---- a worker: what comes in ---- */

/* The lane continues to the next exchange while this one's result is copied, not beyond it. */
static uint64_t begin_reading(struct mpca_lane *lane)
{
    uint64_t n;
    do {
        n = atomic_load(&lane->arrived);
        atomic_store(&lane->reading, (n & 1) + 1);
    } while (atomic_load(&lane->arrived) != n);
    return n;
}

/* `heading`: ṽ, then γ; x̃ is computed when it is read. */
static int keep_heading(struct worker *w, struct mpca_lane *lane, const float *heading)
{
    if (w->v.n == 0)
        return OK;
    vec_import(&w->v, lane->r, heading);
    lane->gamma = heading[lane->r.len];
    return world_copied(w->node.world, lane->r.len * sizeof(float));
}

/* Copies of the model are of x̃ = x̃* − γ·ṽ (Eq. 5). */
static void compute_joint(struct member *m)
{
    struct worker *w = m->own;
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        const struct mpca_lane *lane = &w->node.lane[i];
        vec_copy(&w->joint, &w->star, lane->r);
        vec_axpy(&w->joint, -lane->gamma, &w->v, lane->r);
    }
}

static void record_adoption(struct worker *w, struct mpca_lane *lane, uint64_t n)
{
    int64_t now = world_now(w->node.world);
    mpca_pace_record(&lane->cycles, now - lane->adopted_at);
    lane->adopted_at = now;
    lane->c = n;
}

static bool is_new(const struct mpca_lane *lane, uint64_t n)
{
    return n != MPCA_NONE && (n > lane->c || lane->c == MPCA_NONE);
}

static int adopt_result(struct worker *w, struct mpca_lane *lane)
{
    struct world *world = w->node.world;
    if (!is_new(lane, atomic_load(&lane->arrived)))
        return OK;
    uint64_t n = begin_reading(lane);
    bool adopts = is_new(lane, n); /* the lane may have withheld it meanwhile */
    int rc = OK;
    if (adopts) {
        const struct vec *result = &lane->exchange.result[n & 1];
        vec_import(&w->both, mpca_range(lane), result->at);
        rc = keep_heading(w, lane, lane->heading[n & 1].at);
    }
    atomic_store(&lane->reading, 0);
    world_raise(world, SIGNAL_MPCA);
    if (!adopts)
        return OK;
    record_adoption(w, lane, n);
    return rc == OK ? copy_result(lane, n) : rc;
}

static int adopt_all(struct worker *w)
{
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++)
        rc = adopt_result(w, &w->node.lane[i]);
    return rc;
}

/* `adopt: rotation` adopts new results when training is interrupted anyway (MPCA §5.2). */
static int between_steps(struct worker *w, const struct member *m)
{
    bool interrupted = settings_of(m->job)->adopt == PACELINE__MPCA__ADOPT__arrival;
    int rc = mpca_node_status(&w->node);
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++) {
        struct mpca_lane *lane = &w->node.lane[i];
        lane->tau += atomic_exchange(&lane->slot.returned, 0);
        if (!is_due(w, lane))
            continue;
        interrupted = true;
        rc = add_contribution(lane, m->learner);
    }
    return rc == OK && interrupted ? adopt_all(w) : rc;
}

/* ---- a worker: a step ---- */

/* α of the shard now; none towards an x̃* that is out of date. */
static float alpha_of(struct worker *w, struct mpca_lane *lane)
{
    int64_t since = world_now(w->node.world) - lane->adopted_at;
    bool stale = mpca_stale(&w->node.config, since, mpca_pace_median(&lane->cycles));
    if (stale && !lane->stale)
        log_warn(w->node.group->log,
                 "shard %u: no new global model for %.3f s; this worker trains without the penalty "
                 "until one arrives",
                 lane->exchange.lane, world_seconds(since));
    lane->stale = stale;
    return stale ? 0 : mpca_alpha(&w->node.config, lane->c);
}

static void displace_model(struct worker *w, struct learner *l)
{
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        struct mpca_lane *lane = &w->node.lane[i];
        mpca_displace(&l->x, &w->star, alpha_of(w, lane), lane->r);
    }
}

static void tilt_gradient(struct worker *w, struct learner *l)
{
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        struct mpca_lane *lane = &w->node.lane[i];
        mpca_tilt(&l->dx, &l->x, &w->star, alpha_of(w, lane), lane->r, &w->scratch);
    }
}

/* A model that is no longer finite starts over from the global one; its pending contribution is
 * dropped. */
static int reset_node(struct worker *w, struct learner *l)
{
    if (!vec_finite(&w->star, vec_all(&w->star)))
        return ERR_DIVERGED;
    vec_copy(&l->both, &w->both, vec_all(&l->both));
    optim_reset(&l->optim);
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].tau = 0;
    return OK;
}

static int take_step(struct worker *w, struct member *m)
{
    struct learner *l = m->learner;
    bool tilts = settings_of(m->job)->penalty == PACELINE__MPCA__PENALTY__gradient;
    uint64_t offset = strategy_async_offset(m);
    int64_t start = world_now(m->world);
    if (!tilts)
        displace_model(w, l);
    int rc = learner_gradient(l, offset, job_step_records(m->job));
    if (rc == ERR_DIVERGED)
        return reset_node(w, l);
    if (rc != OK)
        return rc;
    if (tilts)
        tilt_gradient(w, l);
    learner_update(l, offset);
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].tau++;
    mpca_pace_record(&w->steps, world_now(m->world) - start);
    atomic_store(&w->node.step_ns, mpca_pace_median(&w->steps));
    return OK;
}

/* Does this worker report for all? The lowest participant does. */
static bool speaks_for_all(const struct member *m)
{
    const struct members participants = view_participants(group_view(m->group));
    return members_next(&participants, 0) == m->world->self;
}

/* One member reports the exchanges that all have completed. */
static int report_progress(struct worker *w, struct member *m)
{
    const struct view *view = group_view(m->group);
    bool speaks = speaks_for_all(m);
    int rc = OK;
    m->progress.sharers = view_participants(view);
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++) {
        struct mpca_lane *lane = &w->node.lane[i];
        uint64_t arrived = atomic_load(&lane->arrived), from = atomic_load(&lane->report_from);
        if (lane->reported < from)
            lane->reported = from;
        if (arrived == MPCA_NONE || arrived < lane->reported)
            continue;
        if (!speaks || arrived - lane->reported >= MPCA_COSTS)
            lane->reported = arrived;
        while (rc == OK && lane->reported < arrived) {
            m->progress.exchanges = lane->reported++;
            rc = m->on_exchange(m, i, &lane->cost[lane->reported % MPCA_COSTS]);
        }
    }
    return rc;
}

/* A host that is busy may let its listener wait for so long, and is no leaf. */
#define GRACE_MIN (WORLD_SECOND / 40)

/* A tick is overdue after twice its usual time and two typical steps: a member stands still, or its
 * link is slow. One member asks for a check once a cycle as well: a link that was slow from the
 * beginning makes no tick overdue. */
static int check_pace(struct worker *w, const struct member *m)
{
    struct mpca_node *node = &w->node;
    const struct view *view = group_view(m->group);
    int64_t now = world_now(m->world), begun = atomic_load(&node->tick_at),
            tick = atomic_load(&node->tick_ns), grace = 2 * atomic_load(&node->typical_ns);
    uint64_t cycle = atomic_load(&node->lane[0].arrived);
    if (view->number != w->checked_in) {
        w->checked_in = view->number;
        w->checked_at = now;
    }
    begun = begun > w->checked_at ? begun : w->checked_at;
    bool overdue = tick > 0 && now - begun > 2 * tick + grace;
    bool cyclic = cycle != MPCA_NONE && cycle > w->checked_cycle && speaks_for_all(m);
    if (grace == 0 || group_is_leaf(m->group) || !(overdue || cyclic))
        return OK;
    w->checked_at = now;
    w->checked_cycle = cycle;
    return group_check_links(m->group, grace > GRACE_MIN ? grace : GRACE_MIN);
}

/* ---- a worker: all of it ---- */

static bool has_adopted_all(const struct mpca_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= node->lane[i].c != MPCA_NONE;
    return all;
}

/* A joiner of a run under way trains from x̃*, when its lanes have received all of it. Meanwhile
 * they take part with weight 0. */
static int join_lanes(struct worker *w, struct member *m)
{
    struct learner *l = m->learner;
    atomic_store(&m->group->work.busy, false);
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(m->world, SIGNAL_MPCA),
            wait_signal(m->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = mpca_node_status(&w->node);
        if (rc == OK && atomic_load(&m->group->end.over))
            rc = ERR_DRIVER;
        if (rc == OK)
            rc = adopt_all(w);
        if (rc == OK && has_adopted_all(&w->node))
            break;
        if (rc == OK)
            rc = world_wait(m->world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    atomic_store(&m->group->work.busy, true);
    vec_copy(&l->both, &w->both, vec_all(&l->both));
    return group_joined(m->group); /* from now on it may be a leaf */
}

static int worker_init(struct worker *w, struct member *m)
{
    struct learner *l = m->learner;
    bool tilts = settings_of(m->job)->penalty == PACELINE__MPCA__PENALTY__gradient;
    w->node.world = m->world;
    w->node.group = m->group;
    w->node.joins = m->join_state != NULL;
    w->node.v = m->resumed;
    w->node.threads = l->step_seconds > 0 ? 0 : 1; /* tasks of a simulation share theirs */
    int rc = mpca_node_init(&w->node, m->job, &l->x, &l->s, completed_exchanges(m->job, &m->start),
                            m->arena);
    if (rc != OK || vec_init_model(&w->both, &w->star, &w->s, m->arena, l->x.n, l->s.n) != OK ||
        vec_init(&w->joint, m->arena, driver_hosts(m->job) ? 0 : l->x.n) != OK ||
        vec_init(&w->v, m->arena, w->joint.n) != OK ||
        vec_init(&w->scratch, m->arena, tilts ? l->x.n : 0) != OK)
        return ERR_NOMEM;
    vec_copy(&w->both, &l->both, vec_all(&w->both));
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].adopted_at = world_now(m->world);
    m->model = (struct global_model){.x = &w->star, .s = &w->s};
    if (w->joint.n > 0) {
        m->model = (struct global_model){.x = &w->joint, .s = &w->s, .extra = &w->v};
        m->compute_model = compute_joint;
    }
    if (m->resumed)
        vec_copy(&w->v, m->resumed, vec_all(&w->v));
    rc = mpca_node_start(&w->node);
    return rc == OK && w->node.joins ? join_lanes(w, m) : rc;
}

static int mpca_worker(struct member *m)
{
    struct worker *w = arena_new(m->arena, struct worker);
    m->own = w;
    int rc = w ? worker_init(w, m) : ERR_NOMEM;
    while (rc == OK) {
        rc = between_steps(w, m);
        if (rc == OK)
            rc = take_step(w, m);
        if (rc == OK)
            rc = strategy_async_stepped(m);
        if (rc == OK)
            rc = report_progress(w, m);
        if (rc == OK)
            rc = check_pace(w, m);
    }
    if (w) {
        atomic_store(&w->node.stopped, true);
        world_raise(m->world, SIGNAL_MPCA);
    }
    return rc == ERR_STOP ? OK : rc;
}

static void mpca_close(struct member *m)
{
    struct worker *w = m->own;
    if (w)
        mpca_node_close(&w->node);
}

static int mpca_gather(struct member *m)
{
    return adopt_all(m->own);
}

/* ---- the driver ---- */

static bool all_joined(const struct mpca_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= atomic_load(&node->lane[i].arrived) != MPCA_NONE;
    return all;
}

/* Lanes reduce, prepare and broadcast; this function updates the global model. On a recovered
 * driver each lane's task writes its shard of it when it enters; until all have, the model is
 * neither copied nor final. ERR_PEER: no worker is left that has it */
static int follow_model(struct mpca_node *node, struct driver_part *l)
{
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(l->world, SIGNAL_MPCA),
            wait_signal(l->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = mpca_node_status(node);
        bool joined = all_joined(node);
        if (rc == OK && !joined && group_view(l->group)->count == 0)
            rc = ERR_PEER;
        for (uint32_t i = 0; rc == OK && joined && i < node->lanes; i++) {
            if (!atomic_load(&node->lane[i].prepared))
                continue;
            mpca_lane_commit(&node->lane[i]);
            rc = l->on_commit(l, NULL);
        }
        if (rc != OK || (joined && atomic_load(&l->finish)))
            return rc;
        rc = world_wait(l->world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

static int mpca_driver(struct driver_part *l)
{
    struct mpca_node *node = arena_new(l->arena, struct mpca_node);
    if (!node)
        return ERR_NOMEM;
    struct vec *v = arena_new(l->arena, struct vec);
    if (!v || vec_init(v, l->arena, l->x.n) != OK)
        return ERR_NOMEM;
    if (l->resumed.extra)
        vec_copy(v, l->resumed.extra, vec_all(v));
    l->model.extra = node->v = v;
    node->world = l->world;
    node->group = l->group;
    node->joins = l->lanes.needs_sync;
    int rc = mpca_node_init(node, l->job, &l->x, &l->s, completed_exchanges(l->job, &l->progress),
                            l->arena);
    if (rc == OK)
        rc = mpca_node_start(node);
    if (rc == OK)
        rc = follow_model(node, l);
    mpca_node_close(node);
    return rc;
}

static int mpca_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err)
{
    if (job->collective && job->collective->algorithm != PACELINE__COLLECTIVE__ALGORITHM__auto)
        return err_set(err, ERR_UNSUPPORTED,
                       "collective.algorithm: mpca has its own reduce and broadcast");
    traits->is_async = true;
    traits->takes_leases = true;
    traits->driver_part = driver_hosts(job);
    traits->joinable = true;
    traits->join_needs_no_model = true;
    traits->round = 1;
    return OK;
}

const struct strategy_ops strategy_mpca = {
    .name = "mpca",
    .configure = mpca_configure,
    .worker = mpca_worker,
    .close = mpca_close,
    .collect_model = mpca_gather,
    .extras = 1,
    .extra_name = {"joint_direction"},
    .driver = mpca_driver,
};
