#include "coll/split.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "coll/coll_meta.h"
#include "coll/exchange_internal.h"
#include "coll/lossy.h"

enum {
    LINK_PIECES = 16, /* of a part: links of a chain are all busy but for the first few */
    PIECE_MIN = 2048, /* floats; smaller pieces only if the job sets them */
};

static bool at_root(const struct exchange *e)
{
    return e->config.split == EXCHANGE_AT_ROOT;
}

/* Floats of a piece: a part must be many, or its chain stands still while it fills. */
static size_t piece_of(const struct exchange *e, size_t ranks)
{
    size_t piece = e->n_floats / ranks / LINK_PIECES;
    piece = piece > PIECE_MIN ? piece : PIECE_MIN;
    return piece < e->config.chunk ? piece : e->config.chunk;
}

/* Two plans: one sends sums to the owners, one distributes the results. */
static int plan_for(struct exchange *e, const struct coll *c)
{
    size_t ranks = c->ranks->count, me = c->ranks->me, n = e->n_floats;
    size_t piece = piece_of(e, ranks);
    enum codec codec = exchange_next_flushes(e) ? CODEC_F32 : e->config.codec;
    struct schedule there, back;
    if (e->planned_in == c->view->number && e->planned_codec == codec)
        return OK;
    e->planned_in = 0;
    int rc = schedule_split_reduce(&there, codec, at_root(e), ranks, me, n);
    rc = exchange_make_plan(e, &e->plan, piece, codec, &there, rc);
    if (rc != OK)
        return rc;
    rc = schedule_split_broadcast(&back, at_root(e), ranks, me, n);
    rc = exchange_make_plan(e, &e->result_plan, piece, codec, &back, rc);
    e->planned_codec = codec;
    if (rc == OK)
        e->planned_in = c->view->number;
    return rc;
}

/* ---- turns ---- */

