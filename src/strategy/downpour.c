/* `downpour`: Downpour SGD (SparkDML §2.1, after DistBelief, Dean et al. 2012). Each worker trains
 * its own copy of the model and accumulates what it pushes to the servers every n_push steps,
 * without waiting for them; every n_fetch steps x ← x̃, which waits for the download. "The
 * parameter update is done according to the learning rule" (§2.1), which is the solver's type:
 *
 *     learning_rule: worker    Δ = the step by the rule     x ← x + Δ,  a ← a + Δ
 *                              at the servers               x̃ ← x̃ + a
 *     learning_rule: server    plain steps                  x ← x − η g,  a ← a + g
 *                              at the servers               x̃ ← the rule's step with gradient a
 *
 * With the plain rule, SGD without momentum, both are x̃ ← x̃ − Σ η g. A worker's momentum or means
 * of squares are its own, and outlive a fetch; those of the servers follow the gradients of all.
 * The servers' gradients are sums, as DistBelief's Algorithm 7 accrues them. So a step with
 * momentum makes up for n_push small ones; a rule that divides by their size, such as RMSProp,
 * takes one step of its usual length.
 *
 * η is the schedule's rate at the worker's own step, or at the servers' updates / K. A worker's g
 * includes the weight decay. A gradient that is accumulated for the servers does not: they add the
 * decay once for each push.
 *
 * server_adagrad: the servers adapt each weight's rate to the steps pushed so far (ours),
 *
 *     h ← h + a²,  x̃ ← x̃ + η a / (√h + delta)
 *
 * with η applied again, since the η in a cancels. With several shards, each has its own state;
 * these rules are element-wise, so the result is the same. */
#include "strategy/ps_client.h"
#include "world/trace.h"

#include <string.h>

enum { LANE_PUSH, LANE_FETCH }; /* of `exchange` events */

static const Paceline__Downpour *settings_of(const Paceline__Job *job)
{
    return job->strategy->downpour;
}

static bool on_driver(const Paceline__Job *job)
{
    return settings_of(job)->servers == 1 && !settings_of(job)->colocated;
}

static bool at_server(const Paceline__Job *job)
{
    return settings_of(job)->learning_rule == PACELINE__DOWNPOUR__LEARNING_RULE__server;
}

static int check_rule(const Paceline__Job *job, struct err *err)
{
    if (at_server(job) && settings_of(job)->server_adagrad)
        return err_set(err, ERR_INPUT,
                       "strategy.downpour.server_adagrad: learning_rule is server, and one of the "
                       "two may be; the rule is solver.type, and that may be \"AdaGrad\"");
    return at_server(job) && !on_driver(job) ? shard_check_solver(job->solver, err) : OK;
}

static struct ps_server_config server_config(const Paceline__Job *job)
{
    const Paceline__Downpour *d = settings_of(job);
    return (struct ps_server_config){
        .servers = d->servers,
        .colocated = d->colocated,
        .shard.rule = at_server(job)      ? SHARD_GRADIENTS
                      : d->server_adagrad ? SHARD_ADAGRAD
                                          : SHARD_UPDATES,
        .push = (uint64_t)d->n_push * job_step_records(job),
        .pushes_a_fetch = ((uint64_t)d->n_fetch + d->n_push - 1) / d->n_push,
        .clock = {.job = job, .consistency.kind = CONSISTENCY_ASP},
    };
}

/* ---- a worker ---- */

struct replica {
    struct ps_client c;
    struct vec a;      /* what is pushed next: the sum of the steps, or of the gradients */
    struct vec before; /* the rule is the servers': the last plain step; else x before the step,
                          unless the optimizer keeps its steps */
    uint64_t samples;  /* in a */
    bool lost;         /* the last one's loss was not finite */
};

static int replica_open(struct replica *r, struct member *m)
{
    const struct ps_server_config config = server_config(m->job);
    const struct learner *l = m->learner;
    bool keeps_steps = !at_server(m->job) && l->optim.ops->keeps_step;
    int rc = ps_client_open(&r->c, m, &config);
    if (rc == OK)
        rc = vec_init(&r->a, m->arena, l->x.n);
    return rc == OK ? vec_init(&r->before, m->arena, keeps_steps ? 0 : l->x.n) : rc;
}

/* learning_rule: server. x ← x − η (g + decay), a ← a + g */
static int step_plainly(struct replica *r, struct learner *l, uint64_t start, size_t count)
{
    int rc = learner_gradient(l, start, count);
    if (rc != OK)
        return rc;
    vec_axpy(&r->a, 1.0f, &l->dx, vec_all(&r->a));
    learner_update_plainly(l, start, &r->before);
    return OK;
}

/* learning_rule: worker. x ← x + Δ, a ← a + Δ. The state of an optimizer that keeps its step is −Δ
 * without rounding; for others Δ is the difference. */
static int step_by_rule(struct replica *r, struct learner *l, uint64_t start, size_t count)
{
    const struct range all = vec_all(&r->a);
    if (!l->optim.ops->keeps_step)
        vec_copy(&r->before, &l->x, all);
    int rc = learner_step(l, start, count);
    if (rc != OK)
        return rc;
    if (l->optim.ops->keeps_step) {
        vec_axpy(&r->a, -1.0f, &l->optim.state[0], all);
        return OK;
    }
    vec_axpy(&r->before, -1.0f, &l->x, all);
    vec_axpy(&r->a, -1.0f, &r->before, all);
    return OK;
}

