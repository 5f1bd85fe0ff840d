/* Prepares the sums of an exchange: on the driver for a whole shard; with `coordination:
 * symmetric` on each member for the part that it owns. Parts move when the membership changes: a
 * new owner has the last x̃*, as all have, and ṽ, which each computes; x̃ follows from them. */
#include "strategy/phased.h"

#include "base/minmax.h"
#include "world/trace.h"

/* Of mpca_prepare over the range, and of mpca_follow, as a copy makes one: it reads one vector and
 * writes one. */
enum { PREPARE_PASSES = 3, FOLLOW_PASSES = 2 };

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

int phased_part_init(struct phased_lane *lane, struct vec *x, struct vec *s, struct arena *arena)
{
    struct phased_part *p = &lane->part;
    const struct phased_node *node = lane->node;
    size_t n = lane->r.len;
    int rc = vec_init(&p->s_next, arena, lane->n_s);
    if (rc == OK)
        rc = vec_init(&p->joint.next.x, arena, n);
    if (node->worker) {
        if (rc == OK)
            rc = vec_init(&p->joint.now.x, arena, n);
        return rc == OK ? vec_init(&p->s, arena, lane->n_s) : rc;
    }
    p->joint.now.x = phased_shard(lane, x);
    if (node->v)
        p->joint.now.v = phased_shard(lane, node->v);
    else if (rc == OK)
        rc = vec_init(&p->joint.now.v, arena, n);
    p->s = vec_part(s, 0, lane->n_s);
    p->owned = range_between(0, lane->exchange.n_floats);
    return rc == OK ? vec_init(&p->joint.next.v, arena, n) : rc;
}

/* x̃* before and after this exchange are its results. So are, on a worker, the headings for ṽ. */
static void take_vectors(struct phased_lane *lane, float *result)
{
    const struct exchange *e = &lane->exchange;
    struct mpca_joint *joint = &lane->part.joint;
    size_t n = lane->r.len;
    joint->now.star = vec_part(exchange_result(e), 0, n);
    joint->next.star = (struct vec){result, n};
    if (!lane->node->worker)
        return;
    joint->now.v = vec_part(&lane->heading[e->completed & 1], 0, n);
    joint->next.v = vec_part(&lane->heading[~e->completed & 1], 0, n);
}

/* x̃ = x̃* − γ·ṽ (Eq. 5), of what all members have. */
static void take_over(struct phased_lane *lane, struct range r)
{
    const struct vec *heading = phased_heading(lane), *last = exchange_result(&lane->exchange);
    struct phased_part *p = &lane->part;
    struct mpca_model *now = &p->joint.now;
    struct vec last_s = {last->at + lane->r.len, lane->n_s};
    struct range xs = of_x(lane, r);
    vec_copy(&now->x, last, xs);
    vec_copy(&p->s, &last_s, of_s(lane, r));
    if (heading->n == 0)
        vec_fill(&now->v, xs, 0);
    else if (heading->at != now->v.at)
        vec_copy(&now->v, heading, xs);
    if (heading->n > 0)
        vec_axpy(&now->x, -heading->at[lane->r.len + HEADING_GAMMA], &now->v, xs);
}

/* No steps would correct an extrapolation: members' training has ended. */
static bool has_stop_votes(const struct exchange_meta *meta)
{
    return meta->stop_votes > 0;
}

struct mpca_config phased_steer(const struct phased_lane *lane, const struct exchange_meta *meta)
{
    const struct phased_node *node = lane->node;
    const struct phased_rule *rule = node->rule;
    struct mpca_config config =
        rule->steer ? rule->steer(&node->settings, meta, &lane->leap) : node->settings.config;
    if (has_stop_votes(meta))
        config.gamma = 0;
    return config;
}

