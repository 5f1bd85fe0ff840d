/* `diloco`: DiLoCo (Douillard et al. 2023) and Streaming DiLoCo (Douillard et al. 2025). Every
 * worker takes H = tau steps from the global model x̃ with the job's optimizer, the inner one (the
 * papers use AdamW). The movement of the workers' mean serves as a gradient of x̃, and x̃ takes one
 * step with an outer optimizer, Nesterov momentum in the form of PyTorch's SGD:
 *
 *     Δ = x̃ − 1/K Σ x_i
 *     v ← μ·v + Δ
 *     x̃ ← x̃ − η·(Δ + μ·v)                  η = outer_lr, μ = outer_momentum
 *     x_i ← x̃
 *
 * All workers compute the same x̃ and v from the same committed mean: there is no server. The last
 * line of the outer step is computed as x̃ ← mean + (1−η)·Δ − ημ·v, which is the same, and with η =
 * 1 and μ = 0 the mean itself: `sync`.
 *
 * fragments: P > 1. x is cut into P fragments, anywhere. Each fragment p = 0 … P−1 is exchanged
 * separately every H steps, at the steps t with t ≡ H(p+1)/P (mod H), so that less is exchanged at
 * once.
 *
 * overlap: o > 0. A fragment that is submitted at step t is received at step t + o; its exchange
 * overlaps with training. By then the fragment has moved by o steps, and keeps a part of them:
 *
 *     x_i ← mix·x_i + (1−mix)·x̃
 *
 * At the end of the run all exchanges under way are received, and fragments that have moved since
 * their submission are exchanged once more. s of layers is part of the last fragment; its mean is
 * the global model's, and workers keep their own. on_replace: what happens to the inner optimizer's
 * state of a fragment: `keep`, `reset` (P = 1 alone: the count of updates is the whole model's), or
 * `average`, which is mixed like x.
 *
 * A worker's training is ahead of the run's progress: samples are committed with the first exchange
 * that is submitted after them. */
#include "strategy/async_exchange.h"
#include "strategy/mean_rules.h"
#include "strategy/slice_group.h"
#include "strategy/sliced_rule.h"
#include "strategy/strategy.h"
#include "world/trace.h"

enum { FRAGMENTS_MAX = 16, HASH_EVERY = 100 /* exchanges of a fragment */ };

/* For a joiner: the offset of the workers' training, and the step at which each fragment was
 * submitted last. */
enum { JOIN_OFFSET, JOIN_STEPS, JOIN_SENT };
_Static_assert(JOIN_SENT + FRAGMENTS_MAX <= JOIN_STATE_WORDS, "the join state has room for all");

struct fragment {
    struct range r;        /* of x */
    bool last;             /* it includes s */
    struct exchange *lane; /* for x, the inner optimizer's state if it is averaged, s */
    struct async_exchange sender;
    bool in_flight;       /* submitted, not taken */
    bool joined;          /* a joiner has taken part here */
    struct progress sent; /* where the worker was when it submitted */
};

struct diloco {
    struct member *m;
    const Paceline__DiLoCo *config;
    struct fragment at[FRAGMENTS_MAX];
    size_t count, states;       /* vectors of inner state that travel */
    struct progress here;       /* where this worker trains */
    struct exchange_meta since; /* its steps since it submitted last */
    struct vec both, x, s;      /* x̃, then s̃, in one vector; and its two parts */
    struct vec v;
};

/* ---- when ---- */

/* Is t among a fragment's steps? The next one of them after t? */
static uint64_t phase_of(const struct diloco *d, size_t p)
{
    uint64_t H = d->config->tau;
    return H * (p + 1) / d->count % H;
}

static bool is_due(const struct diloco *d, size_t p, uint64_t t)
{
    return t % d->config->tau == phase_of(d, p);
}

static uint64_t next_due(const struct diloco *d, size_t p, uint64_t t)
{
    uint64_t H = d->config->tau;
    return t + H - (t % H + H - phase_of(d, p)) % H;
}

/* Steps until something is to be submitted or taken. */
static uint64_t steps_ahead(const struct diloco *d)
{
    uint64_t t = d->here.steps, next = t + d->config->tau;
    for (size_t p = 0; p < d->count; p++) {
        const struct fragment *f = &d->at[p];
        uint64_t due = next_due(d, p, t), back = f->sent.steps + d->config->overlap;
        next = due < next ? due : next;
        next = f->in_flight && back < next ? back : next;
    }
    return next - t;
}

/* ---- set-up ---- */

