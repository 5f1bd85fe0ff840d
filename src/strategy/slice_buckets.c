#include "strategy/slice_buckets.h"

#include "base/fault.h"
#include "world/trace.h"

/* A bucket, and the task that adds it up. */
struct bucket_sum {
    struct slice_buckets *all;
    struct slice_bucket part;
    struct coll_plan mates, peers;
    struct coll among_mates, among_peers; /* of the step under way */
    struct coll_waits waits;              /* of both, one after the other */
    int status;
    struct async_task task;
};

/* ---- how dx is cut ---- */

static void cut_range(struct slice_bucket *out, size_t count, size_t from, size_t n, bool parallel)
{
    for (size_t i = 0; i < count; i++) {
        size_t begin = schedule_cut(n, count, count - 1 - i),
               end = schedule_cut(n, count, count - i);
        out[i] = (struct slice_bucket){{from + begin, end - begin}, parallel};
    }
}

size_t slice_buckets_cut(const Paceline__Job *job, const struct slice_cut *cut,
                         struct slice_bucket out[SLICE_BUCKETS_MAX])
{
    size_t own = 0, parallel = 0, mean = (cut->whole - cut->parallel) / cut->slices;
    if (job->strategy->algorithm_case != PACELINE__STRATEGY__ALGORITHM_ALLREDUCE ||
        job->strategy->allreduce->bucket_kb == 0)
        return 0;
    if (cut->replicas)
        own = allreduce_buckets(job, mean);
    if (cut->parallel > 0)
        parallel = allreduce_buckets(job, cut->parallel);
    if (parallel > SLICE_PARALLEL_BUCKETS_MAX)
        parallel = SLICE_PARALLEL_BUCKETS_MAX;
    PL_ASSERT(own + parallel <= SLICE_BUCKETS_MAX);
    if (own + parallel < 2)
        return 0;
    cut_range(out, own, cut->parallel, cut->floats - cut->parallel, false);
    cut_range(out + own, parallel, 0, cut->parallel, true);
    return own + parallel;
}

/* ---- a bucket ---- */

static int add_bucket(struct bucket_sum *k)
{
    struct slice_buckets *b = k->all;
    struct slice_group *g = b->g;
    struct world *world = g->m->world;
    struct vec *dx = &g->m->learner->dx;
    const struct range range = k->part.range;
    const struct coll_owed nothing = {0};
    int rc = OK;
    if (k->part.parallel && b->adds)
        rc = coll_run(&k->among_mates, &k->mates, dx->at + range.from, nothing);
    if (rc != OK || !b->sum)
        return rc;
    struct vec sum = {b->sum + range.from, range.len};
    int64_t begun = trace_now(world);
    if (b->adds)
        vec_export(dx, range, sum.at);
    else
        vec_fill(&sum, vec_all(&sum), 0);
    rc = world_copied(world, sum.n * sizeof *sum.at);
    trace_copied(world, begun, TRACE_STEPS, g->m->progress.exchanges + 1, sum.n * sizeof *sum.at);
    return rc == OK && g->peers->count > 1 ? coll_run(&k->among_peers, &k->peers, sum.at, nothing)
                                           : rc;
}

static int run_bucket(void *user)
{
    struct bucket_sum *k = user;
    k->status = add_bucket(k);
    return OK;
}

/* Numbers and waits of the mates and of the peers do not mix: their lanes differ. */
static void begin_bucket(struct slice_buckets *b, struct bucket_sum *k)
{
    struct slice_group *g = b->g;
    uint64_t n = ++g->summed;
    k->waits = (struct coll_waits){0};
    k->among_mates = slice_group_coll(g, g->mates, BUCKET_LANE, n, &k->waits);
    k->among_peers = slice_group_coll(g, g->peers, PEER_LANE, n, &k->waits);
    async_task_begin(&k->task);
}

/* dx is finished from `from` on. During a turn of a hand-over buckets wait: it has the link. */
static int on_finished(void *user, size_t from)
{
    struct slice_buckets *b = user;
    if (!slice_group_is_current(b->g))
        return ERR_VIEW;
    if (slice_group_in_turn(b->g))
        return OK;
    while (b->begun < b->count && b->at[b->begun].part.range.from >= from)
        begin_bucket(b, &b->at[b->begun++]);
    return OK;
}

/* ---- a step ---- */

