/* `downpour`: Downpour SGD (SparkDML §2.1, after DistBelief). Each worker trains its own copy of
 * the model by plain SGD steps, and accumulates them:
 *
 *     x ← x − η g,  a ← a − η g
 *
 * Every n_push steps it pushes a to the servers, without waiting for them, and a ← 0; every n_fetch
 * steps x ← x̃, which waits for the download. When a push arrives, the servers compute
 *
 *     x̃ ← x̃ + a
 *
 * η is the schedule's rate at the worker's own step; g includes the weight decay.
 *
 * server_adagrad: the servers adapt each weight's rate to the pushes so far (SparkDML leaves the
 * rule open; this one is ours),
 *
 *     h ← h + a²,  x̃ ← x̃ + η a / (√h + delta)
 *
 * with η applied again, at updates / K, since the η in a cancels. With several shards, each has its
 * own h; the rule is element-wise, so the result is the same. */
#include "strategy/ps_client.h"

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

/* The sum of steps stands for them only when a step depends on its gradient alone. */
static int check_plain(const Paceline__Job *job, struct err *err)
{
    const Caffe__SolverParameter *solver = job->solver;
    if (solver && strcmp(solver->type, "SGD") != 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "solver.type: strategy downpour takes plain steps, \"SGD\", is \"%s\"; write "
            "--set solver.type=SGD",
            solver->type);
    if (solver && solver->momentum != 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "solver.momentum: strategy downpour takes plain steps, 0, is %g; write --set "
            "solver.momentum=0",
            (double)solver->momentum);
    return OK;
}

static struct ps_server_config server_config(const Paceline__Job *job)
{
    const Paceline__Downpour *d = settings_of(job);
    return (struct ps_server_config){
        .servers = d->servers,
        .colocated = d->colocated,
        .shard.rule = d->server_adagrad ? SHARD_ADAGRAD : SHARD_UPDATES,
        .push = (uint64_t)d->n_push * job_step_records(job),
        .pushes_a_fetch = ((uint64_t)d->n_fetch + d->n_push - 1) / d->n_push,
        .clock = {.job = job, .consistency.kind = CONSISTENCY_ASP},
    };
}

/* ---- a worker ---- */

struct replica {
    struct ps_client c;
    struct vec a;   /* the sum of the steps since the last push */
    uint64_t steps; /* their number */
    bool lost;      /* the last one's loss was not finite */
};

/* x ← x − η g, a ← a − η g. Without momentum, the optimizer's state after a step is η g. */
static int take_step(struct replica *r, struct member *m)
{
    struct learner *l = m->learner;
    int rc = learner_step(l, strategy_async_offset(m), job_step_records(m->job));
    r->lost = rc == ERR_DIVERGED;
    r->steps++;
    if (rc == OK)
        vec_axpy(&r->a, -1.0f, &l->optim.state[0], vec_all(&r->a));
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
    vec_export(&r->a, vec_all(&r->a), c->out.at);
    vec_export(&l->s, vec_all(&l->s), c->out.at + r->a.n);
    vec_fill(&r->a, vec_all(&r->a), 0.0f);
    rc = world_copied(m->world, c->out.n * sizeof(float));
    if (rc == OK)
        rc = ps_client_push(c, r->steps * job_step_records(m->job), r->lost);
    r->steps = 0;
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
    int rc = r->steps > 0 ? push_update(r, m) : OK;
    if (rc == OK || rc == ERR_STOP)
        rc = ps_client_leave(&r->c);
    return rc;
}

static int downpour_worker(struct member *m)
{
    struct replica *r = arena_new(m->arena, struct replica);
    const struct ps_server_config config = server_config(m->job);
    int rc = r ? ps_client_open(&r->c, m, &config) : ERR_NOMEM;
    if (rc == OK)
        rc = vec_init(&r->a, m->arena, m->learner->x.n);
    if (rc == OK && m->join_state)
        rc = ps_client_join(&r->c);
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
    return check_plain(job, err);
}

const struct strategy_ops strategy_downpour = {
    .name = "downpour",
    .configure = downpour_configure,
    .export_join_state = ps_client_export_join_state,
    .worker = downpour_worker,
    .close = ps_client_close,
    .collect_model = ps_client_gather,
    .driver = downpour_driver,
};
