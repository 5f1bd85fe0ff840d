#include "coll/exchange_internal.h"

#include "base/fault.h"
#include "coll/lossy.h"
#include "coll/split.h"

_Static_assert((int)TRACE_LANES == (int)ROSTER_LANES_MAX, "every lane has a row");

/* The allowed transitions. A view change or an error ends any stage; the next attempt begins with a
 * report in the new view. */
static const uint8_t next_stages[EXCHANGE_STAGES] = {
    [EXCHANGE_IDLE] = 1 << EXCHANGE_IDLE | 1 << EXCHANGE_REPORTING | 1 << EXCHANGE_COLLECTING,
    [EXCHANGE_REPORTING] = 1 << EXCHANGE_ADOPTING | 1 << EXCHANGE_REPORTING | 1 << EXCHANGE_IDLE,
    [EXCHANGE_ADOPTING] = 1 << EXCHANGE_COLLECTING | 1 << EXCHANGE_REPORTING | 1 << EXCHANGE_IDLE,
    [EXCHANGE_COLLECTING] = 1 << EXCHANGE_REDUCING | 1 << EXCHANGE_REPORTING | 1 << EXCHANGE_IDLE,
    [EXCHANGE_REDUCING] = 1 << EXCHANGE_REPORTING | 1 << EXCHANGE_IDLE,
};

void exchange_enter(struct exchange *e, enum exchange_stage stage)
{
    PL_ASSERT(next_stages[e->stage] & 1 << stage);
    e->stage = stage;
}

int exchange_init(struct exchange *e, struct group *group, uint32_t lane, bool driver_takes_part,
                  size_t n, const struct exchange_config *config, uint64_t completed,
                  struct arena *arena)
{
    PL_ASSERT(lane < ROSTER_LANES_MAX);
    *e = (struct exchange){
        .group = group,
        .lane = lane,
        .driver_takes_part = driver_takes_part,
        .config = *config,
        .n_floats = n,
        .completed = completed,
        .synced = 1, /* in the first view all members start at the same exchange */
        .made_in = 1,
    };
    if (group->observer && group->observer->opened)
        group->observer->opened(group->observer->user, group->world->self, e);
    while (n / e->config.chunk + 1 >= WIRE_HEADER_PIECE) /* pieces have numbers of sixteen bits */
        e->config.chunk *= 2;
    size_t owed = config->codec == CODEC_F32 || config->states ? 0 : n;
    if (vec_init(&e->input, arena, n) != OK || vec_init(&e->result[0], arena, n) != OK ||
        vec_init(&e->result[1], arena, n) != OK || vec_init(&e->residual[0], arena, owed) != OK ||
        vec_init(&e->residual[1], arena, owed) != OK)
        return ERR_NOMEM;
    return OK;
}

void exchange_join(struct exchange *e, uint64_t completed)
{
    e->completed = completed;
    e->synced = e->made_in = 0;
    e->standing = LANE_JOINED;
    e->averaged = 0;
}

void exchange_join_unsynced(struct exchange *e)
{
    exchange_join(e, 0);
    e->standing = LANE_UNKNOWN;
}

void exchange_release(struct exchange *e)
{
    coll_plan_release(&e->plan);
    coll_plan_release(&e->result_plan);
}

const struct vec *exchange_result(const struct exchange *e)
{
    return &e->result[e->completed & 1];
}

const struct exchange_meta *exchange_result_meta(const struct exchange *e)
{
    return &e->meta[e->completed & 1];
}

static void rank_view(const struct exchange *e, const struct view *view, struct ranks *ranks)
{
    uint32_t self = e->group->world->self;
    ranks->count = 0;
    if (e->driver_takes_part)
        ranks->node[ranks->count++] = WORLD_DRIVER;
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&view->leaves, view->node[i]))
            ranks->node[ranks->count++] = view->node[i];
    ranks->me = 0;
    while (ranks->me < ranks->count && ranks->node[ranks->me] != self)
        ranks->me++;
    PL_ASSERT(ranks->me < ranks->count);
}

struct coll exchange_coll(const struct exchange *e, const struct view *view, struct ranks *ranks,
                          struct coll_waits *waits)
{
    rank_view(e, view, ranks);
    return (struct coll){.group = e->group,
                         .view = view,
                         .ranks = ranks,
                         .lane = e->lane,
                         .chunk_floats = e->config.chunk,
                         .waits = waits};
}

int exchange_make_plan(const struct exchange *e, struct coll_plan *plan, size_t chunk,
                       enum codec codec, struct schedule *schedule, int rc)
{
    const struct coll_config config = {
        .chunk = chunk,
        .codec = codec,
        .reduction = e->config.reduction,
        .serialise = e->group->world->costs.crypto,
        .reduce = e->group->world->costs.reduce,
    };
    coll_plan_release(plan);
    if (rc == OK && codec != CODEC_F32)
        rc = schedule_set_exact(schedule, e->config.exact.from, e->config.exact.len);
    if (rc == OK)
        rc = coll_plan_make(plan, schedule, &config);
    schedule_release(schedule);
    return rc;
}

