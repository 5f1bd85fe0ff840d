/* `mpca` and `pace`: the worker. Training stops only to copy a shard: at the last step boundary
 * before the shard's turn, which the measured pace of ticks and steps predicts (ours; the paper
 * interrupts workers at the turn). If the turn of a lane comes before its copy, the lane waits for
 * two typical steps of all workers, and then takes part with weight 0. */
#include "strategy/phased.h"
#include "world/trace.h"

/* ---- a worker: what goes out ---- */

/* Is the turn expected before the next step boundary, or shortly after? */
static bool is_due(const struct phased_worker *w, const struct phased_lane *lane)
{
    const struct phased_node *node = &w->node;
    int state = atomic_load(&lane->slot.state);
    int64_t tick = atomic_load(&node->tick_ns), step = atomic_load(&node->step_ns);
    if (lane->tau == 0 || lane->pending || state == SLOT_READY)
        return false;
    if (state == SLOT_REQUESTED || tick == 0 || group_is_leaf(node->group))
        return state == SLOT_REQUESTED;
    int64_t ticks = (int64_t)(atomic_load(&lane->slot.turn) - atomic_load(&node->tick));
    int64_t turn = atomic_load(&node->tick_at) + ticks * tick;
    return turn < world_now(node->world) + step + step / 2 + tick / 8;
}

/* Training has stood still since `begun`, while a shard was copied out or in. */
static int charge_copy(const struct phased_lane *lane, int64_t begun, uint64_t exchange,
                       uint32_t passes)
{
    struct world *world = lane->node->world;
    size_t bytes = passes * lane->exchange.n_floats * sizeof(float);
    int rc = world_copied(world, bytes);
    trace_copied(world, begun, TRACE_STEPS, exchange, bytes);
    return rc;
}

static int add_contribution(struct phased_worker *w, struct phased_lane *lane)
{
    const struct learner *l = w->m->learner;
    struct phased_slot *slot = &lane->slot;
    int64_t begun = trace_now(lane->node->world);
    vec_export(&l->both, phased_range(lane), slot->x.at);
    int rc = charge_copy(lane, begun, atomic_load(&slot->turn) / lane->node->lanes + 1,
                         w->node.settings.give_passes);
    slot->tau = lane->tau;
    slot->base = lane->c;
    slot->progress = false;
    lane->tau = 0;
    atomic_store(&slot->counted, PHASED_NONE);
    if (w->node.rule->give)
        w->node.rule->give(w, lane);
    atomic_store(&slot->state, SLOT_READY);
    world_raise(lane->node->world, SIGNAL_PHASED);
    return rc;
}

/* ---- a worker: what comes in ---- */

/* The lane waits with the exchange after the next one until this one's result is read. */
static uint64_t begin_reading(struct phased_lane *lane)
{
    uint64_t n;
    do {
        n = atomic_load(&lane->arrived);
        atomic_store(&lane->reading, (n & 1) + 1);
    } while (atomic_load(&lane->arrived) != n);
    return n;
}

static void end_reading(struct phased_lane *lane)
{
    atomic_store(&lane->reading, 0);
    world_raise(lane->node->world, SIGNAL_PHASED);
}

/* x̃ = x̃* − γ·ṽ (Eq. 5) of the newest result. While none may be adopted, ṽ is not known. */
static void compute_shard(struct phased_worker *w, struct phased_lane *lane)
{
    uint64_t n = begin_reading(lane);
    const struct vec *star = n == PHASED_NONE ? &lane->star : &lane->exchange.result[n & 1];
    const float *heading = lane->heading[n & 1].at;
    vec_import(&w->joint, lane->r, star->at);
    vec_import(&w->s, (struct range){0, lane->n_s}, star->at + lane->r.len);
    if (n == PHASED_NONE) {
        vec_fill(&w->v, lane->r, 0);
    } else {
        vec_import(&w->v, lane->r, heading);
        vec_axpy(&w->joint, -heading[lane->r.len + HEADING_GAMMA], &w->v, lane->r);
    }
    end_reading(lane);
}

/* For copies of the model. */
static void compute_joint(struct member *m)
{
    struct phased_worker *w = m->own;
    for (uint32_t i = 0; i < w->node.lanes; i++)
        compute_shard(w, &w->node.lane[i]);
}

