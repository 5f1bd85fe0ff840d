/* `gossip`: GoSGD (MPCA §2.1, [13]). There is no coordinator, and no worker ever waits. Each worker
 * trains its own model x, which has a weight w. After a step, with probability p, it sends half of
 * its weight and a copy of its model to some other member:
 *
 *     w ← w/2,  send (x, w)
 *
 * and the receiver of (x_m, w_m) mixes it in, between two steps, in the order of arrival:
 *
 *     x ← (w x + w_m x_m)/(w + w_m),  w ← w + w_m
 *
 * So Σ w is constant, to the last unit (gossip_sender.h), and mixing does not change Σ w x. The
 * state of layers is sent with x; optimizers stay with their workers. The weight of a worker that
 * dies or leaves is lost; a joiner has the weight of one worker, for the model that its donor has
 * sent. So the total is about one for each member, after any number of joins and leaves.
 *
 * Ours: the draws are a function of (seed, node, step). A worker whose model is no longer finite
 * sends nothing, and requests the models of others until one arrives; if no worker has a finite
 * model, the run ends. The global model is the weighted mean Σ w x / Σ w, collected when all have
 * ended; before that, the model of any member. After a restart from a checkpoint all begin with its
 * model and equal weights. */
#include "strategy/gossip_sender.h"

#include "base/rng.h"
#include "strategy/strategy.h"
#include "world/trace.h"

#include <inttypes.h>

enum { LANE_COLLECT = 1 };

enum { DRAW_WHETHER, DRAW_WHOM };

#define PATIENCE WORLD_SECOND       /* ns to wait for a requested model */
#define GLANCE   (WORLD_SECOND / 4) /* ns between two checks of the group */

struct gossip {
    struct gossip_sender sender; /* not opened in a run of one worker */
    struct vec x, s;             /* of the collected global model, both in an inbox */
    uint32_t view;               /* view from which progress.sharers was taken */
};

/* Draw the member that receives this worker's model after this step; WORLD_ANY: none. */
static uint32_t draw_peer(const struct member *m)
{
    const struct view *view = group_view(m->group);
    uint64_t own = rng_u64(m->job->seed, RNG_NODE, m->world->self), step = m->progress.steps;
    double u = (double)(rng_u64(own, DRAW_WHETHER, step) >> 11) * 0x1p-53;
    if (view->count < 2 || u >= m->job->strategy->gossip->p)
        return WORLD_ANY;
    size_t rank = (size_t)rng_below(own, DRAW_WHOM, step, view->count - 1);
    return view->node[rank + (view->node[rank] >= m->world->self ? 1 : 0)];
}

/* After a view change the lowest remaining number reports for all. */
static void follow_view(struct gossip *g, struct member *m)
{
    const struct view *view = group_view(m->group);
    if (view->number == g->view)
        return;
    g->view = view->number;
    m->progress.sharers = view_members(view);
}

/* Send half of the weight: to a member that has lost its model first, else to the drawn one. */
static int give_share(struct gossip *g, struct member *m)
{
    const struct learner *l = m->learner;
    uint32_t requested = gossip_requested(&g->sender);
    uint32_t to = requested != WORLD_ANY ? requested : draw_peer(m);
    int64_t begun = trace_now(m->world);
    if (to == WORLD_ANY || !gossip_share(&g->sender, to, &l->both))
        return OK;
    int rc = world_copied(m->world, l->both.n * sizeof(float));
    trace_copied(m->world, begun, TRACE_STEPS, m->progress.exchanges + 1,
                 l->both.n * sizeof(float));
    return rc;
}

/* Mix in an arrived model; this counts as an exchange, for which no member waited. */
static int take_share(struct gossip *g, struct member *m)
{
    struct learner *l = m->learner;
    bool lost = atomic_load(&g->sender.lost);
    struct gossip_taken taken;
    int rc = OK;
    int64_t begun = trace_now(m->world);
    while (rc == OK && gossip_take(&g->sender, &l->both, &taken)) {
        int64_t age = world_now(m->world) - taken.announced;
        const struct exchange_cost cost = {.seconds = world_seconds(age), .bytes = taken.bytes};
        if (lost)
            optim_reset(&l->optim);
        lost = false;
        rc = world_work(m->world, &(struct cost){m->world->costs.reduce * (double)taken.bytes});
        trace_copied(m->world, begun, TRACE_STEPS, m->progress.exchanges + 1, taken.bytes);
        if (rc == OK)
            rc = m->on_exchange(m, 0, &cost);
        begun = trace_now(m->world);
    }
    return rc;
}

/* ---- who has lost its model ---- */

/* Wait until a model arrives, the requested member refuses, or PATIENCE has passed. */
static int await_model(struct gossip *g, struct member *m, bool *refused)
{
    int64_t deadline = world_now(m->world) + PATIENCE;
    *refused = false;
    for (;;) {
        uint64_t seen = world_raised(m->world, SIGNAL_GOSSIP_NEWS);
        int64_t now = world_now(m->world);
        *refused |= gossip_drain(&g->sender) && g->sender.word.kind == GOSSIP_REQUEST &&
                    g->sender.word.status != OK;
        int rc = take_share(g, m);
        if (rc != OK || *refused || now >= deadline || !atomic_load(&g->sender.lost))
            return rc;
        if (atomic_load(&m->group->end.over) || atomic_load(&m->group->stop))
            return atomic_load(&m->group->end.over) ? ERR_DRIVER : ERR_STOP;
        rc = gossip_await(&g->sender, seen, now + GLANCE < deadline ? now + GLANCE : deadline);
        if (rc != OK && rc != ERR_TIMEOUT)
            return rc;
    }
}

/* All others refuse: they have lost their models, too, or have ended and `stop` is on its way here.
 */
