#include "strategy/slice_group.h"

/* How long a slice waits for the driver to end a run in which another slice is lost. */
#define END_WAIT (60 * WORLD_SECOND)

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
        .go = SIGNAL_SLICE_MEETING,
        .done = SIGNAL_SLICE_MET,
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
