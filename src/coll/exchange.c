#include "coll/exchange.h"

#include "base/fault.h"
#include "coll/coll_meta.h"
#include "coll/lossy.h"
#include "coll/split.h"
#include "wire/wire_send.h"
#include "world/trace.h"

#include <stdlib.h>

/* Test builds plant the bug that the commit rule prevents, to prove that the tests would see it. */
#ifdef PLANT_SKIP_COMMIT_RULE
#define COMMIT_RULE 0
#else
#define COMMIT_RULE 1
#endif

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

bool exchange_counted(const struct exchange *e)
{
    const struct exchange_meta *meta = exchange_result_meta(e);
    return e->mine.weight > 0 &&
           (!e->config.reject || members_has(&meta->contributors, e->group->world->self));
}

bool exchange_meta_ends_run(const struct exchange_meta *meta)
{
    struct members stay = members_without(&meta->participants, &meta->leaving);
    return meta->stop_votes > 0 || members_empty(&stay);
}

bool exchange_was_last(const struct exchange *e)
{
    return e->completed > 0 && exchange_meta_ends_run(exchange_result_meta(e));
}

/* The sums of all members, */
static void merge_meta(void *header, const void *other)
{
    struct exchange_meta *t = header;
    const struct exchange_meta *o = other;
    t->weight += o->weight;
    t->samples += o->samples;
    t->loss += o->loss;
    t->stop_votes += o->stop_votes;
    t->flush_votes += o->flush_votes;
    t->checkpoint_votes += o->checkpoint_votes;
    t->contributors = members_union(&t->contributors, &o->contributors);
    t->participants = members_union(&t->participants, &o->participants);
    t->non_contributing = members_union(&t->non_contributing, &o->non_contributing);
    t->leaving = members_union(&t->leaving, &o->leaving);
    t->hash_min = o->hash_min < t->hash_min ? o->hash_min : t->hash_min;
    t->hash_max = o->hash_max > t->hash_max ? o->hash_max : t->hash_max;
    t->step_s = o->step_s > t->step_s ? o->step_s : t->step_s;
    if (t->exchange_s == 0 || (o->exchange_s > 0 && o->exchange_s < t->exchange_s))
        t->exchange_s = o->exchange_s;
    auto_meta_merge(&t->automatic, &o->automatic);
    t->rate += o->rate;
}

/* and with `reject` the claim of each, by rank. */
struct claimed_meta {
    struct exchange_meta meta;
    uint64_t ranks;
    struct outlier_claim claim[];
};

static void merge_claimed(void *header, const void *other)
{
    struct claimed_meta *t = header;
    const struct claimed_meta *o = other;
    merge_meta(&t->meta, &o->meta);
    for (uint64_t i = 0; i < t->ranks; i++)
        if (t->claim[i].weight == 0)
            t->claim[i] = o->claim[i];
}

/* Ranks are the driver, if it takes part, then the participants in ascending order: all derive the
 * same ones from the view. */
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

static size_t rank_of(const struct ranks *ranks, uint32_t node)
{
    size_t rank = 0;
    while (rank < ranks->count && ranks->node[rank] != node)
        rank++;
    return rank;
}

static struct trace_span span_of(const struct exchange *e, enum span_kind kind, uint64_t amount)
{
    return (struct trace_span){.kind = (uint8_t)kind,
                               .row = (uint8_t)e->lane,
                               .peer = WORLD_DRIVER,
                               .n = e->completed + 1,
                               .amount = amount};
}

static bool may_measure(const struct exchange *e)
{
    return e->config.algorithm == COLL_AUTO && !e->config.pinned && auto_measures(e->n_floats);
}

/* Rank 0 chooses the algorithm for all: members that chose for themselves could disagree. */
static void decide_algorithm(struct exchange *e, const struct coll *c, struct exchange_meta *meta)
{
    meta->algorithm = e->config.algorithm;
    if (e->config.algorithm == COLL_AUTO)
        meta->algorithm = auto_rule(e->config.codec, c->ranks->count, e->n_floats);
    if (may_measure(e))
        auto_decide(&e->automatic, c, e->n_floats, e->config.stripes, &meta->automatic);
}