/* A plan depends on the view's ranks, the algorithm and the codec, so it is made again only when
 * one of them changes. */
static int plan_for(struct exchange *e, const struct coll *c, const struct exchange_meta *meta)
{
    enum coll_algorithm algorithm = (enum coll_algorithm)meta->algorithm;
    struct cost_choice choice = {.algorithm = algorithm, .chunk = e->config.chunk};
    const size_t *cut = NULL;
    int rc = OK;
    if (exchange_measures(e))
        rc = auto_choose(&e->automatic, c, e->n_floats, e->config.codec, &choice, &cut);
    else if (e->config.algorithm == COLL_AUTO)
        choice.chunk =
            auto_chunk(algorithm, e->config.codec, c->ranks->node[0] == WORLD_DRIVER, choice.chunk);
    if (rc != OK)
        return rc;
    algorithm = choice.algorithm;
    enum codec codec = exchange_codec(e, meta);
    if (e->planned_in == c->view->number && e->planned == algorithm && e->planned_codec == codec)
        return OK;
    struct schedule schedule;
    e->planned_in = 0;
    rc = schedule_allreduce(&schedule, algorithm, c->ranks->count, c->ranks->me, e->n_floats, cut);
    rc = exchange_make_plan(e, &e->plan, choice.chunk, codec, &schedule, rc);
    if (rc != OK)
        return rc;
    e->planned_in = c->view->number;
    e->planned = algorithm;
    e->planned_codec = codec;
    return OK;
}

/* Reduce the vector, timed for `auto`. */
static int run_vector(struct exchange *e, struct coll *c, float *x, struct coll_owed owed)
{
    int64_t start = world_now(e->group->world);
    uint64_t moved = atomic_load(&e->group->moved);
    int rc = coll_run(c, &e->plan, x, owed);
    double seconds = world_seconds(world_now(e->group->world) - start);
    bool usual = exchange_measures(e) && e->planned_codec == e->config.codec;
    e->took = rc == OK && usual ? auto_took(c, seconds, moved, e->plan.moved) : 0;
    return rc;
}

/* The attempt's metadata have arrived: a refused member contributes nothing, and keeps what it owes
 * to sums. */
static void take_verdict(const struct exchange *e, const struct exchange_meta *meta,
                         struct vec *result, struct coll_owed *owed)
{
    if (!exchange_is_refused(e, meta))
        return;
    vec_fill(result, vec_all(result), 0.0f);
    owed->sums = NULL;
}

/* One attempt at exchange n in one view: result[n & 1] ← Σ w·input / Σ w on every rank. */
static int attempt_exchange(struct exchange *e, struct coll *c)
{
    struct vec *result = &e->result[c->n & 1], *owed = &e->residual[c->n & 1];
    struct exchange_meta *meta = &e->meta[c->n & 1];
    struct range all = vec_all(result);
    int64_t begun = trace_now(e->group->world);
    if (e->config.split && e->config.codec == CODEC_F32)
        return split_run(e, c);
    if (e->mine.weight > 0)
        vec_copy(result, &e->input, all);
    else
        vec_fill(result, all, e->config.plain ? e->config.identity : 0.0f);
    if (e->mine.weight > 0)
        exchange_add_base(e, result, -1.0f, all);
    if (e->mine.weight > 0 && !e->config.plain)
        vec_scale(result, (float)e->mine.weight, all);
    if (owed->n > 0)
        vec_copy(owed, &e->residual[~c->n & 1], all);
    e->attempted = c->n;
    int rc = world_copied(e->group->world, result->n * sizeof(float));
    trace_end(e->group->world, begun,
              exchange_span(e, SPAN_COPY, (result->n + owed->n) * sizeof(float)));
    if (rc == OK && e->config.split)
        return split_run(e, c);
    if (rc == OK)
        rc = exchange_reduce_meta(e, c, meta);
    if (rc == OK)
        rc = plan_for(e, c, meta);
    struct coll_owed owes = exchange_owed(e, owed);
    if (rc == OK) {
        take_verdict(e, meta, result, &owes);
        exchange_pay_owed(e, meta, result, owed);
        rc = run_vector(e, c, result->at, owes);
    }
    if (rc == OK && meta->weight > 0 && !e->config.plain)
        vec_scale(result, (float)(1.0 / meta->weight), all);
    if (rc == OK)
        exchange_add_base(e, result, 1.0f, all);
    return rc;
}

