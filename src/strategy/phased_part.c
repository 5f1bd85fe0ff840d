/* Prepares the sums of an exchange: on the driver for a whole shard; with `coordination:
 * symmetric` on each member for the part that it owns. Parts move when the membership changes: a
 * new owner has the last x̃*, as all have, and ṽ, which each computes; x̃ follows from them. */
#include "strategy/phased.h"

#include "base/minmax.h"
#include "world/trace.h"

/* Passes over the range, as a copy makes one: next from now 3, R 2, Eq. 8 1, Eq. 4 and 5 2, out 1.
 */
enum { PREPARE_PASSES = 9 };

static size_t end_of(struct range r)
{
    return r.from + r.len;
}

static struct range range_between(size_t from, size_t end)
{
    return end > from ? (struct range){from, end - from} : (struct range){0, 0};
}

/* A range of the lane's vector that is of x_s, and, counted from its beginning, of s. */
static struct range of_x(const struct phased_lane *lane, struct range r)
{
    return range_between(r.from, min_size(end_of(r), lane->r.len));
}

static struct range of_s(const struct phased_lane *lane, struct range r)
{
    size_t n = lane->r.len;
    return range_between(max_size(r.from, n) - n, max_size(end_of(r), n) - n);
}

int phased_part_init(struct phased_lane *lane, struct vec *x, struct vec *s, bool own,
                     struct arena *arena)
{
    struct phased_part *p = &lane->part;
    const struct vec *v = own ? NULL : lane->node->v;
    struct vec x_s = {x->at + lane->r.from, lane->r.len}, v_s = {0};
    if (v)
        v_s = (struct vec){v->at + lane->r.from, lane->r.len};
    p->s = (struct vec){s->at, lane->n_s};
    if (own && (vec_init(&x_s, arena, x_s.n) != OK || vec_init(&p->s, arena, lane->n_s) != OK))
        return ERR_NOMEM;
    if (!own)
        p->owned = range_between(0, lane->exchange.n_floats);
    int rc = vec_init(&p->s_next, arena, lane->n_s);
    return rc == OK ? mpca_joint_init(&p->joint, &x_s, v ? &v_s : NULL, arena) : rc;
}

/* x̃ = x̃* − γ·ṽ (Eq. 5), of what all members have. */
static void take_over(struct phased_lane *lane, struct range r)
{
    const struct vec *heading = phased_heading(lane);
    struct phased_part *p = &lane->part;
    struct mpca_model *now = &p->joint.now;
    const struct vec *last = exchange_result(&lane->exchange);
    struct vec last_s = {last->at + lane->r.len, lane->n_s};
    struct range xs = of_x(lane, r), ss = of_s(lane, r);
    vec_copy(&now->x, last, xs);
    vec_copy(&now->star, last, xs);
    vec_fill(&now->v, xs, 0);
    vec_copy(&p->s, &last_s, ss);
    if (heading->n == 0)
        return;
    vec_copy(&now->v, heading, xs);
    vec_axpy(&now->x, -heading->at[lane->r.len + HEADING_GAMMA], &now->v, xs);
}

struct mpca_config phased_steer(const struct phased_lane *lane, const struct exchange_meta *meta)
{
    const struct phased_node *node = lane->node;
    const struct phased_rule *rule = node->rule;
    return rule->steer ? rule->steer(&node->settings, meta, &lane->leap) : node->settings.config;
}

int phased_lane_prepare(void *user, struct range range, float *x, const struct exchange_meta *meta)
{
    struct phased_lane *lane = user;
    struct phased_part *p = &lane->part;
    struct range xs = of_x(lane, range), ss = of_s(lane, range), owned = p->owned;
    struct world *world = lane->node->world;
    int64_t begun = trace_now(world);
    if (owned.len == 0)
        owned.from = end_of(range);
    take_over(lane, range_between(range.from, min_size(end_of(range), owned.from)));
    take_over(lane, range_between(max_size(range.from, end_of(owned)), end_of(range)));
    struct mpca_sum sum = {.x = x, .tau = (uint64_t)meta->weight};
    const struct mpca_config config = phased_steer(lane, meta);
    mpca_prepare(&p->joint, &config, lane->exchange.completed, xs, &sum);
    vec_export(&p->joint.next.star, xs, x);
    sum.x = x + xs.len;
    vec_copy(&p->s_next, &p->s, ss);
    mpca_mean(&p->s_next, ss, &sum);
    vec_export(&p->s_next, ss, sum.x);
    p->prepared = range;
    int rc = world_copied(world, PREPARE_PASSES * range.len * sizeof *x);
    trace_copied(world, begun, (uint8_t)lane->exchange.lane, lane->exchange.completed + 1,
                 PREPARE_PASSES * range.len * sizeof *x);
    return rc;
}