/* Rank 0 decides for all which contributions do not count: take them out of the sums. */
static void refuse_outliers(const struct exchange *e, const struct coll *c, struct claimed_meta *t)
{
    enum outlier_cause cause[VIEW_MEMBERS_MAX + 1];
    double weight = 0, loss = 0;
    if (outlier_judge(t->claim, t->ranks, cause) == 0)
        return;
    for (size_t i = 0; i < t->ranks; i++) {
        const struct outlier_claim *claim = &t->claim[i];
        uint32_t node = c->ranks->node[i];
        if (cause[i] == OUTLIER_SOUND) {
            weight += claim->weight;
            loss += claim->loss;
            continue;
        }
        char why[OUTLIER_TEXT_MAX];
        outlier_explain(t->claim, t->ranks, i, cause[i], why);
        log_warn(e->group->log, "worker %u: its contribution to exchange %llu is refused: %s", node,
                 (unsigned long long)c->n, why);
        members_remove(&t->meta.contributors, node);
        t->meta.samples -= claim->samples;
    }
    t->meta.weight = weight;
    t->meta.loss = loss;
}

/* Reduce the metadata with the claims of all ranks, which rank 0 judges. */
static int reduce_claims(const struct exchange *e, struct coll *c, struct exchange_meta *meta)
{
    size_t len = sizeof(struct claimed_meta) + c->ranks->count * sizeof(struct outlier_claim);
    struct claimed_meta *mine = calloc(1, len), *other = malloc(len);
    int rc = mine && other ? OK : ERR_NOMEM;
    if (rc == OK) {
        mine->meta = *meta;
        mine->ranks = c->ranks->count;
        mine->claim[c->ranks->me] = e->claim;
        rc = coll_meta_reduce(c, mine, len, other, merge_claimed);
    }
    if (rc == OK && c->ranks->me == 0)
        refuse_outliers(e, c, mine);
    if (rc == OK)
        *meta = mine->meta;
    free(mine);
    free(other);
    return rc;
}

/* Reduce and broadcast the metadata: the sum of the inputs' weights and counts, and the algorithm.
 * It goes ahead of the vector because it is short and completes only when all members take part, so
 * no vector is sent to a member that still computes. */
static int reduce_meta(struct exchange *e, struct coll *c, struct exchange_meta *meta)
{
    struct exchange_meta other;
    *meta = e->mine;
    exchange_enter(e, EXCHANGE_COLLECTING);
    auto_meta_init(&meta->automatic, c, e->took);
    c->patient = true;
    int rc = e->config.reject ? reduce_claims(e, c, meta)
                              : coll_meta_reduce(c, meta, sizeof *meta, &other, merge_meta);
    if (rc == OK && c->ranks->me == 0)
        decide_algorithm(e, c, meta);
    if (rc == OK)
        rc = coll_meta_broadcast(c, meta, sizeof *meta);
    c->patient = false;
    exchange_enter(e, EXCHANGE_REDUCING);
    c->stripes = may_measure(e) ? (uint32_t)meta->automatic.stripes : e->config.stripes;
    if (rc == OK && meta->automatic.measure) {
        e->planned_in = 0;
        rc = auto_measure(&e->automatic, c, e->n_floats, e->config.codec, &meta->automatic);
    }
    if (rc == OK && e->config.probe_s > 0)
        rc = probe_links(c, e->config.probe_s, &e->automatic.probe);
    if (rc == OK && (meta->algorithm == COLL_AUTO || meta->algorithm >= COLL_ALGORITHMS))
        rc = ERR_PROTOCOL;
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
    if (may_measure(e))
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
    const struct coll_config config = {
        .chunk = choice.chunk,
        .codec = codec,
        .reduction = e->config.reduction,
        .serialise = e->group->world->costs.crypto,
        .reduce = e->group->world->costs.reduce,
    };
    coll_plan_release(&e->plan);
    e->planned_in = 0;
    rc = schedule_allreduce(&schedule, algorithm, c->ranks->count, c->ranks->me, e->n_floats, cut);
    if (rc == OK && config.codec != CODEC_F32)
        rc = schedule_set_exact(&schedule, e->config.exact.from, e->config.exact.len);
    if (rc == OK)
        rc = coll_plan_make(&e->plan, &schedule, &config);
    schedule_release(&schedule);
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
    bool usual = may_measure(e) && e->planned_codec == e->config.codec;
    e->took = rc == OK && usual ? auto_took(c, seconds, moved, e->plan.moved) : 0;
    return rc;
}

