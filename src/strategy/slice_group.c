#include "strategy/slice_group.h"

#include <string.h>

/* How long a slice waits for the driver to end a run in which another slice is lost. */
#define END_WAIT (60 * WORLD_SECOND)

/* Messages of slices have a lane of their own, in which there are no exchanges. */
enum { SLICE_LANE = ROSTER_LANES_MAX - 1 };

static struct model_slice slice_at(const struct slice_group *g, size_t index)
{
    return (struct model_slice){index, g->slice.count};
}

static const struct segments *whole_table(const struct slice_group *g)
{
    return net_whole_segments(g->m->learner->ws->train);
}

/* ---- its life ---- */

static int make_model(struct slice_group *g)
{
    struct member *m = g->m;
    const struct optim *optim = &m->learner->optim;
    size_t n = whole_table(g)->total, states = optim->ops->states;
    struct vec *x = arena_array(m->arena, 1 + states, struct vec);
    if (!x)
        return ERR_NOMEM;
    for (size_t i = 0; i <= states; i++)
        if (vec_init(&x[i], m->arena, n) != OK)
            return ERR_NOMEM;
    m->model = (struct global_model){
        .x = x,
        .s = &m->learner->s,
        .state = x + 1,
        .states = states,
    };
    return OK;
}

int slice_group_open(struct slice_group *g, struct member *m)
{
    *g = (struct slice_group){.m = m, .slice = m->learner->ws->slice};
    g->plans = net_points(m->learner->ws->train);
    g->plan = arena_array(m->arena, g->plans, struct coll_plan);
    g->cut = arena_array(m->arena, g->slice.count + 1, size_t);
    return g->plan && g->cut ? make_model(g) : ERR_NOMEM;
}

void slice_group_close(struct slice_group *g)
{
    for (size_t i = 0; g->plan && i < g->plans; i++)
        coll_plan_release(&g->plan[i]);
    coll_plan_release(&g->model);
}

/* ---- running a plan ---- */

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

/* Rank f is the member with slice f (worker_open.c chooses the slice by the same rule). */
static int rank_slices(const struct slice_group *g, const struct view *view, struct ranks *ranks)
{
    size_t count = g->slice.count;
    const struct members members = view_participants(view);
    *ranks = (struct ranks){.count = count, .me = g->slice.index};
    if (members_count(&members) != count)
        return ERR_VIEW;
    MEMBERS_EACH (node, &members)
        ranks->node[node % count] = node;
    return ranks->node[ranks->me] == g->m->world->self ? OK : ERR_PROTOCOL;
}

/* Others may still be computing, so that a wait has no deadline but the view's end. */
static int run_plan(struct slice_group *g, struct coll_plan *plan, float *x)
{
    struct group *group = g->m->group;
    const struct exchange_config config = strategy_exchange_config(g->m->job);
    const struct view *view = group_view(group);
    struct ranks ranks;
    struct coll_waits waits = {0};
    int rc = rank_slices(g, view, &ranks);
    struct coll c = {.group = group,
                     .view = view,
                     .ranks = &ranks,
                     .lane = SLICE_LANE,
                     .n = ++g->meetings,
                     .chunk_floats = config.chunk,
                     .stripes = config.stripes,
                     .waits = &waits,
                     .patient = true};
    atomic_store(&group->work.busy, false);
    if (rc == OK)
        rc = coll_run(&c, plan, x, (struct coll_owed){0});
    g->bytes += waits.bytes;
    if (rc == ERR_VIEW)
        return slice_group_await_end(g);
    atomic_store(&group->work.busy, true);
    return rc;
}

/* The plan is made once: its ranks are the slices, whatever the view. */
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

static int plan_sum(struct slice_group *g, struct coll_plan *plan, size_t n)
{
    const struct exchange_config config = strategy_exchange_config(g->m->job);
    size_t count = g->slice.count;
    struct schedule schedule;
    if (is_made(plan))
        return OK;
    enum coll_algorithm algorithm =
        config.algorithm == COLL_AUTO ? auto_rule(CODEC_F32, count, n) : config.algorithm;
    int rc = schedule_allreduce(&schedule, algorithm, count, g->slice.index, n, NULL);
    return make_plan(g, plan, &schedule, rc);
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

/* The columns of one slice: out of the rows, or into them. */
static void copy_columns(const struct slice_group *g, const struct net_point *p, size_t index,
                         bool into_rows)
{
    const struct model_slice slice = slice_at(g, index);
    struct range own = slice_units(&slice, p->outputs);
    size_t n = own.len * p->each, width = p->outputs * p->each;
    for (size_t r = 0; r < p->rows; r++) {
        float *row = p->values + r * width + own.from * p->each;
        float *part = g->parts + g->cut[index] + r * n;
        memcpy(into_rows ? row : part, into_rows ? part : row, n * sizeof *row);
    }
}

static int gather_columns(struct slice_group *g, const struct net_point *p, struct coll_plan *plan)
{
    size_t each = p->rows * p->each, n = each * p->outputs, count = g->slice.count;
    for (size_t f = 0; f < count; f++) {
        const struct model_slice slice = slice_at(g, f);
        g->cut[f] = each * slice_units(&slice, p->outputs).from;
    }
    g->cut[count] = n;
    int rc = reserve_parts(g, n);
    if (rc == OK)
        rc = plan_gather(g, plan, n);
    if (rc != OK)
        return rc;
    copy_columns(g, p, g->slice.index, false);
    rc = world_copied(g->m->world, n * sizeof(float));
    if (rc == OK)
        rc = run_plan(g, plan, g->parts);
    for (size_t f = 0; rc == OK && f < count; f++)
        if (f != g->slice.index)
            copy_columns(g, p, f, true);
    return rc;
}

int slice_group_meet(void *slice_group, const struct net_point *point)
{
    struct slice_group *g = slice_group;
    struct coll_plan *plan = &g->plan[point->number];
    if (point->meeting == NET_GATHER)
        return gather_columns(g, point, plan);
    int rc = plan_sum(g, plan, point->rows * point->outputs * point->each);
    return rc == OK ? run_plan(g, plan, point->values) : rc;
}

/* ---- the model ---- */

static int collect_vector(struct slice_group *g, const struct vec *own, float *all)
{
    const struct segments *whole = whole_table(g);
    size_t count = g->slice.count;
    vec_export(own, vec_all(own), g->parts + g->cut[g->slice.index]);
    int rc = run_plan(g, &g->model, g->parts);
    for (size_t f = 0; rc == OK && f < count; f++) {
        const struct model_slice slice = slice_at(g, f);
        slice_put(&slice, whole, g->parts + g->cut[f], all);
    }
    return rc;
}

int slice_group_collect(struct slice_group *g)
{
    struct global_model *model = &g->m->model;
    const struct learner *l = g->m->learner;
    size_t count = g->slice.count;
    g->cut[0] = 0;
    for (size_t f = 0; f < count; f++) {
        const struct model_slice slice = slice_at(g, f);
        g->cut[f + 1] = g->cut[f] + slice_total(&slice, whole_table(g));
    }
    int rc = reserve_parts(g, g->cut[count]);
    if (rc == OK)
        rc = plan_gather(g, &g->model, g->cut[count]);
    if (rc == OK)
        rc = collect_vector(g, &l->x, model->x->at);
    for (size_t i = 0; rc == OK && i < model->states; i++)
        rc = collect_vector(g, &l->optim.state[i], model->state[i].at);
    model->updates = l->optim.updates;
    return rc;
}

uint64_t slice_group_take_bytes(struct slice_group *g)
{
    uint64_t bytes = g->bytes;
    g->bytes = 0;
    return bytes;
}
