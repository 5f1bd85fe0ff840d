#include "coll/team_call.h"

#include "base/fault.h"
#include "coll/coll_meta.h"
#include "wire/wire_send.h"

#include <string.h>

/* ---- the coordinator ---- */

static void on_arrived(void *user, uint32_t node)
{
    (void)user, (void)node;
}

/* A member's hello is the address it listens at. */
static int on_hello(void *user, uint32_t node, const void *hello, size_t len, char *address,
                    struct err *err)
{
    (void)user;
    struct byte_reader in = {hello, len, false};
    read_text(&in, address, NODE_ADDRESS_MAX);
    return byte_reader_done(&in) ? OK : err_set(err, ERR_PROTOCOL, "node %u sent no address", node);
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct team_host *host = user;
    log_info(host->group.log, "member %u: %s (view %u)", node, what, view);
}

int team_host_start(struct team_host *host, struct world *world, const struct logger *log,
                    const struct group_timing *timing, uint32_t members, uint32_t members_max)
{
    const struct roster_options options = {
        .workers = members,
        .workers_max = members_max,
        .driver_admits = true,
        .incarnation = 1,
        .silence_max = timing->silence_max,
        .stall_max = timing->stall_max,
    };
    const struct server_hooks hooks = {
        .arrived = on_arrived, .admit = on_hello, .member = on_member, .user = host};
    group_init(&host->group, world, log, timing);
    int rc = shared_host_start(&host->shared, &host->group);
    if (rc == OK)
        rc = server_start(&host->server, &host->group, &options, &hooks);
    if (rc != OK)
        shared_host_stop(&host->shared);
    return rc;
}

void team_host_stop(struct team_host *host)
{
    struct world *world = host->group.world;
    const struct view *view = group_view(&host->group);
    for (size_t i = 0; view && i < view->count; i++)
        wire_send(world, view->node[i], wire_tag(WIRE_BYE, 0, 0, 0), NULL, 0);
    shared_host_stop(&host->shared);
    server_stop(&host->server);
    group_release(&host->group);
}

/* ---- a member ---- */

