#include "strategy/slice_group.h"

#include "base/fault.h"
#include "world/trace.h"

#include <string.h>

/* How long a slice waits for the driver to end a run in which another slice is lost. */
#define END_WAIT (60 * WORLD_SECOND)

static struct model_slice slice_at(const struct slice_group *g, size_t index)
{
    return (struct model_slice){index, g->slice.count};
}

static const struct segments *whole_table(const struct slice_group *g)
{
    return net_whole_segments(g->m->learner->ws->train);
}

/* ---- its life ---- */

/* A joiner does not know how far the lanes are: slice_group_enter finds out. */
static int open_lane(struct slice_group *g, size_t i)
{
    struct member *m = g->m;
    struct exchange_config config = strategy_exchange_config(m->job);
    config.plain = true;
    config.once = true;
    return lanes_open(&m->lanes, m->group, false, 1, &config,
                      i == SLICE_ROUNDS ? m->progress.exchanges : 0, m->arena, &g->lane[i]);
}

static int run_in_background(void *user)
{
    struct slice_run *run = user;
    run->status = coll_run(&run->c, run->plan, run->x, (struct coll_owed){0});
    return OK;
}

static int start_task(struct slice_group *g)
{
    const struct async_work work = {
        .run = run_in_background,
        .user = &g->background,
        .go = SIGNAL_SLICE_SUM,
        .done = SIGNAL_SLICE_SUMMED,
    };
    return async_task_start(&g->task, g->m, &work);
}

int slice_group_open(struct slice_group *g, struct member *m)
{
    *g = (struct slice_group){.m = m, .slice = m->learner->ws->slice};
    g->plans = m->points;
    g->parallel = net_parallel(m->learner->ws->train);
    g->common = net_common(m->learner->ws->train);
    g->plan = arena_array(m->arena, g->plans, struct coll_plan);
    g->cut = arena_array(m->arena, g->slice.count + 1, size_t);
    g->mates = arena_new(m->arena, struct ranks);
    g->peers = arena_new(m->arena, struct ranks);
    int rc = g->plan && g->cut && g->mates && g->peers ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < SLICE_EXCHANGES; i++)
        rc = open_lane(g, i);
    if (rc == OK && m->keeps_streams)
        rc = slice_group_open_streams(g);
    if (rc == OK)
        rc = start_task(g);
    return rc == OK ? slice_group_open_turns(g) : rc;
}

void slice_group_close(struct slice_group *g)
{
    async_task_stop(&g->task);
    async_task_stop(&g->turns);
    for (size_t i = 0; g->plan && i < g->plans; i++)
        coll_plan_release(&g->plan[i]);
    coll_plan_release(&g->votes);
    coll_plan_release(&g->common_plan);
    coll_plan_release(&g->states);
    coll_plan_release(&g->carried);
    for (size_t i = 0; i < 2; i++)
        coll_plan_release(&g->sums[i]);
}

/* ---- the view ---- */

static bool never_holds(void *arg)
{
    (void)arg;
    return false;
}

int slice_group_await_end(struct slice_group *g)
{
    struct group *group = g->m->group;
    int64_t deadline = world_now(group->world) + END_WAIT;
    atomic_store(&group->work.busy, false); /* no progress is expected of it */
    int rc = group_wait(group, SIGNAL_GROUP, never_holds, NULL, deadline);
    return rc == ERR_TIMEOUT ? ERR_VIEW : rc;
}

bool slice_group_is_current(const struct slice_group *g)
{
    return g->view && group_view(g->m->group) == g->view;
}

bool slice_group_has_replicas(const struct slice_group *g)
{
    return job_replicas(g->m->job) > 1;
}

bool slice_group_is_fresh(const struct slice_group *g)
{
    return members_has(&g->view->fresh, g->m->world->self);
}

/* Has a replica of this view all slices, each with its state? */
static bool is_donor(const struct slice_group *g, const struct view *view, size_t replica)
{
    for (size_t f = 0; f < g->slice.count; f++) {
        uint32_t node = view_seated(view, (uint32_t)(replica * g->slice.count + f));
        if (node == VIEW_MEMBERS_MAX || members_has(&view->fresh, node))
            return false;
    }
    return true;
}

/* Mates by slice, peers by replica. */
static void rank_members(struct slice_group *g, const struct view *view, uint32_t seat)
{
    size_t count = g->slice.count;
    uint32_t self = g->m->world->self;
    g->replica = seat / count;
    g->whole = true;
    *g->mates = (struct ranks){.count = count, .me = g->slice.index};
    *g->peers = (struct ranks){.count = 0};
    g->donors = (struct members){{0}};
    for (size_t f = 0; f < count; f++) {
        g->mates->node[f] = view_seated(view, (uint32_t)(g->replica * count + f));
        g->whole &= g->mates->node[f] != VIEW_MEMBERS_MAX;
    }
    for (size_t r = 0; r < VIEW_MEMBERS_MAX / count; r++) {
        uint32_t node = view_seated(view, (uint32_t)(r * count + g->slice.index));
        if (node == VIEW_MEMBERS_MAX)
            continue;
        if (node == self)
            g->peers->me = g->peers->count;
        if (is_donor(g, view, r))
            members_add(&g->donors, node);
        g->peers->node[g->peers->count++] = node;
    }
}

/* A leaf has no seat. One that is to leave tells the driver, since no exchange does it. */
static int await_seat(struct slice_group *g, const struct view *view)
{
    struct group *group = g->m->group;
    g->view = NULL;
    for (bool sent = false;;) {
        int64_t until = world_now(group->world) + group->timing.heartbeat;
        int rc = group_wait_view(group, view->number, until);
        if (rc != ERR_TIMEOUT)
            return rc;
        if (!sent && group_is_leaving(group)) {
            group_send_leave(group, false);
            sent = true;
        }
    }
}