static bool ends_now(struct member *m)
{
    (void)world_sleep(m->world, world_now(m->world) + GLANCE);
    return atomic_load(&m->group->stop) || atomic_load(&m->group->end.over);
}

/* Request a model from one member after another. When all refuse in a row, no member has a model.
 */
static int recover_weight(struct gossip *g, struct member *m)
{
    if (!g->sender.world)
        return ERR_DIVERGED;
    log_warn(m->group->log, "worker %u, step %" PRIu64 ": its model is lost (loss %g)",
             m->world->self, m->learner->steps, m->learner->loss);
    atomic_store(&g->sender.lost, true);
    atomic_store(&m->group->work.busy, false);
    int rc = OK;
    for (size_t k = 0, no = 0; rc == OK && atomic_load(&g->sender.lost); k++) {
        const struct view *view = group_view(m->group);
        size_t self = (size_t)view_rank(view, m->world->self), others = view->count - 1;
        bool refused;
        if (no >= others)
            return ends_now(m) ? ERR_STOP : ERR_DIVERGED;
        gossip_request(&g->sender, view->node[(self + 1 + k % others) % view->count]);
        rc = await_model(g, m, &refused);
        no = refused ? no + 1 : 0;
    }
    atomic_store(&m->group->work.busy, true);
    return rc;
}

/* ---- the loop ---- */

static int gossip_worker(struct member *m)
{
    struct learner *l = m->learner;
    struct gossip *g = m->own = arena_new(m->arena, struct gossip);
    int rc = g ? OK : ERR_NOMEM;
    bool alone = job_is_alone(m->job);
    if (rc == OK && !alone)
        rc = gossip_sender_open(&g->sender, m->world, m->group, l->both.n, strategy_chunk(m->job),
                                m->arena);
    if (rc == OK)
        rc = m->on_begin(m);
    while (rc == OK) {
        follow_view(g, m);
        rc = strategy_async_step(m);
        if (rc == ERR_DIVERGED)
            rc = recover_weight(g, m);
        if (rc != OK || alone)
            continue;
        gossip_drain(&g->sender);
        rc = give_share(g, m);
        if (rc == OK)
            rc = take_share(g, m);
    }
    atomic_store(&m->group->work.busy, false);
    if (rc == ERR_STOP && !alone) /* messages in transit arrive, or their receivers are lost */
        rc = gossip_finish(&g->sender, &l->both, WORLD_FOREVER);
    return rc == ERR_STOP ? OK : rc;
}

static void gossip_close(struct member *m)
{
    struct gossip *g = m->own;
    if (g)
        gossip_sender_close(&g->sender);
}

/* ---- the global model ---- */

/* Add a model to the mean: (w x + w_m x_m)/(w + w_m). */
static void add_share(struct vec *mean, uint64_t *w, uint64_t w_m, const struct vec *model)
{
    bool first = *w == 0;
    float share = gossip_add(w, w_m);
    if (first) /* the old contents may be NaN */
        vec_copy(mean, model, vec_all(mean));
    else
        vec_lerp(mean, share, model, vec_all(mean));
}

/* Collect x̃ = Σ w x / Σ w over all members. No inbox is in use any more. */
static int gossip_gather(struct member *m)
{
    struct gossip *g = m->own;
    struct gossip_sender *p = &g->sender;
    const struct learner *l = m->learner;
    const struct view *view = group_view(m->group);
    struct vec *mean = &p->in[1].both;
    struct transfers own;
    uint64_t w = 0;
    size_t count = 0;
    if (!p->world)
        return OK;
    g->x = vec_part(mean, 0, l->x.n);
    g->s = vec_part(mean, l->x.n, l->s.n);
    transfers_init(&own, m->world, m->group, LANE_COLLECT);
    own.chunk = strategy_chunk(m->job);
    int rc = OK;
    for (size_t i = 0; rc != ERR_CANCELLED && i < view->count; i++) {
        bool self = view->node[i] == m->world->self;
        /* no deadline: until it has arrived or its sender is lost */
        rc = !self                   ? gossip_fetch(p, &own, view->node[i], WORLD_FOREVER)
             : atomic_load(&p->lost) ? ERR_DIVERGED
                                     : OK;
        if (rc == OK)
            add_share(mean, &w, self ? p->w : p->in[0].w, self ? &l->both : &p->in[0].both);
        count += rc == OK;
    }
    transfers_close(&own);
    if (rc == ERR_CANCELLED || w == 0)
        return rc == ERR_CANCELLED ? rc : ERR_DIVERGED;
    log_info(m->group->log,
             "gossip: the final model is the mean of %zu model%s; their weights add up to %.15g",
             count, count == 1 ? "" : "s", (double)w / (double)(UINT64_C(1) << 40));
    m->model = (struct global_model){.x = &g->x, .s = &g->s};
    return OK;
}

/* Any member's own, as while the run lasts. */
static bool gossip_last_model(struct member *m, uint64_t *version)
{
    const struct gossip *g = m->own;
    *version = 0;
    return g && !atomic_load(&g->sender.lost) &&
           vec_finite(&m->learner->both, vec_all(&m->learner->both));
}

static int gossip_configure(const Paceline__Job *job, struct strategy_traits *traits,
                            struct err *err)
{
    (void)err;
    double p = job->strategy->gossip->p;
    traits->is_async = true;
    traits->takes_leases = true;
    traits->joinable = true;
    traits->round = p > 1e-6 ? (uint64_t)(1 / p + 0.5) : 1000000;
    return OK;
}

const struct strategy_ops strategy_gossip = {
    .name = "gossip",
    .configure = gossip_configure,
    .worker = gossip_worker,
    .close = gossip_close,
    .collect_model = gossip_gather,
    .last_model = gossip_last_model,
};
