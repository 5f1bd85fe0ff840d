/* `ps`: parameter servers (DSSP, Algorithm 1). A worker's iteration, line by line:
 *
 *     g ← gradient on the pulled weights               4
 *     push g to the servers                            5
 *     wait for OK                                      1
 *     pull the weights, w ← w_s                        2, 3
 *
 * The servers hold the weights and the optimizer. They apply each gradient when it arrives (those
 * that arrive together as one, their mean or their sum), and the consistency decides when its
 * worker gets OK:
 *
 *     bsp   when all have pushed; then one update with all pushes, which is `allreduce`
 *     asp   at once
 *     ssp   when it leads the slowest by s pushes at most
 *     dssp  when it leads by s_L at most, or has credit (Algorithm 2)
 *
 * A single gradient is applied at the full rate. The rate follows updates / K, so that it falls as
 * fast as with K synchronous workers. With several shards, those of which backward has finished the
 * gradient are pushed while it computes the rest, as MXNet pushes layers. */
#include "strategy/ps_client.h"
#include "world/trace.h"

static const Paceline__Ps *settings_of(const Paceline__Job *job)
{
    return job->strategy->ps;
}

static bool on_driver(const Paceline__Job *job)
{
    return settings_of(job)->servers == 1 && !settings_of(job)->colocated;
}

/* The job's numbers are those of the schema, the paper's order is another. */
static enum consistency_kind kind_of(const Paceline__Ps *ps)
{
    switch (ps->consistency) {
    case PACELINE__PS__CONSISTENCY__bsp: return CONSISTENCY_BSP;
    case PACELINE__PS__CONSISTENCY__asp: return CONSISTENCY_ASP;
    case PACELINE__PS__CONSISTENCY__ssp: return CONSISTENCY_SSP;
    default: return CONSISTENCY_DSSP;
    }
}

struct consistency_config ps_consistency(const Paceline__Job *job)
{
    const Paceline__Ps *ps = settings_of(job);
    return (struct consistency_config){
        .kind = kind_of(ps),
        .staleness = ps->staleness,
        .s_lower = ps->s_lower,
        .r_max = ps->r_max,
        .credit = ps->credit == PACELINE__PS__CREDIT__text ? CONSISTENCY_TEXT : CONSISTENCY_LETTER,
        .hard_bound = ps->hard_bound,
    };
}

static struct ps_server_config server_config(const Paceline__Job *job)
{
    const Paceline__Ps *ps = settings_of(job);
    return (struct ps_server_config){
        .servers = ps->servers,
        .colocated = ps->colocated,
        .shard = {.rule = SHARD_GRADIENTS, .sum = ps->aggregate == PACELINE__PS__AGGREGATE__sum},
        .push = job_step_records(job),
        .pushes_a_fetch = 1,
        .clock = {.job = job, .consistency = ps_consistency(job)},
    };
}

/* bsp: a push of each is one of a batch that all share. */
static bool in_rounds(const Paceline__Job *job)
{
    return kind_of(settings_of(job)) == CONSISTENCY_BSP;
}

/* ---- a worker ---- */

/* Backward has finished g from `from` on: shards of this part may leave. */
static int on_finished(void *user, size_t from)
{
    struct ps_client *c = user;
    ps_client_push_from(c, job_step_records(c->m->job), from);
    return OK;
}

/* Line 5. A push sends a copy: g, and the worker's own s for the mean of all. */
static int push_gradient(struct ps_client *c, bool lost)
{
    const struct learner *l = c->m->learner;
    /* After a recovery, the last push may be on its way again. */
    int rc = ps_client_is_early(c) ? OK : ps_client_flush(c);
    if (rc != OK)
        return rc;
    int64_t begun = trace_now(c->m->world);
    if (!ps_client_is_early(c)) {
        vec_export(&l->dx, vec_all(&l->dx), c->out.at);
        vec_export(&l->s, vec_all(&l->s), c->out.at + l->dx.n);
    }
    rc = world_copied(c->m->world, c->out.n * sizeof(float));
    trace_copied(c->m->world, begun, TRACE_STEPS, c->m->progress.exchanges + 1,
                 c->out.n * sizeof(float));
    return rc == OK ? ps_client_push(c, c->m->share, lost) : rc;
}

static int report_step(struct ps_client *c, int64_t begun)
{
    struct member *m = c->m;
    const struct exchange_cost cost = {
        .seconds = world_seconds(world_now(m->world) - begun),
        .waited_s = world_seconds(c->ok.ns),
        .waited_for = c->ok.node,
        .bytes = ps_client_push_bytes(c) + c->copy_bytes,
    };
    int stepped = strategy_async_stepped(m);
    if (stepped != OK && stepped != ERR_STOP)
        return stepped;
    int rc = m->on_exchange(m, 0, &cost);
    return rc == OK && c->ok.flags & PS_STOP ? ERR_STOP : rc == OK ? stepped : rc;
}

static int run_iteration(struct ps_client *c)
{
    struct member *m = c->m;
    struct stretch share = strategy_async_share(m);
    int rc = learner_gradient(m->learner, share.start, share.count);
    int64_t begun = world_now(m->world);
    bool lost = rc == ERR_DIVERGED;
    if (rc == OK || lost)
        rc = push_gradient(c, lost);
    if (rc == OK)
        rc = ps_client_await_ok(c);
    if (rc == OK)
        rc = ps_client_fetch(c);
    if (rc == OK)
        rc = ps_client_take(c);
    m->learner->steps += rc == OK;
    return rc == OK ? report_step(c, begun) : rc;
}

static int ps_worker(struct member *m)
{
    struct ps_client *c = arena_new(m->arena, struct ps_client);
    const struct ps_server_config config = server_config(m->job);
    int rc = c ? ps_client_open(c, m, &config) : ERR_NOMEM;
    if (rc == OK && m->join_state)
        rc = ps_client_join(c);
    if (rc == OK && c->port.placement.shards > 1) {
        m->learner->finished = on_finished;
        m->learner->user = c;
    }
    if (rc == OK)
        rc = m->on_begin(m);
    while (rc == OK)
        rc = run_iteration(c);
    return rc == ERR_STOP ? ps_client_leave(c) : rc;
}

/* ---- the driver, where it is the server ---- */

static int ps_driver(struct driver_part *l)
{
    const struct ps_server_config config = server_config(l->job);
    return ps_server_lead(l, &config);
}

static int ps_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err)
{
    traits->is_async = true;
    traits->takes_leases = !in_rounds(job);
    traits->driver_part = on_driver(job);
    traits->joinable = true;
    traits->sends_gradients = !on_driver(job);
    traits->round = 1;
    return on_driver(job) ? OK : shard_check_solver(job->solver, err);
}

const struct strategy_ops strategy_ps = {
    .name = "ps",
    .configure = ps_configure,
    .export_join_state = ps_client_export_join_state,
    .worker = ps_worker,
    .close = ps_client_close,
    .collect_model = ps_client_gather,
    .last_model = ps_client_last_model,
    .driver = ps_driver,
};
