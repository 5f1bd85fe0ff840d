/* The collectives of a slice: blobs that it exchanges with its mates, sums over mates and peers. */
#include "base/fault.h"
#include "strategy/slice_group.h"
#include "world/trace.h"

/* ---- running a plan ---- */

static int run_plan(struct slice_group *g, const struct ranks *ranks, uint32_t lane, uint64_t n,
                    struct coll_plan *plan, float *x)
{
    struct group *group = g->m->group;
    struct coll_waits waits = {0};
    PL_ASSERT(!async_task_busy(&g->task));
    if (!slice_group_is_current(g))
        return ERR_VIEW;
    struct coll c = slice_group_coll(g, ranks, lane, n, &waits);
    atomic_store(&group->work.busy, false);
    int rc = coll_run(&c, plan, x, (struct coll_owed){0});
    atomic_store(&group->work.busy, true);
    g->bytes += waits.bytes;
    return rc;
}

/* A meeting of the mates in the background, and its end. */
static int begin_meeting(struct slice_group *g, struct coll_plan *plan, float *x)
{
    struct slice_run *run = &g->background;
    PL_ASSERT(!async_task_busy(&g->task));
    if (!slice_group_is_current(g))
        return ERR_VIEW;
    *run = (struct slice_run){.plan = plan, .x = x};
    run->c = slice_group_coll(g, g->mates, SLICE_LANE, ++g->meetings, &run->waits);
    async_task_begin(&g->task);
    return OK;
}

static int end_meeting(struct slice_group *g)
{
    struct world *world = g->m->world;
    int64_t begun = trace_now(world);
    int rc = async_task_wait(&g->task, WORLD_FOREVER);
    trace_end(world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_ANY,
                                  .n = g->m->progress.exchanges + 1});
    if (rc != OK)
        return rc;
    g->bytes += g->background.waits.bytes;
    return g->background.status;
}

int slice_group_abandon(struct slice_group *g)
{
    int rc = async_task_busy(&g->task) ? end_meeting(g) : OK;
    return rc == ERR_CANCELLED ? rc : OK;
}

static int meet_mates(struct slice_group *g, struct coll_plan *plan, float *x)
{
    return run_plan(g, g->mates, SLICE_LANE, ++g->meetings, plan, x);
}

static int make_plan(const struct slice_group *g, struct coll_plan *plan, struct schedule *schedule,
                     int made)
{
    const struct coll_config config = {
        .chunk = strategy_chunk(g->m->job),
        .codec = CODEC_F32,
        .serialise = g->m->world->costs.crypto,
        .reduce = g->m->world->costs.reduce,
    };
    int rc = made == OK ? coll_plan_make(plan, schedule, &config) : made;
    schedule_release(schedule);
    return rc;
}

int slice_group_plan_sum(const struct slice_group *g, struct coll_plan *plan,
                         const struct ranks *ranks, size_t n)
{
    const struct exchange_config config = strategy_exchange_config(g->m->job);
    struct schedule schedule;
    enum coll_algorithm algorithm =
        config.algorithm == COLL_AUTO ? auto_rule(CODEC_F32, ranks->count, n) : config.algorithm;
    int rc = schedule_allreduce(&schedule, algorithm, ranks->count, ranks->me, n, NULL);
    return make_plan(g, plan, &schedule, rc);
}

static bool is_made(const struct coll_plan *plan)
{
    return plan->ports != NULL;
}

/* Cuts of a vector that has the parts of all slices one behind another, and the plan that brings
 * them together. */
static int plan_gather(struct slice_group *g, struct coll_plan *plan, size_t n)
{
    struct schedule schedule;
    if (is_made(plan))
        return OK;
    int rc = schedule_all_gather(&schedule, g->slice.count, g->slice.index, n, g->cut);
    return make_plan(g, plan, &schedule, rc);
}

/* The plans of a replica are made once: their ranks are the slices, whatever the view. */
static int plan_sum(struct slice_group *g, struct coll_plan *plan, size_t n)
{
    return is_made(plan) ? OK : slice_group_plan_sum(g, plan, g->mates, n);
}

static int reserve_parts(struct slice_group *g, size_t n)
{
    if (n <= g->room)
        return OK;
    g->parts = arena_array(g->m->arena, n, float);
    g->room = g->parts ? n : 0;
    return g->parts ? OK : ERR_NOMEM;
}

/* ---- blobs ---- */

static struct model_slice slice_at(const struct slice_group *g, size_t index)
{
    return (struct model_slice){index, g->slice.count};
}

static struct columns columns_of(const struct slice_group *g, const struct net_point *p,
                                 size_t index)
{
    const struct model_slice slice = slice_at(g, index);
    return net_point_columns(p, &slice);
}

/* This slice's columns into `parts`, and the plan. */
static int prepare_gather(struct slice_group *g, const struct net_point *p, struct coll_plan *plan)
{
    size_t each = p->rows * p->each, n = each * p->outputs, count = g->slice.count;
    for (size_t f = 0; f < count; f++)
        g->cut[f] = each * columns_of(g, p, f).own.from;
    g->cut[count] = n;
    int rc = reserve_parts(g, n);
    if (rc == OK)
        rc = plan_gather(g, plan, n);
    if (rc != OK)
        return rc;
    int64_t begun = trace_now(g->m->world);
    const struct columns own = columns_of(g, p, g->slice.index);
    columns_get(&own, p->values, g->parts + g->cut[g->slice.index]);
    rc = world_copied(g->m->world, n * sizeof(float));
    trace_copied(g->m->world, begun, TRACE_STEPS, g->m->progress.exchanges + 1, n * sizeof(float));
    return rc;
}