static int enter_stage(const struct exchange *e, struct coll *c, enum stage stage)
{
    struct stages *stages = e->config.stages;
    while (stages) {
        const struct wait_for turn = wait_signal(stages->world, stages->signal + e->lane);
        if (stages_clear(stages, e->lane, stage))
            break;
        struct wake wake;
        int rc = coll_wait(c, &turn, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* The time of a stage in which this node has had its turn. */
static void trace_stage(const struct exchange *e, const struct coll *c, enum span_kind kind,
                        int64_t begun)
{
    trace_end(e->group->world, begun,
              (struct trace_span){.kind = (uint8_t)kind, .row = (uint8_t)e->lane, .n = c->n});
}

/* ---- the stages ---- */

/* The part whose sums this node turns into results. */
static struct range owned_range(const struct exchange *e, const struct coll *c)
{
    size_t parts = at_root(e) ? 1 : c->ranks->count, me = c->ranks->me;
    if (me >= parts)
        return (struct range){0, 0};
    size_t from = schedule_cut(e->n_floats, parts, me);
    return (struct range){from, schedule_cut(e->n_floats, parts, me + 1) - from};
}

static void scale_beyond(struct vec *x, double times, struct range r, struct range but)
{
    size_t end = r.from + r.len, first = min_size(end, but.from),
           last = max_size(r.from, but.from + but.len);
    if (first > r.from)
        vec_scale(x, (float)times, (struct range){r.from, first - r.from});
    if (end > last)
        vec_scale(x, (float)times, (struct range){last, end - last});
}

/* A new view moves the own part: what is owed in it becomes one of results, and the reverse. */
static void move_owned(struct exchange *e, struct range own)
{
    for (int i = 0; i < 2 && e->residual[i].n > 0 && e->owned_weight > 0; i++) {
        scale_beyond(&e->residual[i], 1.0 / e->owned_weight, own, e->owned);
        scale_beyond(&e->residual[i], e->owned_weight, e->owned, own);
    }
    e->owned = own;
}

/* Beyond that part residuals are of sums. */
static void pay_sums(const struct exchange *e, const struct coll *c, struct vec *x,
                     struct vec *residual)
{
    const struct range own = owned_range(e, c);
    size_t end = own.from + own.len;
    exchange_pay_range(x, 1.0f, residual, (struct range){0, own.from});
    exchange_pay_range(x, 1.0f, residual, (struct range){end, x->n - end});
}

/* Nobody contributed, and the result has no sums: they are owed as before. */
static void take_sums_back(struct exchange *e, const struct coll *c)
{
    const struct range own = owned_range(e, c);
    size_t end = own.from + own.len;
    struct vec *residual = &e->residual[c->n & 1], *before = &e->residual[~c->n & 1];
    vec_copy(residual, before, (struct range){0, own.from});
    vec_copy(residual, before, (struct range){end, residual->n - end});
}

/* Owners need the sum of the weights; the root sends it with the prepared result. */
static int reduce_sums(struct exchange *e, struct coll *c, struct vec *x, struct coll_owed owed,
                       struct exchange_meta *meta)
{
    struct exchange_meta other;
    int rc = enter_stage(e, c, STAGE_REDUCE);
    int64_t begun = trace_now(e->group->world);
    *meta = e->mine;
    exchange_enter(e, EXCHANGE_COLLECTING);
    if (rc == OK)
        rc = coll_meta_reduce(c, meta, sizeof *meta, &other, exchange_merge_meta);
    if (rc == OK && !at_root(e))
        rc = coll_meta_broadcast(c, meta, sizeof *meta);
    exchange_enter(e, EXCHANGE_REDUCING);
    const struct coll_input input = {e->mine.weight > 0 ? e->input.at : NULL,
                                     (float)e->mine.weight};
    if (rc == OK && exchange_next_flushes(e))
        pay_sums(e, c, x, &e->residual[c->n & 1]);
    if (rc == OK)
        rc = e->config.codec == CODEC_F32 ? coll_reduce(c, &e->plan, x->at, input)
                                          : coll_run(c, &e->plan, x->at, owed);
    trace_stage(e, c, SPAN_REDUCE, begun);
    if (rc == OK)
        exchange_pass(e, STAGE_REDUCE + 1);
    return rc;
}

/* The owner of a range turns the reduced sums into the result: the root for the whole vector, else
 * each rank for its own part. The root then sends the metadata with it. */
static int prepare_range(struct exchange *e, struct coll *c, struct vec *x,
                         struct exchange_meta *meta)
{
    const struct range own = owned_range(e, c);
    int rc = enter_stage(e, c, STAGE_PREPARE);
    if (rc == OK && (!at_root(e) || c->ranks->me == 0)) {
        int64_t begun = trace_now(e->group->world);
        exchange_add_base(e, x, (float)meta->weight, own);
        if (exchange_next_flushes(e) && meta->weight > 0)
            exchange_pay_range(x, (float)meta->weight, &e->residual[c->n & 1], own);
        rc = e->config.prepare(e->config.user, own, x->at + own.from, meta);
        exchange_add_base(e, x, -1.0f, own);
        trace_stage(e, c, SPAN_PREPARE, begun);
    }
    if (rc == OK && at_root(e))
        rc = coll_meta_broadcast(c, meta, sizeof *meta);
    if (rc == OK)
        exchange_pass(e, STAGE_PREPARE + 1);
    return rc;
}

/* All ranks receive the prepared result; the exchange is complete on a rank when it has all of it.
 */
static int broadcast_result(struct exchange *e, struct coll *c, struct vec *x,
                            struct coll_owed owed)
{
    int rc = enter_stage(e, c, STAGE_BROADCAST);
    int64_t begun = trace_now(e->group->world);
    if (rc == OK)
        rc = coll_run(c, &e->result_plan, x->at, owed);
    trace_stage(e, c, SPAN_BROADCAST, begun);
    if (rc == OK)
        exchange_add_base(e, x, 1.0f, vec_all(x));
    return rc;
}

/* No deadline: members take part when they can, and a dead member ends the view. */
int split_run(struct exchange *e, struct coll *c)
{
    struct vec *x = &e->result[c->n & 1];
    struct exchange_meta *meta = &e->meta[c->n & 1];
    struct coll_owed owed = exchange_owed(e, &e->residual[c->n & 1]);
    PL_ASSERT(!at_root(e) || e->driver_takes_part);
    c->patient = true;
    c->stripes = e->config.stripes;
    int rc = plan_for(e, c);
    move_owned(e, owned_range(e, c));
    if (rc == OK)
        rc = reduce_sums(e, c, x, owed, meta);
    if (rc == OK)
        rc = prepare_range(e, c, x, meta);
    if (rc == OK)
        rc = broadcast_result(e, c, x, owed);
    if (rc == OK && exchange_next_flushes(e) && meta->weight == 0)
        take_sums_back(e, c);
    if (rc == OK && meta->weight > 0)
        e->owned_weight = meta->weight;
    c->patient = false;
    return rc;
}
