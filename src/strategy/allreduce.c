/* `allreduce`: gradients averaged at every step (SparkNet §3.1.1, "naive"; Elastic Eq. 6.1),
 *
 *     x ← x − η · Σ b_i g_i / Σ b_i ,
 *
 * over the b_i samples of worker i's share, which is exactly the optimizer of one worker with the
 * batch Σ b_i: all replicas start equal, apply the same mean with the same optimizer, and stay
 * equal. Every HASH_EVERYth exchange compares their hashes.
 *
 * Gradients are exchanged in buckets, the last layers' first, each in a lane of its own as soon as
 * backward has finished it, so that most of the exchange overlaps with computation. A model of one
 * bucket is exchanged at the end of the step. State that is not learnt (s) is part of the last
 * bucket, and all workers take its mean: layers keep running means, which are linear, so that
 * averaging at each step is the same as averaging at times.
 *
 * Where the model is in slices, sliced_worker.c has the loop, and slice_buckets.c the buckets. */
#include "strategy/async_exchange.h"
#include "strategy/slice_group.h"
#include "world/trace.h"

enum { HASH_EVERY = 100, BUCKETS_MAX = ALLREDUCE_BUCKETS_MAX };

struct bucket {
    struct exchange *lane; /* for the range of dx; in the last one s follows */
    struct range range;
    struct async_exchange sender; /* of all but the last, which the worker's own task waits for */
};

struct reducer {
    struct member *m;
    struct bucket bucket[BUCKETS_MAX]; /* from the end of dx to its beginning */
    size_t count;
    size_t sent;               /* in the step under way */
    struct exchange_meta mine; /* of the step under way */
};

static struct bucket *last_bucket(struct reducer *r)
{
    return &r->bucket[r->count - 1];
}

size_t allreduce_buckets(const Paceline__Job *job, size_t floats)
{
    size_t size = (size_t)job->strategy->allreduce->bucket_kb * 1024 / sizeof(float);
    size_t count = size > 0 ? (floats + size / 2) / size : 1;
    return count < 1 ? 1 : count > BUCKETS_MAX ? BUCKETS_MAX : count;
}

static int open_bucket(struct reducer *r, size_t i)
{
    struct member *m = r->m;
    struct bucket *b = &r->bucket[i];
    struct exchange_config config = strategy_exchange_config(m->job);
    size_t n = m->learner->dx.n, from = schedule_cut(n, r->count, r->count - 1 - i);
    bool last = i + 1 == r->count;
    b->range = (struct range){from, schedule_cut(n, r->count, r->count - i) - from};
    config.exact = (struct range){b->range.len, last ? m->learner->s.n : 0};
    int rc = lanes_open(&m->lanes, m->group, false, b->range.len + config.exact.len, &config,
                        m->progress.exchanges, m->arena, &b->lane);
    if (rc != OK || last)
        return rc;
    return async_exchange_start(&b->sender, m, b->lane);
}

/* dx is finished from `from` on: buckets in this part may be sent. The last bucket waits for the
 * end of the step, when the metadata are known. */
static int on_finished(void *user, size_t from)
{
    struct reducer *r = user;
    for (; r->sent + 1 < r->count && r->bucket[r->sent].range.from >= from; r->sent++) {
        struct bucket *b = &r->bucket[r->sent];
        int64_t begun = trace_now(r->m->world);
        vec_export(&r->m->learner->dx, b->range, b->lane->input.at);
        trace_copied(r->m->world, begun, TRACE_STEPS, b->lane->completed + 1,
                     b->range.len * sizeof(float));
        async_exchange_submit(&b->sender, &r->mine);
    }
    return OK;
}

/* A gradient with a loss that is not finite does not count, and neither does any of its buckets. */
static int run_gradient(struct reducer *r, uint64_t samples)
{
    struct member *m = r->m;
    struct learner *l = m->learner;
    r->sent = 0;
    l->optim.scale = strategy_rate_scale(m->job, samples); /* also without a share */
    r->mine = (struct exchange_meta){
        .stop_votes = atomic_load(&m->group->stop),
        .flush_votes =
            strategy_flush_vote(m, last_bucket(r)->lane, strategy_done_after(m, 1, samples)),
        .checkpoint_votes = strategy_checkpoint_vote(m),
        .hash_min = UINT64_MAX,
    };
    if (m->progress.exchanges % HASH_EVERY == 0)
        r->mine.hash_min = r->mine.hash_max = vec_hash(&l->x, vec_all(&l->x));
    if (!strategy_shares(m, &m->progress)) {
        strategy_contribute_nothing(m, &r->mine);
        return on_finished(r, 0);
    }
    struct stretch share = strategy_begin_step(m, &m->progress, 0, 1);
    r->mine.weight = strategy_share_weight(&m->progress, share.count, samples);
    r->mine.samples = share.count;
    int rc = learner_gradient(l, share.start, share.count);
    r->mine.loss = l->loss * (double)share.count;
    if (rc == ERR_DIVERGED)
        r->mine.weight = 0;
    return rc == ERR_DIVERGED ? OK : rc;
}