/* Copies of the model may be wanted. ERR_NOMEM */
static int offer_copies(struct phased_worker *w)
{
    struct member *m = w->m;
    const struct learner *l = m->learner;
    if (vec_init(&w->joint, m->arena, l->x.n) != OK || vec_init(&w->v, m->arena, l->x.n) != OK ||
        vec_init(&w->s, m->arena, l->s.n) != OK)
        return ERR_NOMEM;
    m->model = (struct global_model){.x = &w->joint, .s = &w->s, .extra = &w->v};
    m->compute_model = compute_joint;
    return OK;
}

static bool is_new(const struct phased_lane *lane, uint64_t n)
{
    return n != PHASED_NONE && (n > lane->c || lane->c == PHASED_NONE);
}

static int adopt_result(struct phased_worker *w, struct phased_lane *lane)
{
    if (!is_new(lane, atomic_load(&lane->arrived)))
        return OK;
    int64_t begun = trace_now(lane->node->world);
    uint64_t n = begin_reading(lane);
    bool adopts = is_new(lane, n); /* the lane may have withheld it meanwhile */
    if (adopts) {
        struct vec result = lane->exchange.result[n & 1];
        w->node.rule->adopt(w, lane, n, &result);
        lane->star = result;
        lane->c = n;
        atomic_store(&lane->held, result.at);
    }
    end_reading(lane);
    uint32_t passes = w->node.settings.adopt_passes;
    return adopts && passes > 0 ? charge_copy(lane, begun, n, passes) : OK;
}

static int adopt_all(struct phased_worker *w)
{
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++)
        rc = adopt_result(w, &w->node.lane[i]);
    return rc;
}

/* Take back the steps of a contribution that did not count. */
static void take_back(struct phased_worker *w, struct phased_lane *lane)
{
    uint64_t returned = atomic_exchange(&lane->slot.returned, 0);
    lane->tau += returned;
    lane->pending &= returned == 0;
    if (lane->pending && atomic_load(&lane->slot.counted) == 0)
        w->node.rule->drop(w, lane);
}

/* A contribution is made from a model that has adopted what has arrived. `adopt: rotation` adopts
 * new results when training is interrupted anyway (MPCA §5.2). */
static int between_steps(struct phased_worker *w)
{
    bool interrupted = w->node.settings.on_arrival;
    int rc = phased_node_status(&w->node);
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        take_back(w, &w->node.lane[i]);
        interrupted |= is_due(w, &w->node.lane[i]);
    }
    if (rc == OK && interrupted)
        rc = adopt_all(w);
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++)
        if (is_due(w, &w->node.lane[i]))
            rc = add_contribution(w, &w->node.lane[i]);
    return rc;
}

/* ---- a worker: the end of training ---- */

/* The lane's last exchange waits for the steps since the last contribution. By then the result of
 * the exchange before has arrived, and says what became of that. */
static int give_rest(struct phased_worker *w, struct phased_lane *lane)
{
    struct phased_slot *slot = &lane->slot;
    if (!atomic_load(&slot->last))
        return OK;
    take_back(w, lane);
    int rc = adopt_result(w, lane);
    if (rc == OK && lane->tau > 0 && !lane->pending && atomic_load(&slot->state) != SLOT_READY)
        rc = add_contribution(w, lane);
    atomic_store(&slot->last, false);
    world_raise(w->node.world, SIGNAL_PHASED);
    return rc;
}

/* A lane that completes nothing for so long will not: others have ended in another way. */
static int64_t rest_deadline(struct phased_worker *w)
{
    const struct phased_node *node = &w->node;
    int64_t now = world_now(node->world), cycle = node->lanes * atomic_load(&node->tick_ns);
    uint64_t arrived = 0;
    for (uint32_t i = 0; i < node->lanes; i++)
        arrived += atomic_load(&node->lane[i].arrived);
    if (arrived != w->arrived || w->arrived_at == 0)
        w->arrived_at = now;
    w->arrived = arrived;
    return w->arrived_at + 10 * WORLD_SECOND + 4 * (cycle + atomic_load(&node->typical_ns));
}