void phased_part_commit(struct phased_lane *lane)
{
    struct phased_part *p = &lane->part;
    mpca_commit(&p->joint, of_x(lane, p->prepared));
    vec_copy(&p->s, &p->s_next, of_s(lane, p->prepared));
    p->owned = p->prepared;
}

void phased_part_take_up(struct phased_lane *lane)
{
    struct phased_part *p = &lane->part;
    struct range all = range_between(0, lane->exchange.n_floats);
    take_over(lane, all);
    p->owned = all;
}

void phased_part_take_leap(struct phased_lane *lane)
{
    const struct vec *heading = phased_heading(lane);
    if (heading->n == 0)
        return;
    const float *extra = &heading->at[lane->r.len];
    lane->leap = (struct pace_leap){extra[HEADING_LEAP_STEPS], extra[HEADING_LEAP_PERIOD]};
}

/* It reads three vectors and writes one; a copy reads one and writes one. */
enum { FOLLOW_PASSES = 2 };

static int follow_heading(struct phased_lane *lane)
{
    struct exchange *e = &lane->exchange;
    struct vec *heading = phased_heading(lane), *last = &lane->heading[~e->completed & 1];
    struct range xs = {0, lane->r.len}, extras = {xs.len, HEADING_EXTRAS};
    struct world *world = lane->node->world;
    int64_t begun = trace_now(world);
    const struct exchange_meta *meta = exchange_result_meta(e);
    if (heading->at != last->at)
        vec_copy(heading, last, meta->weight == 0 ? vec_all(heading) : extras);
    e->config.kept = *heading;
    if (meta->weight == 0)
        return OK;
    float *extra = &heading->at[xs.len];
    const struct mpca_config config = phased_steer(lane, meta);
    const struct mpca_star before = {&e->result[~e->completed & 1], extra[HEADING_GAMMA]},
                           now = {exchange_result(e), mpca_gamma(&config, e->completed - 1)};
    mpca_follow(heading, &config, last, &before, &now, xs);
    extra[HEADING_GAMMA] = now.gamma;
    int rc = world_copied(world, FOLLOW_PASSES * xs.len * sizeof(float));
    trace_copied(world, begun, (uint8_t)e->lane, e->completed,
                 FOLLOW_PASSES * xs.len * sizeof(float));
    return rc;
}

int phased_part_follow(struct phased_lane *lane)
{
    const struct phased_node *node = lane->node;
    const struct exchange_meta *meta = exchange_result_meta(&lane->exchange);
    int rc = node->worker ? follow_heading(lane) : OK;
    if (node->rule->leap && meta->weight > 0)
        lane->leap = node->rule->leap(&node->settings, meta, &lane->leap);
    if (!node->worker)
        return rc;
    float *extra = &phased_heading(lane)->at[lane->r.len];
    extra[HEADING_LEAP_STEPS] = lane->leap.steps;
    extra[HEADING_LEAP_PERIOD] = lane->leap.period;
    return rc;
}

/* ---- the driver, with `coordination: driver` ---- */

static bool all_joined(const struct phased_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= atomic_load(&node->lane[i].arrived) != PHASED_NONE;
    return all;
}

/* Lanes reduce, prepare and broadcast; this function updates the global model. On a recovered
 * driver each lane's task writes its shard of it when it enters; until all have, the model is
 * neither copied nor final. ERR_PEER: no worker is left that has it */
static int follow_model(struct phased_node *node, struct driver_part *l)
{
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(l->world, SIGNAL_PHASED),
            wait_signal(l->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = phased_node_status(node);
        bool joined = all_joined(node);
        if (rc == OK && !joined && group_view(l->group)->count == 0)
            rc = ERR_PEER;
        for (uint32_t i = 0; rc == OK && joined && i < node->lanes; i++) {
            if (!atomic_load(&node->lane[i].prepared))
                continue;
            phased_lane_commit(&node->lane[i]);
            rc = l->on_commit(l, NULL);
        }
        if (rc == OK && joined && driver_part_saves(l))
            rc = l->on_commit(l, NULL);
        if (rc != OK || (joined && atomic_load(&l->finish)))
            return rc;
        rc = world_wait(l->world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

int phased_driver(struct driver_part *l)
{
    struct phased_node *node = arena_new(l->arena, struct phased_node);
    if (!node)
        return ERR_NOMEM;
    struct vec *v = arena_new(l->arena, struct vec);
    if (!v || vec_init(v, l->arena, l->x.n) != OK)
        return ERR_NOMEM;
    if (l->resumed.extra)
        vec_copy(v, l->resumed.extra, vec_all(v));
    l->model.extra = node->v = v;
    node->world = l->world;
    node->group = l->group;
    node->joins = l->lanes.needs_sync;
    int rc = phased_node_init(node, l->job, &l->x, &l->s, l->progress.exchanges, l->arena);
    if (rc == OK)
        rc = phased_node_start(node);
    if (rc == OK)
        rc = follow_model(node, l);
    phased_node_close(node);
    return rc;
}