static int exchange_gradient(struct reducer *r)
{
    const struct learner *l = r->m->learner;
    struct bucket *last = last_bucket(r);
    int64_t begun = trace_now(r->m->world);
    vec_export(&l->dx, last->range, last->lane->input.at);
    vec_export(&l->s, vec_all(&l->s), last->lane->input.at + last->range.len);
    trace_copied(r->m->world, begun, TRACE_STEPS, last->lane->completed + 1,
                 (last->range.len + l->s.n) * sizeof(float));
    int rc = exchange_run(last->lane, &r->mine);
    for (size_t i = 0; rc == OK && i + 1 < r->count; i++) {
        rc = async_exchange_wait(&r->bucket[i].sender, WORLD_FOREVER);
        last->lane->cost.bytes += r->bucket[i].lane->cost.bytes; /* reported as one exchange */
    }
    return rc;
}

static int apply_gradient(struct reducer *r, uint64_t offset)
{
    struct learner *l = r->m->learner;
    int64_t begun = trace_now(r->m->world);
    for (size_t i = 0; i < r->count; i++) {
        const struct bucket *b = &r->bucket[i];
        const struct exchange_meta *meta = exchange_result_meta(b->lane);
        const float *mean = exchange_result(b->lane)->at;
        if (meta->hash_max != 0 && meta->hash_min != meta->hash_max)
            return ERR_REPLICAS;
        if (meta->weight == 0)
            return ERR_DIVERGED;
        vec_import(&l->dx, b->range, mean);
        if (b == last_bucket(r))
            vec_import(&l->s, vec_all(&l->s), mean + b->range.len);
    }
    trace_copied(r->m->world, begun, TRACE_STEPS, last_bucket(r)->lane->completed,
                 l->both.n * sizeof(float));
    learner_update(l, offset);
    return OK;
}

static int reducer_open(struct reducer *r, struct member *m)
{
    r->m = m;
    r->count = allreduce_buckets(m->job, m->learner->dx.n);
    m->own = r;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < r->count; i++)
        rc = open_bucket(r, i);
    m->learner->finished = on_finished;
    m->learner->user = r;
    return rc;
}

static int allreduce_worker(struct member *m)
{
    if (m->job->slices > 1)
        return sliced_worker(m);
    struct reducer *r = arena_new(m->arena, struct reducer);
    size_t records = m->learner->epoch_records;
    int rc = r ? reducer_open(r, m) : ERR_NOMEM;
    while (rc == OK && !strategy_done(m->job, &m->progress, records)) {
        uint64_t samples = strategy_step_samples(m->job, &m->progress, records);
        rc = run_gradient(r, samples);
        if (rc == OK)
            rc = exchange_gradient(r);
        if (rc == OK)
            rc = apply_gradient(r, m->progress.sample_offset);
        if (rc != OK)
            break;
        const struct exchange *lane = last_bucket(r)->lane;
        strategy_advance(&m->progress, 1, samples, exchange_result_meta(lane));
        rc = m->on_commit(m, lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static void allreduce_close(struct member *m)
{
    if (m->job->slices > 1) {
        sliced_close(m);
        return;
    }
    struct reducer *r = m->own;
    for (size_t i = 0; r && i < r->count; i++)
        async_exchange_stop(&r->bucket[i].sender);
}

static int allreduce_configure(const Paceline__Job *job, struct strategy_traits *traits,
                               struct err *err)
{
    (void)err;
    traits->joinable = job->slices == 1 || job_replicas(job) > 1;
    traits->sends_gradients = true;
    traits->replicas_agree = true;
    traits->fixed_shares = true;
    traits->round = 1;
    return OK;
}

const struct strategy_ops strategy_allreduce = {
    .name = "allreduce",
    .configure = allreduce_configure,
    .worker = allreduce_worker,
    .close = allreduce_close,
};