static bool awaits_last(const struct phased_worker *w, struct member *m)
{
    struct group *group = m->group;
    return !phased_closed(&w->node) && !atomic_load(&group->end.over) && !group_is_leaf(group) &&
           !group_is_leaving(group);
}

/* Until the last exchange of each lane is complete. A worker that leaves does not wait for the
 * others, which train; and a leaf's steps would wait for its slow link. */
static int contribute_rest(struct phased_worker *w, struct member *m)
{
    struct phased_node *node = &w->node;
    while (awaits_last(w, m)) {
        const struct wait_for set[] = {
            wait_signal(m->world, SIGNAL_PHASED),
            wait_signal(m->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int64_t deadline = rest_deadline(w);
        int rc = phased_node_status(node);
        if (rc == OK)
            rc = adopt_all(w);
        for (uint32_t i = 0; rc == OK && i < node->lanes; i++)
            rc = give_rest(w, &node->lane[i]);
        if (rc == OK && awaits_last(w, m))
            rc = world_wait(m->world, set, 2, deadline, &wake);
        if (rc != OK)
            return rc == ERR_TIMEOUT ? OK : rc;
    }
    return OK;
}

/* ---- a worker: a step ---- */

/* The model becomes the global one, as adopted. */
static void take_global(struct phased_worker *w)
{
    struct learner *l = w->m->learner;
    for (uint32_t i = 0; i < w->node.lanes; i++)
        vec_import(&l->both, phased_range(&w->node.lane[i]), w->node.lane[i].star.at);
}

static bool global_is_finite(const struct phased_node *node)
{
    bool finite = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        finite &= vec_finite(&node->lane[i].star, (struct range){0, node->lane[i].r.len});
    return finite;
}

/* A model whose loss is not finite starts over from the global one, as if it had contributed that.
 * ERR_DIVERGED: the global one is not finite, or nor was its loss. */
static int start_over(struct phased_worker *w)
{
    struct learner *l = w->m->learner;
    if (w->restarted || !global_is_finite(&w->node))
        return ERR_DIVERGED;
    take_global(w);
    vec_copy(&w->own, &l->x, vec_all(&w->own));
    optim_reset(&l->optim);
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].tau = 0;
    w->restarted = true;
    return OK;
}

static int take_step(struct phased_worker *w)
{
    struct world *world = w->node.world;
    int64_t start = world_now(world);
    int rc = w->node.rule->step(w, strategy_async_share(w->m));
    if (rc == ERR_DIVERGED)
        return start_over(w);
    if (rc != OK)
        return rc;
    w->restarted = false;
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].tau++;
    mpca_times_record(&w->steps, world_now(world) - start);
    atomic_store(&w->node.step_ns, mpca_times_median(&w->steps));
    return OK;
}

/* Does this worker report for all? The lowest participant does. */
static bool speaks_for_all(const struct member *m)
{
    const struct members participants = view_participants(group_view(m->group));
    return members_next(&participants, 0) == m->world->self;
}

/* One member reports the exchanges that all have completed. */
static int report_progress(struct phased_worker *w, struct member *m)
{
    const struct view *view = group_view(m->group);
    bool speaks = speaks_for_all(m);
    int rc = OK;
    m->progress.sharers = view_participants(view);
    for (uint32_t i = 0; rc == OK && i < w->node.lanes; i++) {
        struct phased_lane *lane = &w->node.lane[i];
        uint64_t arrived = atomic_load(&lane->arrived), from = atomic_load(&lane->report_from);
        if (lane->reported < from)
            lane->reported = from;
        if (arrived == PHASED_NONE || arrived < lane->reported)
            continue;
        if (!speaks || arrived - lane->reported >= PHASED_COSTS)
            lane->reported = arrived;
        while (rc == OK && lane->reported < arrived) {
            m->progress.exchanges = lane->reported++;
            rc = m->on_exchange(m, i, &lane->cost[lane->reported % PHASED_COSTS]);
        }
    }
    return rc;
}

/* A host that is busy may let its listener wait for so long, and is no leaf. */
#define GRACE_MIN (WORLD_SECOND / 40)