static int open_fragment(struct diloco *d, size_t p)
{
    struct member *m = d->m;
    struct fragment *f = &d->at[p];
    struct exchange_config config = strategy_exchange_config(m->job);
    f->r = range_shard(d->x.n, d->count, p);
    f->last = p + 1 == d->count;
    f->sent = m->progress;
    f->joined = !m->join_state;
    config.exact = (struct range){f->r.len * (1 + d->states), f->last ? d->s.n : 0};
    size_t n = config.exact.from + config.exact.len;
    int rc = lanes_open(&m->lanes, m->group, false, n, &config, m->progress.exchanges, m->arena,
                        &f->lane);
    if (rc != OK)
        return rc;
    f->lane->base = vec_part(&d->x, f->r.from, f->r.len);
    return async_exchange_start(&f->sender, m, f->lane);
}

static int diloco_open(struct diloco *d, struct member *m)
{
    const struct learner *l = m->learner;
    size_t n = l->x.n;
    d->m = m;
    d->config = m->job->strategy->diloco;
    d->here = m->progress;
    d->since = (struct exchange_meta){.weight = 1};
    d->states = d->config->on_replace == PACELINE__ON_REPLACE__average ? l->optim.ops->states : 0;
    d->count = d->config->fragments;
    while (d->count > 1 && n / d->count < SEGMENT_ALIGN)
        d->count--; /* a vector so short has no more */
    if (vec_init_model(&d->both, &d->x, &d->s, m->arena, n, l->s.n) != OK ||
        vec_init(&d->v, m->arena, n) != OK)
        return ERR_NOMEM;
    vec_copy(&d->both, &l->both, vec_all(&d->both));
    if (m->resumed)
        vec_copy(&d->v, m->resumed, vec_all(&d->v));
    m->model.x = &d->x;
    m->model.s = &d->s;
    m->model.extra = &d->v;
    int rc = OK;
    for (size_t p = 0; rc == OK && p < d->count; p++)
        rc = open_fragment(d, p);
    return rc;
}

/* ---- the two ends of an exchange ---- */

static void put_fragment(const struct diloco *d, const struct fragment *f)
{
    const struct learner *l = d->m->learner;
    int64_t begun = trace_now(d->m->world);
    float *at = f->lane->input.at;
    vec_export(&l->x, f->r, at);
    at += f->r.len;
    for (size_t i = 0; i < d->states; i++, at += f->r.len)
        vec_export(&l->optim.state[i], f->r, at);
    if (f->last)
        vec_export(&l->s, vec_all(&l->s), at);
    trace_copied(d->m->world, begun, TRACE_STEPS, f->lane->completed + 1,
                 f->r.len * (1 + d->states) * sizeof *at);
}

/* Has this worker taken part in the exchanges of all fragments, but perhaps this one? */
static bool all_joined(const struct diloco *d, const struct fragment *but)
{
    bool all = true;
    for (const struct fragment *f = d->at; f < d->at + d->count; f++)
        all &= f == but || f->joined;
    return all;
}

static void submit_fragment(struct diloco *d, struct fragment *f)
{
    struct exchange_meta mine = d->since;
    mine.stop_votes = atomic_load(&d->m->group->stop);
    mine.flush_votes = strategy_flush_vote(
        d->m, f->lane, strategy_done(d->m->job, &d->here, d->m->learner->epoch_records));
    mine.hash_min = UINT64_MAX;
    if (f->lane->completed % HASH_EVERY == 0)
        mine.hash_min = mine.hash_max = vec_hash(&d->x, f->r);
    d->since = (struct exchange_meta){.weight = 1};
    if (!all_joined(d, f)) /* it has no share yet */
        members_add(&mine.leaving, d->m->world->self);
    put_fragment(d, f);
    f->sent = d->here;
    f->in_flight = true;
    async_exchange_submit(&f->sender, &mine);
}

/* The outer step of a fragment. Δ replaces the input, which is no longer needed. */
static void outer_step(struct diloco *d, const struct fragment *f)
{
    struct vec mean = vec_part(exchange_result(f->lane), 0, f->r.len);
    struct vec x = vec_part(&d->x, f->r.from, f->r.len), v = vec_part(&d->v, f->r.from, f->r.len);
    struct vec delta = vec_part(&f->lane->input, 0, f->r.len);
    vec_copy(&delta, &x, vec_all(&x));
    vec_copy(&x, &mean, vec_all(&x));
    diloco_step(d->config, &x, &v, &delta);
}

/* x_i ← mix·x_i + (1−mix)·x̃, or x̃ where the worker has not continued; its inner state
 * likewise. */