static int take_step(struct replica *r, struct member *m)
{
    struct stretch share = strategy_async_share(m);
    int rc = at_server(m->job) ? step_plainly(r, m->learner, share.start, share.count)
                               : step_by_rule(r, m->learner, share.start, share.count);
    r->lost = rc == ERR_DIVERGED;
    r->samples += share.count;
    if (rc == OK || r->lost)
        rc = strategy_async_stepped(m);
    return rc;
}

static int push_update(struct replica *r, struct member *m)
{
    struct ps_client *c = &r->c;
    const struct learner *l = m->learner;
    int64_t begun = world_now(m->world);
    int rc = ps_client_flush(c); /* one at a time */
    if (rc != OK)
        return rc;
    const struct exchange_cost cost = {
        .seconds = world_seconds(world_now(m->world) - begun),
        .waited_s = world_seconds(world_now(m->world) - begun),
        .waited_for = m->world->self,
        .bytes = ps_client_push_bytes(c),
    };
    begun = trace_now(m->world);
    vec_export(&r->a, vec_all(&r->a), c->out.at);
    vec_export(&l->s, vec_all(&l->s), c->out.at + r->a.n);
    vec_fill(&r->a, vec_all(&r->a), 0.0f);
    rc = world_copied(m->world, c->out.n * sizeof(float));
    trace_copied(m->world, begun, TRACE_STEPS, m->progress.exchanges + 1, c->out.n * sizeof(float));
    if (rc == OK)
        rc = ps_client_push(c, r->samples, r->lost);
    r->samples = 0;
    return rc == OK ? m->on_exchange(m, LANE_PUSH, &cost) : rc;
}

static int fetch_model(struct replica *r, struct member *m)
{
    struct ps_client *c = &r->c;
    int64_t begun = world_now(m->world);
    int rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    rc = ps_client_take(c);
    if (r->lost) { /* what made the model infinite may be in these, too */
        optim_reset(&m->learner->optim);
        vec_fill(&r->before, vec_all(&r->before), 0.0f);
    }
    const struct exchange_cost cost = {
        .seconds = world_seconds(world_now(m->world) - begun),
        .waited_s = world_seconds(world_now(m->world) - begun),
        .waited_for = ps_placement_host(&c->port.placement, 0),
        .bytes = c->copy_bytes,
    };
    return rc == OK ? m->on_exchange(m, LANE_FETCH, &cost) : rc;
}

/* One step, and the push and fetch that are due after it. A worker whose model is no longer finite
 * reports this and starts over. */
static int run_iteration(struct replica *r, struct member *m)
{
    const Paceline__Downpour *d = settings_of(m->job);
    int stop = take_step(r, m), rc = stop == ERR_STOP ? OK : stop;
    uint64_t taken = m->progress.steps - m->start.steps;
    if (rc == OK && (r->lost || stop != OK || taken % d->n_push == 0))
        rc = push_update(r, m);
    if (rc == OK && stop == OK && (r->lost || taken % d->n_fetch == 0))
        rc = fetch_model(r, m);
    if (rc == OK)
        rc = ps_client_step(&r->c);
    if (rc == OK && r->c.ok.flags & PS_LOST)
        rc = ERR_DIVERGED;
    if (rc == OK && r->c.ok.flags & PS_STOP)
        rc = ERR_STOP;
    return rc == OK ? stop : rc;
}

/* Waits until the last update has arrived. */
static int leave_run(struct replica *r, struct member *m)
{
    r->c.leaves = true;
    int rc = r->samples > 0 ? push_update(r, m) : OK;
    if (rc == OK || rc == ERR_STOP)
        rc = ps_client_leave(&r->c);
    return rc;
}

static int downpour_worker(struct member *m)
{
    struct replica *r = arena_new(m->arena, struct replica);
    int rc = r ? replica_open(r, m) : ERR_NOMEM;
    if (rc == OK && m->join_state)
        rc = ps_client_join(&r->c);
    if (rc == OK)
        rc = m->on_begin(m);
    while (rc == OK)
        rc = run_iteration(r, m);
    return rc == ERR_STOP ? leave_run(r, m) : rc;
}

/* ---- the driver, where it is the server ---- */

static int downpour_driver(struct driver_part *l)
{
    const struct ps_server_config config = server_config(l->job);
    return ps_server_lead(l, &config);
}

static int downpour_configure(const Paceline__Job *job, struct strategy_traits *traits,
                              struct err *err)
{
    traits->is_async = true;
    traits->takes_leases = true;
    traits->driver_part = on_driver(job);
    traits->joinable = true;
    traits->round = settings_of(job)->n_push;
    return check_rule(job, err);
}

const struct strategy_ops strategy_downpour = {
    .name = "downpour",
    .configure = downpour_configure,
    .export_join_state = ps_client_export_join_state,
    .worker = downpour_worker,
    .close = ps_client_close,
    .collect_model = ps_client_gather,
    .last_model = ps_client_last_model,
    .driver = downpour_driver,
};