/* All lanes in this view, in the same order on all members. ERR_VIEW: it has ended */
static int bring_into_line(struct slice_group *g, const struct view *view, uint32_t seat)
{
    bool fresh = members_has(&view->fresh, g->m->world->self);
    for (size_t i = 0; i < SLICE_EXCHANGES; i++)
        if (fresh && g->lane[i]->synced != view->number)
            exchange_join_unsynced(g->lane[i]);
    for (size_t i = 0; i < SLICE_EXCHANGES; i++) {
        int rc = exchange_sync_in(g->lane[i], view);
        if (rc != OK)
            return rc;
    }
    if (group_view(g->m->group) != view)
        return ERR_VIEW;
    rank_members(g, view, seat);
    g->view = view;
    g->entered = g->lane[SLICE_ROUNDS]->completed;
    g->handed = false;
    g->complete = (struct members){{0}};
    g->received = 0;
    g->turn_ended = 0;
    g->meetings = g->summed = 0;
    return OK;
}

static int enter_view(struct slice_group *g, const struct view *view)
{
    uint32_t seat = view_seat(view, g->m->world->self);
    if (seat == VIEW_NO_SEAT)
        return await_seat(g, view);
    if (seat % g->slice.count != g->slice.index)
        return ERR_VIEW;
    int rc = bring_into_line(g, view, seat);
    return rc == ERR_VIEW ? OK : rc; /* in the next one */
}

int slice_group_enter(struct slice_group *g)
{
    struct group *group = g->m->group;
    int rc = OK;
    if (slice_group_is_current(g)) /* collectives end with ERR_VIEW when the group is over, too */
        return atomic_load(&group->end.over) ? ERR_DRIVER : OK;
    atomic_store(&group->work.busy, false);
    while (rc == OK && !slice_group_is_current(g) && !atomic_load(&group->end.over))
        rc = enter_view(g, group_view(group));
    atomic_store(&group->work.busy, true);
    return rc == OK && atomic_load(&group->end.over) ? ERR_DRIVER : rc;
}

/* ---- running a plan ---- */

struct coll slice_group_coll(struct slice_group *g, const struct ranks *ranks, uint32_t lane,
                             uint64_t n, struct coll_waits *waits)
{
    const struct exchange_config config = strategy_exchange_config(g->m->job);
    return (struct coll){.group = g->m->group,
                         .view = g->view,
                         .ranks = ranks,
                         .lane = lane,
                         .n = n,
                         .chunk_floats = config.chunk,
                         .stripes = config.stripes,
                         .waits = waits,
                         /* Others may still be computing: a wait has no deadline but the view's
                          * end. */
                         .patient = true};
}

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

/* A sum of the mates in the background, and its end. */
static int begin_sum(struct slice_group *g, struct coll_plan *plan, float *x)
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

static int end_sum(struct slice_group *g)
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
    int rc = async_task_busy(&g->task) ? end_sum(g) : OK;
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

static struct columns columns_of(const struct slice_group *g, const struct net_point *p,
                                 size_t index)
{
    const struct model_slice slice = slice_at(g, index);
    return net_point_columns(p, &slice);
}

static int gather_columns(struct slice_group *g, const struct net_point *p, struct coll_plan *plan)
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
    if (rc == OK)
        rc = meet_mates(g, plan, g->parts);
    for (size_t f = 0; rc == OK && f < count; f++) {
        const struct columns columns = columns_of(g, p, f);
        if (f != g->slice.index)
            columns_put(&columns, g->parts + g->cut[f], p->values);
    }
    return rc;
}

int slice_group_meet(void *slice_group, const struct net_point *point)
{
    struct slice_group *g = slice_group;
    struct coll_plan *plan = &g->plan[point->number];
    if (point->meeting == NET_GATHER)
        return gather_columns(g, point, plan);
    if (point->meeting == NET_SUM_ENDS)
        return end_sum(g);
    int rc = plan_sum(g, plan, point->rows * point->outputs * point->each);
    if (rc != OK)
        return rc;
    return point->meeting == NET_SUM ? meet_mates(g, plan, point->values)
                                     : begin_sum(g, plan, point->values);
}

/* ---- sums ---- */

int slice_group_vote(struct slice_group *g, float *x, size_t n)
{
    int rc = plan_sum(g, &g->votes, n);
    return rc == OK ? meet_mates(g, &g->votes, x) : rc;
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

/* ---- the model ---- */

int slice_group_show(struct slice_group *g, uint32_t uses, bool ended, bool offers, bool speaks)
{
    struct member *m = g->m;
    struct ranks ranks = *g->mates;
    ranks.node[ranks.count++] = WORLD_DRIVER;
    if (!slice_group_is_current(g))
        return ERR_VIEW;
    int rc = m->evaluate(m, uses, ended);
    if (rc != OK || !offers)
        return rc;
    struct coll c = slice_group_coll(g, &ranks, PARTS_LANE, 0, NULL);
    c.outlives_driver = true;
    atomic_store(&m->group->work.busy, false);
    rc = m->offer(m, &c, uses, speaks);
    atomic_store(&m->group->work.busy, true);
    return rc;
}

uint64_t slice_group_take_bytes(struct slice_group *g)
{
    uint64_t bytes = g->bytes;
    g->bytes = 0;
    return bytes;
}