static void replace_fragment(struct diloco *d, const struct fragment *f)
{
    struct learner *l = d->m->learner;
    const struct vec *mean = exchange_result(f->lane);
    float model = d->here.steps > f->sent.steps ? 1.0f - d->config->mix : 1.0f;
    vec_lerp(&l->x, model, &d->x, f->r);
    for (size_t i = 0; i < d->states; i++) {
        struct vec own = vec_part(&l->optim.state[i], f->r.from, f->r.len);
        struct vec of_all = vec_part(mean, f->r.len * (1 + i), f->r.len);
        vec_lerp(&own, model, &of_all, vec_all(&own));
    }
    if (d->config->on_replace == PACELINE__ON_REPLACE__reset)
        optim_reset(&l->optim);
}

/* A model that is not finite any more, or was not when it was submitted. */
static void reset_fragments(struct diloco *d)
{
    struct learner *l = d->m->learner;
    vec_copy(&l->both, &d->both, vec_all(&d->both));
    optim_reset(&l->optim);
    l->steps = d->here.steps;
}

/* Receive the submitted fragment, waiting if it is still under way: its submission becomes the
 * run's progress. */
static int receive_fragment(struct diloco *d, struct fragment *f)
{
    struct member *m = d->m;
    int rc = async_exchange_wait(&f->sender, WORLD_FOREVER);
    const struct exchange_meta *meta = exchange_result_meta(f->lane);
    if (rc != OK)
        return rc;
    if (meta->hash_max != 0 && meta->hash_min != meta->hash_max)
        return ERR_REPLICAS;
    if (meta->weight == 0)
        return ERR_DIVERGED;
    f->in_flight = false;
    f->joined = true;
    int64_t begun = trace_now(m->world);
    outer_step(d, f);
    if (f->last)
        vec_import(&d->s, vec_all(&d->s),
                   exchange_result(f->lane)->at + f->r.len * (1 + d->states));
    replace_fragment(d, f);
    if (!exchange_counted(f->lane))
        reset_fragments(d);
    trace_copied(m->world, begun, TRACE_STEPS, f->lane->completed,
                 f->r.len * (3 + d->states) * sizeof(float));
    bool shared = strategy_shares(m, &d->here);
    d->here.sharers = strategy_sharers(meta);
    if (!shared && strategy_shares(m, &d->here))
        d->since = (struct exchange_meta){.weight = 1}; /* it begins here */
    m->progress.sample_offset = f->sent.sample_offset;
    m->progress.steps = f->sent.steps;
    m->progress.exchanges++;
    m->progress.sharers = d->here.sharers;
    return m->on_commit(m, f->lane);
}

/* ---- a worker ---- */

static int train_steps(struct diloco *d, uint64_t steps)
{
    struct member *m = d->m;
    const struct progress from = d->here; /* the batch stays until the next exchange */
    uint64_t all = strategy_step_samples(m->job, &from, m->learner->epoch_records);
    uint64_t end = from.steps + steps;
    if (!strategy_shares(m, &d->here)) { /* the others train */
        d->here.steps = end;
        d->here.sample_offset += steps * all;
        if (d->since.samples == 0) /* else it leaves, and must still contribute the steps of an
                                      overlap */
            strategy_contribute_nothing(m, &d->since);
    }
    while (d->here.steps < end) {
        uint64_t before = d->since.samples;
        bool lost = d->since.weight == 0;
        d->since.weight = 1;
        int rc = strategy_steps(m, &from, d->here.steps - from.steps, end - d->here.steps,
                                WORLD_FOREVER, &d->since);
        if (rc != OK)
            return rc;
        bool diverged = d->since.weight == 0;
        size_t share = strategy_share(&from, m->world->self, 0, all).count;
        uint64_t taken = (d->since.samples - before) / share + diverged;
        d->here.steps += taken;
        d->here.sample_offset += taken * all;
        if (diverged)
            reset_fragments(d);
        d->since.weight = diverged || lost ? 0 : 1;
    }
    return OK;
}

/* Possible after an exchange at whose end no other is under way. */
static size_t diloco_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct diloco *d = m->own;
    for (size_t p = 0; p < d->count; p++) {
        if (d->at[p].in_flight)
            return JOIN_STATE_NOT_HERE;
        word[JOIN_SENT + p] = d->at[p].sent.steps;
    }
    word[JOIN_OFFSET] = d->here.sample_offset;
    word[JOIN_STEPS] = d->here.steps;
    return JOIN_SENT + d->count;
}