/* A tick is overdue after twice its usual time and two typical steps: a member stands still, or its
 * link is slow. One member asks for a check once a cycle as well: a link that was slow from the
 * beginning makes no tick overdue. */
static int check_pace(struct phased_worker *w, const struct member *m)
{
    struct phased_node *node = &w->node;
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
    bool cyclic = cycle != PHASED_NONE && cycle > w->checked_cycle && speaks_for_all(m);
    if (grace == 0 || group_is_leaf(m->group) || !(overdue || cyclic))
        return OK;
    w->checked_at = now;
    w->checked_cycle = cycle;
    return group_check_links(m->group, grace > GRACE_MIN ? grace : GRACE_MIN);
}

/* ---- a worker: all of it ---- */

static bool has_adopted_all(const struct phased_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= node->lane[i].c != PHASED_NONE;
    return all;
}

/* A joiner of a run under way trains from x̃*, when its lanes have received all of it. Meanwhile
 * they take part with weight 0. */
static int join_lanes(struct phased_worker *w, struct member *m)
{
    atomic_store(&m->group->work.busy, false);
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(m->world, SIGNAL_PHASED),
            wait_signal(m->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = phased_node_status(&w->node);
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
    take_global(w);
    return group_joined(m->group, group_view(m->group)); /* from now on it may be a leaf */
}

static int worker_init(struct phased_worker *w, struct member *m)
{
    struct learner *l = m->learner;
    const struct phased_settings *set = &w->node.settings;
    w->m = m;
    w->node.world = m->world;
    w->node.group = m->group;
    w->node.joins = m->join_state != NULL;
    w->node.v = m->resumed;
    w->node.threads = l->step_seconds > 0 ? 0 : 1; /* tasks of a simulation share theirs */
    int rc = phased_node_init(&w->node, m->job, &l->x, &l->s, m->start.exchanges, m->arena);
    if (rc != OK || (set->symmetric && offer_copies(w) != OK) ||
        vec_init(&w->own, m->arena, set->own_vector ? l->x.n : 0) != OK)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < w->node.lanes; i++)
        w->node.lane[i].adopted_at = world_now(m->world);
    rc = phased_node_start(&w->node);
    if (rc == OK && w->node.joins)
        rc = join_lanes(w, m);
    return rc == OK ? m->on_begin(m) : rc;
}

int phased_worker(struct member *m)
{
    struct phased_worker *w = arena_new(m->arena, struct phased_worker);
    m->own = w;
    int rc = w ? worker_init(w, m) : ERR_NOMEM;
    while (rc == OK) {
        rc = between_steps(w);
        if (rc == OK)
            rc = take_step(w);
        if (w->node.settings.symmetric)
            m->owes = phased_owes(&w->node, m->checkpoint_due(m) && speaks_for_all(m));
        if (rc == OK)
            rc = strategy_async_stepped(m);
        if (rc == OK)
            rc = report_progress(w, m);
        if (rc == OK)
            rc = check_pace(w, m);
    }
    if (w) {
        atomic_store(&w->node.ended, true);
        world_raise(m->world, SIGNAL_PHASED);
    }
    if (rc == ERR_STOP) {
        atomic_store(&m->group->work.busy, false);
        rc = contribute_rest(w, m);
        atomic_store(&m->group->work.busy, true);
    }
    if (w) {
        atomic_store(&w->node.stopped, true);
        world_raise(m->world, SIGNAL_PHASED);
    }
    return rc;
}

void phased_close(struct member *m)
{
    struct phased_worker *w = m->own;
    if (w)
        phased_node_close(&w->node);
}

bool phased_last_model(struct member *m, uint64_t *version)
{
    struct phased_worker *w = m->own;
    *version = 0;
    if (!w || !w->node.lane || group_is_leaf(m->group))
        return false;
    phased_node_stop(&w->node); /* its lanes overwrite results no more */
    if (adopt_all(w) != OK || !has_adopted_all(&w->node))
        return false;
    for (uint32_t i = 0; i < w->node.lanes; i++)
        *version += w->node.lane[i].c;
    /* With `coordination: driver` only the driver has made copies until now. */
    return m->compute_model || offer_copies(w) == OK;
}

int phased_collect(struct member *m)
{
    return adopt_all(m->own);
}