/* The attempt's metadata have arrived: a refused member contributes nothing, and keeps what it owes
 * to sums. */
static void take_verdict(const struct exchange *e, const struct exchange_meta *meta,
                         struct vec *result, struct coll_owed *owed)
{
    if (!e->config.reject || e->mine.weight == 0 ||
        members_has(&meta->contributors, e->group->world->self))
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
        return split_run(e, c, merge_meta);
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
    trace_end(e->group->world, begun, span_of(e, SPAN_COPY, (result->n + owed->n) * sizeof(float)));
    if (rc == OK && e->config.split)
        return split_run(e, c, merge_meta);
    if (rc == OK)
        rc = reduce_meta(e, c, meta);
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

/* Report how far this lane is. The driver decides when all participants have reported (E4). */
static int report_lane(const struct exchange *e, const struct view *view)
{
    struct buf bytes = {0};
    buf_put_u32(&bytes, view->number);
    buf_put_u32(&bytes, e->lane);
    buf_put_u64(&bytes, e->completed);
    buf_put_u8(&bytes, (uint8_t)e->standing);
    buf_put_u32(&bytes, e->made_in);
    /* The report goes out from the task that runs the lane, so it is never older than the state. */
    int rc = wire_send_buf(e->group->world, WORLD_DRIVER, WIRE_LANE_AT, e->lane, &bytes);
    buf_release(&bytes);
    if (rc != ERR_PEER)
        return rc;
    /* Without a driver nothing decides this view: wait for the view of the next driver. */
    rc = group_wait_view(e->group, view->number, WORLD_FOREVER);
    return rc == OK ? ERR_VIEW : rc;
}

/* Waits for the driver's decision on the lane in this view, made when all participants have
 * reported; workers that compute report at their next exchange. ERR_VIEW when the view ends
 * first. */
static int await_go(const struct exchange *e, const struct view *view, struct lane_go *go)
{
    struct world *world = e->group->world;
    for (;;) {
        const struct wait_for changed = wait_signal(world, SIGNAL_GROUP);
        if (group_view(e->group) != view || atomic_load(&e->group->end.over))
            return ERR_VIEW;
        const struct wait_for set[] = {
            changed,
            {.kind = WAIT_MESSAGE,
             .from = WORLD_DRIVER,
             .tag = wire_tag(WIRE_LANE_GO, e->lane, 0, 0),
             .mask = UINT64_MAX},
        };
        struct wake wake;
        int rc = world_wait(world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        if (wake.which == 0)
            continue;
        struct byte_reader in = {wake.msg->data, wake.msg->len, false};
        rc = lane_go_decode(&in, go);
        message_unref(wake.msg);
        if (rc != OK || go->view == view->number) /* decisions of older views are skipped */
            return rc;
    }
}

/* Does the holder send this node the state kept with the result? A driver that holds the result may
 * keep that state in another form. */
static bool gets_kept(uint32_t node, const struct lane_go *go)
{
    bool needs = node == WORLD_DRIVER ? go->driver_needs_sync : members_has(&go->synced, node);
    return needs && go->holder != WORLD_DRIVER;
}

/* Send the result of the exchange that counts, and the state kept with it. */
static int send_result(struct exchange *e, struct coll *c, size_t to, const struct lane_go *go)
{
    const struct vec *result = &e->result[go->completed & 1], *kept = &e->config.kept;
    int rc = coll_send(c, to, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                       &e->meta[go->completed & 1], sizeof *e->meta);
    if (rc == OK)
        rc = coll_send_vector(c, to, WIRE_RESULT, result->at, result->n);
    if (rc == OK && gets_kept(c->ranks->node[to], go))
        rc = coll_send_vector(c, to, WIRE_RESULT, kept->at, kept->n);
    return rc;
}

void exchange_take_result(struct exchange *e, uint64_t n, struct vec *x,
                          const struct exchange_meta *meta, uint32_t view)
{
    PL_ASSERT(view >= e->made_in); /* F6: an earlier result of n does not replace a later one */
    /* One begun and not completed here may have counted: what it sent is not sent again. */
    uint64_t last = e->attempted > e->completed ? e->attempted : e->completed;
    struct vec *owed = &e->residual[n & 1], result = *x;
    if ((last ^ n) & 1)
        vec_copy(owed, &e->residual[last & 1], vec_all(owed));
    *x = e->result[n & 1];
    e->result[n & 1] = result;
    e->meta[n & 1] = *meta;
    e->completed = n;
    e->standing = LANE_HELD;
    e->averaged = 0;
    e->made_in = view;
}

/* The holder sends its result of exchange go->completed to all nodes that lack it; those store it.
 * All others have it already. */
static int adopt_result(struct exchange *e, struct coll *c, const struct lane_go *go)
{
    uint32_t self = e->group->world->self;
    if (self == go->holder) {
        int rc = OK;
        e->standing = LANE_HELD; /* a former leaf that is ahead of all others */
        for (size_t to = 0; rc == OK && to < c->ranks->count; to++) {
            uint32_t node = c->ranks->node[to];
            if (node == WORLD_DRIVER ? !go->driver_lacks : !members_has(&go->lacking, node))
                continue;
            rc = send_result(e, c, to, go);
        }
        return rc;
    }
    if (e->completed >= go->completed && e->standing < LANE_UNKNOWN)
        return OK;
    size_t from = rank_of(c->ranks, go->holder);
    if (from == c->ranks->count)
        return ERR_PROTOCOL;
    /* Until it has all of the result, a former leaf keeps its own, which may be in its place. It
     * has no input, as it abandoned its exchange. */
    bool keeps = e->standing == LANE_WAS_LEAF;
    struct vec *result = keeps ? &e->input : &e->result[go->completed & 1];
    struct exchange_meta meta;
    int rc = coll_recv(c, from, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE), &meta, sizeof meta);
    if (rc == OK)
        rc = coll_recv_vector(c, from, WIRE_RESULT, result->at, result->n);
    if (rc == OK && gets_kept(self, go))
        rc = coll_recv_vector(c, from, WIRE_RESULT, e->config.kept.at, e->config.kept.n);
    if (rc == OK)
        exchange_take_result(e, go->completed, result, &meta, c->view->number);
    return rc;
}

/* Bring the lane into line with a new view: report, await the driver's decision, and send or adopt
 * the result that counts. Only then may exchange completed + 1 begin: it is the same for all. */
static int bring_into_line(struct exchange *e, struct coll *c)
{
    struct lane_go go;
    exchange_enter(e, EXCHANGE_REPORTING);
    if (e->standing == LANE_HELD && group_was_leaf(e->group, e->synced))
        e->standing = LANE_WAS_LEAF;
    int rc = report_lane(e, c->view);
    int64_t begun = trace_now(e->group->world);
    if (rc == OK)
        rc = await_go(e, c->view, &go);
    trace_end(e->group->world, begun, span_of(e, SPAN_WAIT, 0));
    exchange_enter(e, EXCHANGE_ADOPTING);
    if (rc == OK && COMMIT_RULE) {
        c->patient = true; /* the holder serves one after another */
        /* An exchange completes only when all have contributed: no member is two behind (E2). */
        bool near = e->standing >= LANE_UNKNOWN || go.completed == e->completed ||
                    go.completed == e->completed + 1;
        c->n = go.completed;
        rc = near ? adopt_result(e, c, &go) : ERR_PROTOCOL;
        c->patient = false;
    }
    if (rc == OK)
        e->synced = e->made_in = c->view->number;
    return rc;
}

/* Let the lane's turn begin again: for the next exchange, or for another attempt at this one. */
static void begin_tick(struct exchange *e)
{
    if (e->config.stages)
        stages_set(e->config.stages, e->lane, e->completed, 0);
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

/* Describe this member's input to the judge: its norm and its cosine with the last average; or,
 * where inputs are models, those of its difference to the base, with the last change of the
 * average. */
static int make_claim(struct exchange *e)
{
    const struct vec *last = &e->result[e->completed & 1], *before = &e->result[~e->completed & 1];
    const struct vec *base = e->base.n > 0 ? &e->base : NULL;
    uint64_t needs = base && base->at != last->at ? 2 : 1; /* averages; a base may be the first */
    size_t exact = e->config.exact.len > 0 ? e->config.exact.from : e->n_floats;
    struct range r = {0, base ? base->n : exact};
    e->claim = (struct outlier_claim){.weight = e->mine.weight,
                                      .samples = e->mine.samples,
                                      .loss = e->mine.loss,
                                      .cosine = OUTLIER_NO_SIDE};
    if (e->mine.weight == 0)
        return OK;
    const struct vec_angle angle =
        vec_angle(&e->input, base, e->averaged >= needs ? last : NULL, base ? before : NULL, r);
    double print = base ? vec_dot(&e->input, &e->input, r) : angle.uu;
    outlier_measure(&e->history, &angle, print, &e->claim);
    return world_copied(e->group->world, r.len * sizeof(float) * (base ? 5 : 2));
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
    return e->config.reject ? make_claim(e) : OK;
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
        rank_view(e, view, &ranks);
        struct coll c = {.group = e->group,
                         .view = view,
                         .ranks = &ranks,
                         .lane = e->lane,
                         .n = n,
                         .chunk_floats = e->config.chunk,
                         .waits = &waits};
        int rc = OK;
        if (view->number != e->synced)
            rc = bring_into_line(e, &c);
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
            begin_tick(e);
            record_cost(e, start, &waits);
            exchange_note_flush(e);
            return OK;
        }
        begin_tick(e);
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
    struct trace_span span = span_of(e, SPAN_EXCHANGE, 0);
    int64_t begun = trace_now(e->group->world);
    int rc = run_idle(e, mine);
    span.amount = e->cost.bytes;
    trace_end(e->group->world, begun, span);
    return rc;
}

/* Bring the lane into line without an exchange: for members whose loop has ended, so that others
 * that lack the last result get it, and for a recovered driver. */
int exchange_sync(struct exchange *e)
{
    while (!atomic_load(&e->group->end.over)) {
        int rc = exchange_sync_in(e, group_view(e->group));
        if (rc != ERR_VIEW)
            return rc;
    }
    return OK;
}

int exchange_sync_in(struct exchange *e, const struct view *view)
{
    if (view->number == e->synced || view->count == 0 ||
        members_has(&view->leaves, e->group->world->self))
        return OK;
    struct ranks ranks;
    rank_view(e, view, &ranks);
    struct coll c = {.group = e->group,
                     .view = view,
                     .ranks = &ranks,
                     .lane = e->lane,
                     .chunk_floats = e->config.chunk};
    int rc = bring_into_line(e, &c);
    exchange_enter(e, EXCHANGE_IDLE);
    begin_tick(e);
    return rc;
}