static void put_columns(const struct slice_group *g, const struct net_point *p)
{
    for (size_t f = 0; f < g->slice.count; f++) {
        const struct columns columns = columns_of(g, p, f);
        if (f != g->slice.index)
            columns_put(&columns, g->parts + g->cut[f], p->values);
    }
}

static int meet_gather(struct slice_group *g, const struct net_point *p, struct coll_plan *plan)
{
    bool ends = p->meeting == NET_GATHER_ENDS;
    int rc = ends ? end_meeting(g) : prepare_gather(g, p, plan);
    if (rc == OK && p->meeting == NET_GATHER_BEGINS)
        return begin_meeting(g, plan, g->parts);
    if (rc == OK && !ends)
        rc = meet_mates(g, plan, g->parts);
    if (rc == OK)
        put_columns(g, p);
    return rc;
}

static int meet_sum(struct slice_group *g, const struct net_point *p, struct coll_plan *plan)
{
    if (p->meeting == NET_SUM_ENDS)
        return end_meeting(g);
    int rc = plan_sum(g, plan, p->rows * p->outputs * p->each);
    if (rc != OK)
        return rc;
    return p->meeting == NET_SUM ? meet_mates(g, plan, p->values)
                                 : begin_meeting(g, plan, p->values);
}

int slice_group_meet(void *slice_group, const struct net_point *point)
{
    struct slice_group *g = slice_group;
    struct coll_plan *plan = &g->plan[point->number];
    switch (point->meeting) {
    case NET_GATHER:
    case NET_GATHER_BEGINS:
    case NET_GATHER_ENDS: return meet_gather(g, point, plan);
    case NET_SUM:
    case NET_SUM_BEGINS:
    case NET_SUM_ENDS: return meet_sum(g, point, plan);
    }
    PL_ASSERT(!"a point of a net is of one kind");
    return ERR_BUG;
}

/* ---- sums ---- */

int slice_group_vote(struct slice_group *g, float *x, size_t n)
{
    int rc = plan_sum(g, &g->votes, n);
    return rc == OK ? meet_mates(g, &g->votes, x) : rc;
}

static const struct segments *whole_table(const struct slice_group *g)
{
    return net_whole_segments(g->m->learner->ws->train);
}

static void copy_common(const struct slice_group *g, struct vec *v, float *at, bool back)
{
    const struct segments *whole = whole_table(g), *own = net_segments(g->m->learner->ws->train);
    for (size_t i = g->parallel.segments; i < whole->count; i++) {
        const struct range range = {own->at[i].offset, own->at[i].len};
        if (whole->at[i].units > 0)
            continue;
        if (back)
            vec_import(v, range, at);
        else
            vec_export(v, range, at);
        at += range.len;
    }
}

int slice_group_align_states(struct slice_group *g)
{
    struct vec *s = &g->m->learner->s;
    int rc = s->n > 0 ? plan_sum(g, &g->states, s->n) : OK;
    if (rc != OK || s->n == 0)
        return rc;
    net_keep_own_states(g->m->learner->ws->train, s);
    return meet_mates(g, &g->states, s->at);
}

int slice_group_align(struct slice_group *g, struct vec *v)
{
    struct coll_plan *plan = &g->common_plan;
    if (g->common == 0)
        return OK;
    int rc = reserve_parts(g, g->common);
    if (rc == OK && !is_made(plan)) {
        struct schedule schedule;
        rc = schedule_broadcast(&schedule, g->slice.count, g->slice.index, 0, g->common,
                                strategy_chunk(g->m->job));
        rc = make_plan(g, plan, &schedule, rc);
    }
    if (rc != OK)
        return rc;
    copy_common(g, v, g->parts, false);
    rc = meet_mates(g, plan, g->parts);
    if (rc == OK)
        copy_common(g, v, g->parts, true);
    return rc;
}

int slice_group_add_peers(struct slice_group *g, struct coll_plan *plan, float *x)
{
    return run_plan(g, g->peers, PEER_LANE, ++g->summed, plan, x);
}

/* The peers of all mates cut the values of data-parallel layers alike: they add them in one order.
 */
static int plan_peers(struct slice_group *g, const size_t n[2])
{
    size_t count = g->peers->count, me = g->peers->me;
    int rc = OK;
    if (g->sum_ranks == count && g->sum_rank == me)
        return OK;
    g->sum_ranks = 0;
    for (size_t i = 0; rc == OK && i < 2; i++) {
        coll_plan_release(&g->sums[i]);
        rc = n[i] > 0 ? slice_group_plan_sum(g, &g->sums[i], g->peers, n[i]) : OK;
    }
    if (rc != OK)
        return rc;
    g->sum_ranks = count;
    g->sum_rank = me;
    return OK;
}

int slice_group_sum(struct slice_group *g, float *x, size_t n)
{
    const size_t part[2] = {g->parallel.floats, n - g->parallel.floats};
    int rc = OK;
    if (g->peers->count == 1)
        return OK;
    rc = plan_peers(g, part);
    for (size_t i = 0; rc == OK && i < 2; x += part[i++])
        if (part[i] > 0)
            rc = slice_group_add_peers(g, &g->sums[i], x);
    return rc;
}

int slice_group_add_up(struct slice_group *g, struct vec *v)
{
    struct coll_plan peers = {0};
    int rc = plan_sum(g, &g->carried, v->n);
    if (rc == OK)
        rc = meet_mates(g, &g->carried, v->at);
    if (rc != OK || g->peers->count == 1)
        return rc;
    rc = slice_group_plan_sum(g, &peers, g->peers, v->n);
    if (rc == OK)
        rc = slice_group_add_peers(g, &peers, v->at);
    coll_plan_release(&peers);
    return rc;
}