static void record_cost(struct exchange *e, int64_t start, const struct coll_waits *waits)
{
    e->cost = (struct exchange_cost){
        .seconds = world_seconds(world_now(e->group->world) - start),
        .waited_s = world_seconds(waits->total),
        .waited_for = waits->longest_for,
        .bytes = waits->bytes,
        .arrival_from = waits->arrived_from,
    };
    if (waits->arriving > 0)
        e->cost.arrival_mbit = (double)waits->arrived_bytes * 8e-6 / world_seconds(waits->arriving);
}

static void show_contribution(struct exchange *e)
{
    const struct group_observer *observer = e->group->observer;
    if (observer && observer->contributes && e->mine.weight > 0)
        observer->contributes(observer->user, e->group->world->self, &e->input);
}

/* Fix this member's contribution for all attempts at the exchange: an attempt in a later view must
 * not differ, as other members may have completed the earlier one. */
static int take_input(struct exchange *e, const struct exchange_meta *mine)
{
    uint32_t self = e->group->world->self;
    e->mine = *mine;
    show_contribution(e);
    if (e->standing != LANE_HELD)
        e->mine.weight = 0;
    if (self != WORLD_DRIVER)
        members_add(&e->mine.participants, self);
    if (self != WORLD_DRIVER && !e->config.once && atomic_load(&e->group->leave.begun))
        members_add(&e->mine.leaving, self);
    if (e->mine.weight > 0 && !e->config.plain && !vec_finite(&e->input, vec_all(&e->input)))
        e->mine.weight = 0;
    if (e->mine.weight > 0) {
        members_add(&e->mine.contributors, self);
    } else { /* its samples are not counted as used: they are granted again */
        if (self != WORLD_DRIVER && e->standing != LANE_HELD)
            members_add(&e->mine.non_contributing, self);
        e->mine.samples = 0;
        e->mine.loss = 0;
    }
    PL_ASSERT(e->standing == LANE_HELD || e->mine.weight == 0); /* J4 */
    return e->config.reject ? exchange_make_claim(e) : OK;
}

/* Attempts exchange n in one view after another until it completes. In each new view the lane is
 * brought into line first, because a member may have completed n in the view before; then its
 * result counts, and this member adopts it. */
static int run_exchange(struct exchange *e, const struct exchange_meta *mine)
{
    const uint64_t n = e->completed + 1;
    struct coll_waits waits = {0};
    int64_t start = world_now(e->group->world);
    uint32_t attempted_in = e->synced; /* or at the exchange before */
    struct ranks ranks;
    PL_ASSERT(e->standing != LANE_UNKNOWN); /* E3 */
    int claimed = take_input(e, mine);
    if (claimed != OK)
        return claimed;
    for (;;) {
        if (atomic_load(&e->group->end.over))
            return ERR_DRIVER;
        const struct view *view = group_view(e->group);
        if (view->count == 0)
            return ERR_PEER;
        if (view->number != e->synced && (e->config.once || group_was_leaf(e->group, e->synced)))
            return ERR_VIEW;
        struct coll c = exchange_coll(e, view, &ranks, &waits);
        int rc = OK;
        if (view->number != e->synced)
            rc = exchange_bring_into_line(e, &c);
        bool adopted = rc == OK && e->completed == n; /* a member had completed it */
        c.n = n;
        if (rc == OK && !adopted && view->number != attempted_in && e->config.on_view)
            e->config.on_view(e->config.on_view_user);
        attempted_in = view->number;
        if (rc == OK && !adopted)
            rc = attempt_exchange(e, &c);
        if (rc == OK) {
            PL_ASSERT(adopted || e->completed + 1 == n); /* E2: one after another */
            e->completed = n;
            e->standing = LANE_HELD;
            e->averaged += !adopted;
            exchange_pass(e, 0);
            record_cost(e, start, &waits);
            exchange_note_flush(e);
            return OK;
        }
        exchange_pass(e, 0);
        if (rc != ERR_VIEW || e->config.once) /* else the view changed; try again in the new one */
            return rc;
    }
}

/* Run the exchange as not busy: while a member waits for others, no progress is expected of it, and
 * the driver must not take it for hung. */
static int run_idle(struct exchange *e, const struct exchange_meta *mine)
{
    if (!e->in_background)
        atomic_store(&e->group->work.busy, false);
    int rc = run_exchange(e, mine);
    if (!e->in_background)
        atomic_store(&e->group->work.busy, true);
    exchange_enter(e, EXCHANGE_IDLE);
    return rc;
}

int exchange_run(struct exchange *e, const struct exchange_meta *mine)
{
    struct trace_span span = exchange_span(e, SPAN_EXCHANGE, 0);
    int64_t begun = trace_now(e->group->world);
    int rc = run_idle(e, mine);
    span.amount = e->cost.bytes;
    trace_end(e->group->world, begun, span);
    return rc;
}