int phased_lane_prepare(void *user, struct range range, float *x, const struct exchange_meta *meta)
{
    struct phased_lane *lane = user;
    struct phased_part *p = &lane->part;
    struct range xs = of_x(lane, range), ss = of_s(lane, range), owned = p->owned;
    struct world *world = lane->node->world;
    int64_t begun = trace_now(world);
    take_vectors(lane, x - range.from);
    if (owned.len == 0)
        owned.from = end_of(range);
    take_over(lane, range_between(range.from, min_size(end_of(range), owned.from)));
    take_over(lane, range_between(max_size(range.from, end_of(owned)), end_of(range)));
    struct mpca_sum sum = {.x = x, .tau = (uint64_t)meta->weight};
    const struct mpca_config config = phased_steer(lane, meta);
    mpca_prepare(&p->joint, &config, lane->exchange.completed, xs, &sum);
    bool leapt = !lane->node->rule->leap || lane->leap.steps > 0;
    if (sum.tau == 0 && has_stop_votes(meta) && leapt)
        vec_copy(&p->joint.next.star, &p->joint.now.x, xs);
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
    struct mpca_model *now = &p->joint.now, *next = &p->joint.next;
    struct range xs = of_x(lane, p->prepared);
    vec_copy(&p->s, &p->s_next, of_s(lane, p->prepared));
    p->owned = p->prepared;
    if (lane->node->worker) { /* beyond its part x̃ is not kept */
        struct vec x = now->x;
        now->x = next->x;
        next->x = x;
        return;
    }
    vec_copy(&now->x, &next->x, xs);
    vec_copy(&now->v, &next->v, xs);
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
    lane->leap = (struct pace_leap){
        .steps = extra[HEADING_LEAP_STEPS],
        .period = extra[HEADING_LEAP_PERIOD],
        .trained = extra[HEADING_LEAP_TRAINED],
    };
}

/* Where this node has prepared the exchange, it has written ṽ with it. */
static int follow_heading(struct phased_lane *lane)
{
    struct exchange *e = &lane->exchange;
    struct vec *heading = phased_heading(lane), *last = &lane->heading[~e->completed & 1];
    struct range xs = {0, lane->r.len}, extras = {xs.len, HEADING_EXTRAS};
    struct range own = of_x(lane, lane->part.prepared);
    struct world *world = lane->node->world;
    int64_t begun = trace_now(world);
    const struct exchange_meta *meta = exchange_result_meta(e);
    if (heading->at != last->at)
        vec_copy(heading, last, meta->weight == 0 ? vec_all(heading) : extras);
    e->config.kept = *heading;
    float *extra = &heading->at[xs.len];
    if (meta->weight == 0 && has_stop_votes(meta))
        extra[HEADING_GAMMA] = 0;
    if (meta->weight == 0)
        return OK;
    const struct mpca_config config = phased_steer(lane, meta);
    const struct mpca_star before = {&e->result[~e->completed & 1], extra[HEADING_GAMMA]},
                           now = {exchange_result(e), mpca_gamma(&config, e->completed - 1)};
    mpca_follow(heading, &config, last, &before, &now, range_between(0, own.from));
    mpca_follow(heading, &config, last, &before, &now, range_between(end_of(own), xs.len));
    extra[HEADING_GAMMA] = now.gamma;
    size_t bytes = FOLLOW_PASSES * (xs.len - own.len) * sizeof(float);
    int rc = world_copied(world, bytes);
    trace_copied(world, begun, (uint8_t)e->lane, e->completed, bytes);
    return rc;
}

int phased_part_follow(struct phased_lane *lane)
{
    const struct phased_node *node = lane->node;
    const struct exchange_meta *meta = exchange_result_meta(&lane->exchange);
    int rc = node->worker ? follow_heading(lane) : OK;
    if (node->rule->leap && meta->weight > 0)
        lane->leap = node->rule->leap(&node->settings, meta, &lane->leap);
    if (has_stop_votes(meta))
        lane->leap.steps = 0;
    if (!node->worker)
        return rc;
    float *extra = &phased_heading(lane)->at[lane->r.len];
    extra[HEADING_LEAP_STEPS] = lane->leap.steps;
    extra[HEADING_LEAP_PERIOD] = lane->leap.period;
    extra[HEADING_LEAP_TRAINED] = lane->leap.trained;
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
 * neither copied nor final. The lanes here may complete their last exchanges a little after those
 * of the workers that have ended; if these have ended in another way, there are none to wait for.
 * ERR_PEER: no worker is left that has it */
static int follow_model(struct phased_node *node, struct driver_part *l)
{
    int64_t deadline = WORLD_FOREVER;
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
            l->owes = phased_owes(node, l->checkpoint_due(l));
            rc = l->on_commit(l, NULL);
        }
        if (rc == OK && joined && driver_part_saves(l)) {
            l->owes = false; /* nobody trains */
            rc = l->on_commit(l, NULL);
        }
        bool finishes = joined && atomic_load(&l->finish);
        if (rc != OK || (finishes && (phased_closed(node) || world_now(l->world) >= deadline)))
            return rc;
        if (finishes && deadline == WORLD_FOREVER)
            deadline = world_now(l->world) + WORLD_SECOND;
        rc = world_wait(l->world, set, 2, deadline, &wake);
        if (rc != OK && rc != ERR_TIMEOUT)
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