static int send_hello(struct world *world)
{
    char address[NODE_ADDRESS_MAX];
    struct buf bytes = {0};
    world_address(world, address, sizeof address);
    buf_put_text(&bytes, address);
    int rc = wire_send_buf(world, WORLD_DRIVER, WIRE_HELLO, 0, &bytes);
    buf_release(&bytes);
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

int team_join(struct team *team, struct world *world, const struct logger *log,
              const struct group_timing *timing, int64_t deadline)
{
    *team = (struct team){.world = world};
    group_init(&team->group, world, log, timing);
    int rc = group_listen(&team->group);
    if (rc == OK)
        rc = send_hello(world);
    if (rc == OK)
        rc = group_wait_view(&team->group, 0, deadline);
    if (rc == OK)
        rc = shared_start(&team->shared, &team->group);
    if (rc != OK)
        group_release(&team->group);
    return rc;
}

static void release_plans(struct team_channel *channel)
{
    for (size_t i = 0; i < 2; i++)
        coll_plan_release(&channel->plan[i].plan);
}

void team_leave(struct team *team)
{
    shared_stop(&team->shared);
    group_send_leave(&team->group, false);
    for (size_t i = 0; i < TEAM_CHANNELS; i++)
        release_plans(&team->channel[i]);
    group_release(&team->group);
}

static void rank_view(const struct team *team, const struct view *view, struct ranks *ranks)
{
    ranks->count = view->count;
    memcpy(ranks->node, view->node, view->count * sizeof *view->node);
    int me = view_rank(view, team->world->self);
    PL_ASSERT(me >= 0);
    ranks->me = (size_t)me;
}

size_t team_size(const struct team *team, size_t *rank)
{
    const struct view *view = group_view(&team->group);
    if (!view || atomic_load(&team->group.end.over))
        return 0;
    *rank = (size_t)view_rank(view, team->world->self);
    return view->count;
}

/* ---- calls ---- */

static int schedule_for(const struct team_call *call, enum coll_algorithm algorithm,
                        const struct ranks *ranks, const size_t *cut, struct schedule *s)
{
    size_t count = ranks->count, me = ranks->me, chunk = call->config.chunk;
    switch (call->kind) {
    case TEAM_ALLREDUCE: return schedule_allreduce(s, algorithm, count, me, call->n, cut);
    case TEAM_BROADCAST: return schedule_broadcast(s, count, me, call->root, call->n, chunk);
    case TEAM_REDUCE: return schedule_reduce(s, count, me, call->root, call->n, chunk);
    case TEAM_GATHER: return schedule_gather(s, count, me, call->root, call->n, NULL);
    case TEAM_ALL_GATHER: return schedule_all_gather(s, count, me, call->n, NULL);
    case TEAM_REDUCE_SCATTER: return schedule_reduce_scatter(s, count, me, call->n, NULL);
    }
    PL_ASSERT(!"a kind of call");
    return ERR_BUG;
}

static bool may_measure(const struct team_call *call)
{
    return call->kind == TEAM_ALLREDUCE && call->algorithm == COLL_AUTO && !call->pinned &&
           auto_measures(call->n);
}

static bool same_config(const struct coll_config *a, const struct coll_config *b)
{
    return a->chunk == b->chunk && a->codec == b->codec && a->reduction.kind == b->reduction.kind &&
           a->reduction.fn == b->reduction.fn && a->reduction.user == b->reduction.user &&
           a->phantom == b->phantom && a->serialise == b->serialise && a->reduce == b->reduce;
}

static bool plan_fits(const struct team_plan *plan, const struct team_call *call,
                      enum coll_algorithm algorithm, const struct coll_config *config)
{
    return plan->plan.flow && plan->kind == (int)call->kind && plan->algorithm == algorithm &&
           plan->root == call->root && plan->floats == call->n &&
           same_config(&plan->config, config);
}

/* The channel's first plan becomes that of the call; an old one is taken if it will do. */
static int prepare_plan(struct team_channel *channel, const struct team_call *call,
                        const struct ranks *ranks, const struct cost_choice *choice,
                        const size_t *cut)
{
    enum coll_algorithm algorithm = choice->algorithm;
    struct coll_config config = call->config;
    struct team_plan *plan = &channel->plan[0], last = *plan;
    config.chunk = choice->chunk;
    if (plan_fits(plan, call, algorithm, &config))
        return OK;
    *plan = channel->plan[1];
    channel->plan[1] = last;
    if (plan_fits(plan, call, algorithm, &config))
        return OK;
    struct schedule schedule;
    coll_plan_release(&plan->plan);
    int rc = schedule_for(call, algorithm, ranks, cut, &schedule);
    if (rc == OK)
        rc = coll_plan_make(&plan->plan, &schedule, &config);
    schedule_release(&schedule);
    plan->kind = (int)call->kind;
    plan->algorithm = algorithm;
    plan->root = call->root;
    plan->floats = call->n;
    plan->config = config;
    return rc;
}

/* ---- auto ---- */

static void merge_meta(void *meta, const void *other)
{
    auto_meta_merge(meta, other);
}

/* Long vectors: agree whether to measure, and do. */
static int decide_probe(struct team_channel *channel, const struct team_call *call, struct coll *c)
{
    struct auto_meta meta, other;
    auto_meta_init(&meta, c, channel->took_floats == call->n ? channel->took : 0);
    int rc = coll_meta_reduce(c, &meta, sizeof meta, &other, merge_meta);
    if (rc == OK && c->ranks->me == 0)
        auto_decide(&channel->automatic, c, call->n, call->stripes, &meta);
    if (rc == OK)
        rc = coll_meta_broadcast(c, &meta, sizeof meta);
    if (!call->stripes_given)
        c->stripes = (uint32_t)meta.stripes;
    if (rc != OK || !meta.measure)
        return rc;
    release_plans(channel);
    return auto_measure(&channel->automatic, c, call->n, call->config.codec, &meta);
}

static int choose_algorithm(struct team_channel *channel, const struct team_call *call,
                            struct coll *c, struct cost_choice *choice, const size_t **cut)
{
    *choice = (struct cost_choice){.algorithm = call->algorithm, .chunk = call->config.chunk};
    *cut = NULL;
    if (call->kind != TEAM_ALLREDUCE || call->algorithm != COLL_AUTO)
        return OK;
    choice->algorithm = auto_rule(call->config.codec, c->ranks->count, call->n);
    if (!may_measure(call))
        return OK;
    int rc = decide_probe(channel, call, c);
    if (rc == OK)
        rc = auto_choose(&channel->automatic, c, call->n, call->config.codec, choice, cut);
    return rc;
}

/* ERR_VIEW: a new view, which the caller does not know yet. */
static int enter_view(const struct team *team, struct team_channel *channel,
                      const struct view *view)
{
    if (channel->view == view->number)
        return OK;
    bool first = view == group_first_view(&team->group);
    release_plans(channel);
    channel->view = view->number;
    channel->n = 0;
    channel->took = 0;
    return first || channel->reported == view->number ? OK : ERR_VIEW;
}

static int carry_out(struct team *team, struct team_channel *channel, const struct team_call *call,
                     struct coll *c)
{
    struct cost_choice choice;
    const size_t *cut;
    int rc = choose_algorithm(channel, call, c, &choice, &cut);
    if (rc == OK)
        rc = prepare_plan(channel, call, c->ranks, &choice, cut);
    if (call->kind == TEAM_ALLREDUCE)
        channel->algorithm = choice.algorithm;
    int64_t start = world_now(team->world);
    uint64_t moved = atomic_load(&team->group.moved);
    if (rc == OK)
        rc = coll_run(c, &channel->plan[0].plan, call->x,
                      (struct coll_owed){call->residual, call->residual});
    double seconds = world_seconds(world_now(team->world) - start);
    channel->took_floats = call->n;
    channel->took = rc == OK && may_measure(call)
                        ? auto_took(c, seconds, moved, channel->plan[0].plan.moved)
                        : 0;
    return rc;
}

static int run_on(struct team *team, struct team_channel *channel, const struct team_call *call)
{
    const struct view *view = group_view(&team->group);
    struct ranks ranks;
    if (!view || atomic_load(&team->group.end.over))
        return ERR_DRIVER;
    if (enter_view(team, channel, view) != OK || (call->view && call->view != view->number))
        return ERR_VIEW;
    rank_view(team, view, &ranks);
    if (call->root >= ranks.count)
        return ERR_USAGE;
    struct coll c = {
        .group = &team->group,
        .view = view,
        .ranks = &ranks,
        .lane = TEAM_LANES + call->channel,
        .n = ++channel->n,
        .chunk_floats = call->config.chunk,
        .stripes = may_measure(call) || call->stripes_given ? call->stripes : 1,
        .waits = call->waits,
        .patient = true,
    };
    int rc = carry_out(team, channel, call, &c);
    if (rc == ERR_NOMEM || rc == ERR_UNSUPPORTED || rc == ERR_PROTOCOL)
        group_quit(&team->group, rc);
    return rc;
}

int team_run(struct team *team, const struct team_call *call)
{
    if (call->channel >= TEAM_CHANNELS)
        return ERR_USAGE;
    struct team_channel *channel = &team->channel[call->channel];
    if (atomic_exchange(&channel->busy, true))
        return ERR_USAGE;
    int rc = run_on(team, channel, call);
    const struct view *view = group_view(&team->group);
    if (rc == ERR_VIEW && view)
        channel->reported = view->number;
    atomic_store(&channel->busy, false);
    return rc == ERR_VIEW && atomic_load(&team->group.end.over) ? ERR_DRIVER : rc;
}