static int diloco_join(struct diloco *d, const struct join_state *join)
{
    if (join->words != JOIN_SENT + d->count)
        return ERR_PROTOCOL;
    d->here.sample_offset = join->word[JOIN_OFFSET];
    d->here.steps = join->word[JOIN_STEPS];
    for (size_t p = 0; p < d->count; p++)
        d->at[p].sent.steps = join->word[JOIN_SENT + p];
    return OK;
}

/* The fragments of this step: first all submissions, then all results. */
static int exchange_fragments(struct diloco *d)
{
    uint64_t t = d->here.steps;
    int rc = OK;
    for (size_t p = 0; p < d->count; p++)
        if (is_due(d, p, t))
            submit_fragment(d, &d->at[p]);
    for (size_t p = 0; rc == OK && p < d->count; p++)
        if (d->at[p].in_flight && t >= d->at[p].sent.steps + d->config->overlap)
            rc = receive_fragment(d, &d->at[p]);
    return rc;
}

/* The fragment that was submitted first of those that are away; NULL: none is. */
static struct fragment *oldest_fragment(struct diloco *d)
{
    struct fragment *first = NULL;
    for (struct fragment *f = d->at; f < d->at + d->count; f++)
        if (f->in_flight && (!first || f->sent.steps < first->sent.steps))
            first = f;
    return first;
}

/* The end: nothing stays under way, and every fragment is as trained as it can be. */
static int finish_fragments(struct diloco *d)
{
    int rc = OK;
    for (struct fragment *f; rc == OK && (f = oldest_fragment(d));)
        rc = receive_fragment(d, f);
    for (size_t p = 0; rc == OK && p < d->count; p++) {
        if (d->at[p].sent.steps == d->here.steps)
            continue;
        submit_fragment(d, &d->at[p]);
        rc = receive_fragment(d, &d->at[p]);
    }
    return rc;
}

static int diloco_worker(struct member *m)
{
    if (m->job->slices > 1)
        return sliced_worker(m);
    struct diloco *d = m->own = arena_new(m->arena, struct diloco);
    size_t records = m->learner->epoch_records;
    int rc = d ? diloco_open(d, m) : ERR_NOMEM;
    if (rc == OK && m->join_state)
        rc = diloco_join(d, m->join_state);
    while (rc == OK && !strategy_done(m->job, &d->here, records)) {
        rc = train_steps(d, strategy_round(m->job, &d->here, records, steps_ahead(d)));
        if (rc == OK)
            rc = exchange_fragments(d);
    }
    if (rc == OK)
        rc = finish_fragments(d);
    for (size_t p = 0; rc == ERR_STOP && p < d->count; p++)
        if (d->at[p].in_flight) /* others may wait for it */
            async_exchange_wait(&d->at[p].sender, WORLD_FOREVER);
    return rc == ERR_STOP ? OK : rc;
}

static void diloco_close(struct member *m)
{
    if (m->job->slices > 1) {
        sliced_close(m);
        return;
    }
    struct diloco *d = m->own;
    for (size_t p = 0; d && p < d->count; p++)
        async_exchange_stop(&d->at[p].sender);
}

static int diloco_configure(const Paceline__Job *job, struct strategy_traits *traits,
                            struct err *err)
{
    const Paceline__DiLoCo *config = job->strategy->diloco;
    const struct sliced_refusal refused[] = {
        {"fragments", config->fragments > 1},
        {"overlap", config->overlap > 0},
        {"on_replace: average", config->on_replace == PACELINE__ON_REPLACE__average},
    };
    if (job->slices > 1)
        return sliced_configure(job, config->tau, refused, sizeof refused / sizeof *refused, traits,
                                err);
    if (config->on_replace == PACELINE__ON_REPLACE__reset && config->fragments > 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "strategy.diloco.on_replace: reset needs fragments: 1, is %u",
                       config->fragments);
    if (strategy_wire_drops(job) && config->on_replace == PACELINE__ON_REPLACE__average)
        return strategy_refuse_average("diloco", err);
    if (strategy_wire_drops(job) && config->overlap > 0 && config->mix > 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "collective.wire: topk16 and topk64 need strategy.diloco.overlap: 0 or mix: "
                       "0: a worker that keeps a part of its progress sends that again, besides "
                       "what was left out");
    /* A joiner needs a commit point at which no exchange is under way. */
    traits->joinable =
        config->overlap == 0 || (uint64_t)config->overlap * config->fragments < config->tau;
    traits->round = config->tau / config->fragments;
    return OK;
}

const struct strategy_ops strategy_diloco = {
    .name = "diloco",
    .configure = diloco_configure,
    .export_join_state = diloco_export_join_state,
    .extras = 1,
    .extra_name = {"outer_momentum"},
    .worker = diloco_worker,
    .close = diloco_close,
};