static int plan_bucket(struct slice_buckets *b, struct bucket_sum *k)
{
    struct slice_group *g = b->g;
    int rc = OK;
    if (k->part.parallel && !k->mates.ports)
        rc = slice_group_plan_sum(g, &k->mates, g->mates, k->part.range.len);
    coll_plan_release(&k->peers);
    return rc == OK && b->sum && g->peers->count > 1
               ? slice_group_plan_sum(g, &k->peers, g->peers, k->part.range.len)
               : rc;
}

int slice_buckets_begin(struct slice_buckets *b, bool adds)
{
    const struct ranks *peers = b->g->peers;
    bool same = b->ranks == peers->count && b->rank == peers->me;
    int rc = OK;
    b->adds = adds;
    PL_ASSERT(b->begun == 0);
    if (!same) {
        coll_plan_release(&b->rest);
        b->ranks = 0;
    }
    for (size_t i = 0; rc == OK && !same && i < b->count; i++)
        rc = plan_bucket(b, &b->at[i]);
    if (rc != OK)
        return rc;
    b->ranks = peers->count;
    b->rank = peers->me;
    return adds || b->count == 0 ? OK : on_finished(b, 0);
}

int slice_buckets_begin_rest(struct slice_buckets *b)
{
    return b->count > 0 ? on_finished(b, 0) : OK;
}

int slice_buckets_end(struct slice_buckets *b)
{
    struct world *world = b->g->m->world;
    int64_t begun = trace_now(world);
    int rc = OK;
    for (size_t i = 0; i < b->begun; i++) {
        int ended = async_task_wait(&b->at[i].task, WORLD_FOREVER);
        if (ended != OK)
            return ended;
        b->g->bytes += b->at[i].waits.bytes;
        rc = rc == OK ? b->at[i].status : rc;
    }
    if (b->begun > 0)
        trace_end(world, begun,
                  (struct trace_span){.kind = SPAN_WAIT,
                                      .row = TRACE_STEPS,
                                      .peer = WORLD_ANY,
                                      .n = b->g->m->progress.exchanges + 1});
    b->begun = 0;
    return rc;
}

int slice_buckets_add_rest(struct slice_buckets *b, float *x, size_t n)
{
    struct slice_group *g = b->g;
    int rc = OK;
    if (g->peers->count == 1)
        return OK;
    if (!b->rest.ports)
        rc = slice_group_plan_sum(g, &b->rest, g->peers, n);
    return rc == OK ? slice_group_add_peers(g, &b->rest, x) : rc;
}

/* ---- its life ---- */

static int open_bucket(struct slice_buckets *b, const struct slice_bucket *part)
{
    struct bucket_sum *k = &b->at[b->count];
    *k = (struct bucket_sum){.all = b, .part = *part};
    const struct async_work work = {
        .run = run_bucket,
        .user = k,
        .go = SIGNAL_SLICE_BUCKET + (uint32_t)b->count,
        .done = SIGNAL_SLICE_MET,
    };
    PL_ASSERT(work.go <= STRATEGY_SIGNAL_LAST);
    b->count++;
    return async_task_start(&k->task, b->g->m, &work);
}

int slice_buckets_open(struct slice_buckets *b, struct slice_group *g, float *sum)
{
    struct learner *l = g->m->learner;
    const struct slice_cut cut = {
        .floats = l->dx.n,
        .parallel = g->parallel.floats,
        .whole = net_whole_segments(l->ws->train)->total,
        .slices = g->slice.count,
        .replicas = sum != NULL,
    };
    struct slice_bucket part[SLICE_BUCKETS_MAX];
    size_t count = slice_buckets_cut(g->m->job, &cut, part);
    *b = (struct slice_buckets){.g = g, .sum = sum};
    if (count == 0)
        return OK;
    b->at = arena_array(g->m->arena, count, struct bucket_sum);
    int rc = b->at ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < count; i++)
        rc = open_bucket(b, &part[i]);
    l->finished = on_finished;
    l->user = b;
    return rc;
}

void slice_buckets_close(struct slice_buckets *b)
{
    for (size_t i = 0; i < b->count; i++)
        async_task_stop(&b->at[i].task);
    for (size_t i = 0; i < b->count; i++) {
        coll_plan_release(&b->at[i].mates);
        coll_plan_release(&b->at[i].peers);
    }
    coll_plan_release(&b->rest);
}
