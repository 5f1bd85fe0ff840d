/* `async_allreduce`: all-reduce that overlaps with computing (Elastic §6.1). While a step's
 * exchange is under way the next gradient is computed, so that a step takes max(T_comp, T_comm) and
 * not their sum (Eq. 6.4). Δw is the update that a worker's own optimizer computes from its own
 * gradient g: −ηg without momentum.
 *
 * method: 1 (Algorithm 6, Eq. 6.2). All have the same w; the exchanged mean is applied one step
 * late:
 *
 *     Δw_i(j) = −ηg(w(j));  submit Δw_i(j);  w(j+1) = w(j) + mean Δw(j−1)      (at j = 0: nothing)
 *
 * With one worker it is SGD with a delay of one step. It diverged in the thesis.
 *
 * method: 2 (Algorithm 7, Eq. 6.3). Each worker computes its gradient at the weights that it
 * submitted last, and adds the update to the mean of all weights submitted then:
 *
 *     Δw_i(j) = −ηg(w_i(j));  w(j) ← mean w_i(j);  w_i(j+1) = w(j) + Δw_i(j);  submit w_i(j+1)
 *
 * primed by submitting w_i(0) = w(0). (Line 7 of the listing has Δw(j−1), against its text and
 * equation.) With one worker, w(j) is w_i(j), and this is `single`, to the bit, because w_i(j+1) is
 * computed as [w_i(j) + Δw_i(j)] + [w(j) − w_i(j)], whose first bracket is the optimizer's step.
 *
 * Workers drift apart under method 2. Every `sync_every_epochs`, and at the end, all wait for the
 * exchange under way and take its mean exactly. The first `warmup_epochs` are plain `allreduce`.
 * Every exchange includes the state that is not learnt (s), so that the global model has its mean;
 * every `s_every` exchanges the mean moves a worker's own s as well, as w(j) moves w_i(j).
 *
 * A worker's training is ahead of the run's progress by the step whose exchange is under way. That
 * step is committed with its exchange. */
#include "strategy/async_exchange.h"
#include "strategy/strategy.h"
#include "world/trace.h"

#include <math.h>

enum { HASH_EVERY = 100 }; /* exchanges, where replicas agree */
enum { JOIN_FROM, JOIN_OFFSET, JOIN_STEPS, JOIN_DRAINING, JOIN_WORDS }; /* to a joiner */

struct pipe {
    struct member *m;
    const Paceline__AsyncAllReduce *config;
    struct exchange *lane; /* for w or Δw, then s */
    struct async_exchange sender;
    bool in_flight;         /* an exchange has been submitted and not been taken */
    bool rejected;          /* this worker's part of the last received exchange was not finite */
    bool warming;           /* still plain allreduce */
    bool draining;          /* waiting for the exchange under way, with no computing meanwhile */
    struct progress here;   /* where this worker trains */
    struct progress sent;   /* and where it was when it submitted last */
    uint64_t from;          /* sample offset of all in the last step */
    uint64_t sample_offset; /* and of this worker's own share */
    uint64_t span;          /* records from one re-sync to the next; 0: never */
    struct vec w;           /* method 1: w(j+1) */
    struct vec base;        /* method 2, lossy wire: w(j), of which w_i(j+1) differs little */
    struct vec x, s;        /* the global model, where it lies */
};

static struct vec part_x(const struct pipe *p, const struct vec *both)
{
    return vec_part(both, 0, p->m->learner->x.n);
}

static struct vec part_s(const struct pipe *p, const struct vec *both)
{
    return vec_part(both, p->m->learner->x.n, p->m->learner->s.n);
}

static uint64_t in_records(const struct pipe *p, double epochs)
{
    double records = epochs * (double)p->m->learner->epoch_records;
    return (uint64_t)fmin(records, 1e18);
}

static bool is_done(const struct pipe *p)
{
    return strategy_done(p->m->job, &p->here, p->m->learner->epoch_records);
}

static int pipe_open(struct pipe *p, struct member *m)
{
    struct exchange_config config = strategy_exchange_config(m->job);
    const struct learner *l = m->learner;
    p->m = m;
    p->config = m->job->strategy->async_allreduce;
    p->here = p->sent = m->progress;
    double every = p->config->sync_every_epochs;
    p->span = every > 0 ? in_records(p, every) + (in_records(p, every) == 0) : 0;
    config.exact = (struct range){l->x.n, l->s.n};
    int rc = lanes_open(&m->lanes, m->group, false, l->x.n + l->s.n, &config, m->progress.exchanges,
                        m->arena, &p->lane);
    if (rc == OK && p->config->method == 1)
        rc = vec_init(&p->w, m->arena, l->x.n);
    else if (rc == OK && strategy_is_lossy(m->job))
        rc = vec_init(&p->base, m->arena, l->x.n);
    if (rc == OK)
        rc = async_exchange_start(&p->sender, m, p->lane);
    return rc;
}

/* ---- the two ends of an exchange ---- */

/* The lane's next input is near this model, which all have (method 2). */
static void set_base(struct pipe *p, const struct vec *model)
{
    if (p->base.n > 0)
        vec_copy(&p->base, model, vec_all(&p->base));
    p->lane->base = p->base;
}

/* Its first part, w or Δw, is in the lane's input. `agree`: x is the same on all. */
static void submit_gradient(struct pipe *p, struct exchange_meta *mine, bool agree)
{
    struct learner *l = p->m->learner;
    vec_export(&l->s, vec_all(&l->s), part_s(p, &p->lane->input).at);
    mine->stop_votes = atomic_load(&p->m->group->stop);
    mine->flush_votes = strategy_flush_vote(p->m, p->lane, is_done(p));
    mine->hash_min = UINT64_MAX;
    if (agree && p->lane->completed % HASH_EVERY == 0)
        mine->hash_min = mine->hash_max = vec_hash(&l->x, vec_all(&l->x));
    p->sent = p->here;
    p->in_flight = true;
    async_exchange_submit(&p->sender, mine);
}

/* The own s moves by the difference between the mean of the submitted s and this worker's submitted
 * one. */
static void take_s(struct pipe *p)
{
    struct vec moved = part_s(p, &p->lane->input);
    if (p->lane->completed % p->config->s_every != 0)
        return;
    vec_scale(&moved, -1.0f, vec_all(&moved));
    vec_axpy(&moved, 1.0f, &p->s, vec_all(&moved));
    vec_axpy(&p->m->learner->s, 1.0f, &moved, vec_all(&moved));
}

/* Wait for the exchange under way: its submission becomes the run's progress. Lane and input then
 * belong to this task until the next submission. */
static int receive_mean(struct pipe *p)
{
    struct member *m = p->m;
    double gave = p->sender.mine.weight;
    int rc = async_exchange_wait(&p->sender, WORLD_FOREVER);
    const struct exchange_meta *meta = exchange_result_meta(p->lane);
    if (rc != OK)
        return rc;
    if (meta->hash_max != 0 && meta->hash_min != meta->hash_max)
        return ERR_REPLICAS;
    if (meta->weight == 0)
        return ERR_DIVERGED;
    p->in_flight = false;
    p->rejected = gave > 0 && p->lane->mine.weight == 0;
    p->here.sharers = strategy_sharers(meta);
    m->progress.sample_offset = p->sent.sample_offset;
    m->progress.steps = p->sent.steps;
    m->progress.exchanges++;
    m->progress.sharers = p->here.sharers;
    p->s = part_s(p, exchange_result(p->lane));
    take_s(p);
    return OK;
}

static int commit_step(struct pipe *p, struct vec x)
{
    struct member *m = p->m;
    p->x = x;
    m->model.x = &p->x;
    m->model.s = &p->s;
    return m->on_commit(m, p->lane);
}

/* GET: the global model is w(j) under method 2, and w(j+1) under method 1. */
static int get_mean(struct pipe *p)
{
    int rc = receive_mean(p);
    if (rc != OK)
        return rc;
    struct vec mean = part_x(p, exchange_result(p->lane));
    if (p->config->method == 2)
        return commit_step(p, mean);
    vec_copy(&p->w, &p->m->learner->x, vec_all(&p->w));
    vec_axpy(&p->w, 1.0f, &mean, vec_all(&p->w));
    return commit_step(p, p->w);
}

/* ---- a step ---- */

static int run_gradient(struct pipe *p, struct exchange_meta *mine)
{
    struct learner *l = p->m->learner;
    uint64_t samples = strategy_step_samples(p->m->job, &p->here, l->epoch_records);
    int rc = OK;
    l->optim.scale = strategy_rate_scale(p->m->job, samples); /* also without a share */
    p->from = p->sample_offset = p->here.sample_offset;
    *mine = (struct exchange_meta){.weight = 0};
    if (strategy_shares(p->m, &p->here)) {
        struct stretch share = strategy_begin_step(p->m, &p->here, 0, 1);
        p->sample_offset = share.start;
        rc = learner_gradient(l, share.start, share.count);
        if (rc != ERR_DIVERGED)
            mine->weight = strategy_share_weight(&p->here, share.count, samples);
        mine->samples = share.count;
        mine->loss = l->loss * (double)share.count;
    } else {
        strategy_contribute_nothing(p->m, mine);
    }
    p->here.sample_offset += samples;
    p->here.steps++;
    return rc == ERR_DIVERGED ? OK : rc;
}

/* A gradient or model that is not finite has also damaged the optimizer's state and s. */
static void reset_pipe(struct pipe *p, struct exchange_meta *mine)
{
    struct learner *l = p->m->learner;
    if (p->s.at)
        vec_copy(&l->s, &p->s, vec_all(&l->s));
    optim_reset(&l->optim);
    l->steps = p->here.steps;
    mine->weight = 0;
}

/* The step's copies, since *begun, and those behind it have spans apart from the update's. */
static void update_between(struct pipe *p, int64_t *begun)
{
    struct learner *l = p->m->learner;
    trace_copied(p->m->world, *begun, TRACE_STEPS, p->lane->completed + 1, l->x.n * sizeof(float));
    learner_update(l, p->sample_offset);
    *begun = trace_now(p->m->world);
}

/* Algorithm 6, lines 5 and 8: the input becomes Δw(j), x becomes w(j+1). */
static void update_1(struct pipe *p, struct exchange_meta *mine, bool taken, int64_t *begun)
{
    struct learner *l = p->m->learner;
    struct range all = vec_all(&l->x);
    struct vec delta = part_x(p, &p->lane->input);
    if (!taken)
        vec_copy(&p->w, &l->x, all);
    if (mine->weight == 0 || p->rejected) {
        reset_pipe(p, mine);
    } else {
        vec_copy(&delta, &l->x, all);
        vec_scale(&delta, -1.0f, all);
        update_between(p, begun);
        vec_axpy(&delta, 1.0f, &l->x, all);
    }
    vec_copy(&l->x, &p->w, all);
}

/* Algorithm 7, lines 5 and 7: x and the input become w_i(j+1). */
static void update_2(struct pipe *p, struct exchange_meta *mine, int64_t *begun)
{
    struct learner *l = p->m->learner;
    struct range all = vec_all(&l->x);
    struct vec drift = part_x(p, &p->lane->input);
    if (mine->weight == 0 || p->rejected) {
        vec_copy(&l->x, &p->x, all);
        reset_pipe(p, mine);
    } else {
        vec_scale(&drift, -1.0f, all);
        vec_axpy(&drift, 1.0f, &p->x, all); /* w(j) − w_i(j) */
        update_between(p, begun);
        vec_axpy(&l->x, 1.0f, &drift, all);
    }
    vec_export(&l->x, all, drift.at);
}

/* Nothing stays under way, and all have the global model exactly. */
static int drain_pipe(struct pipe *p)
{
    struct learner *l = p->m->learner;
    p->draining = true;
    int rc = get_mean(p);
    p->draining = false;
    if (rc != OK)
        return rc;
    vec_copy(&l->x, &p->x, vec_all(&l->x));
    vec_copy(&l->s, &p->s, vec_all(&l->s));
    if (p->rejected)
        reset_pipe(p, &(struct exchange_meta){0});
    return OK;
}

static bool sync_is_due(const struct pipe *p)
{
    return p->span > 0 && p->here.sample_offset / p->span > p->from / p->span;
}

static int take_step(struct pipe *p)
{
    struct learner *l = p->m->learner;
    struct exchange_meta mine = {.weight = 1};
    if (!p->in_flight && p->config->method == 2) { /* prime */
        vec_export(&l->x, vec_all(&l->x), p->lane->input.at);
        set_base(p, &l->x);
        submit_gradient(p, &mine, false);
    }
    bool late = p->in_flight; /* there is something to GET */
    int rc = run_gradient(p, &mine);
    if (rc == OK && late)
        rc = get_mean(p);
    if (rc != OK)
        return rc;
    int64_t begun = trace_now(p->m->world);
    if (p->config->method == 1)
        update_1(p, &mine, late, &begun);
    else
        update_2(p, &mine, &begun);
    if (p->config->method == 2)
        set_base(p, &p->x);
    trace_copied(p->m->world, begun, TRACE_STEPS, p->lane->completed + 1,
                 2 * l->x.n * sizeof(float));
    submit_gradient(p, &mine, p->config->method == 1);
    return sync_is_due(p) ? drain_pipe(p) : OK;
}

/* `allreduce` without overlap: x ← x − η·mean g (Eq. 6.1). */
static int warm_step(struct pipe *p)
{
    struct learner *l = p->m->learner;
    struct exchange_meta mine;
    p->warming = true;
    int rc = run_gradient(p, &mine);
    if (rc != OK)
        return rc;
    vec_export(&l->dx, vec_all(&l->dx), p->lane->input.at);
    submit_gradient(p, &mine, true);
    rc = receive_mean(p);
    if (rc != OK)
        return rc;
    vec_import(&l->dx, vec_all(&l->dx), exchange_result(p->lane)->at);
    learner_update(l, p->from);
    rc = commit_step(p, l->x);
    p->warming = false;
    return rc;
}

/* While it warms up, replicas agree in more than the global model. */
static size_t async_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct pipe *p = m->own;
    if (p->warming)
        return JOIN_STATE_NOT_HERE;
    word[JOIN_FROM] = p->from;
    word[JOIN_OFFSET] = p->here.sample_offset;
    word[JOIN_STEPS] = p->here.steps;
    word[JOIN_DRAINING] = p->draining;
    return JOIN_WORDS;
}

/* A joiner's x is the global model. Unless all start over, the others submit this step's result
 * next, and a joiner submits nothing. */
static int join_pipe(struct pipe *p, const struct join_state *join)
{
    struct exchange_meta nothing = {0};
    if (join->words != JOIN_WORDS)
        return ERR_PROTOCOL;
    p->from = join->word[JOIN_FROM];
    p->here.sample_offset = join->word[JOIN_OFFSET];
    p->here.steps = join->word[JOIN_STEPS];
    if (join->word[JOIN_DRAINING])
        return OK;
    set_base(p, &p->m->learner->x);
    submit_gradient(p, &nothing, p->config->method == 1);
    return sync_is_due(p) ? drain_pipe(p) : OK;
}

static int async_worker(struct member *m)
{
    struct pipe *p = m->own = arena_new(m->arena, struct pipe);
    int rc = p ? pipe_open(p, m) : ERR_NOMEM;
    if (rc == OK && m->join_state)
        rc = join_pipe(p, m->join_state);
    uint64_t warm = rc == OK ? in_records(p, p->config->warmup_epochs) : 0;
    while (rc == OK && !is_done(p) && p->here.sample_offset < warm)
        rc = warm_step(p);
    if (rc == OK && !p->in_flight) /* of gradients */
        exchange_forget_lost(p->lane);
    while (rc == OK && !is_done(p))
        rc = take_step(p);
    if (rc == OK && p->in_flight)
        rc = drain_pipe(p);
    return rc == ERR_STOP ? OK : rc;
}

static void async_close(struct member *m)
{
    struct pipe *p = m->own;
    if (p)
        async_exchange_stop(&p->sender);
}

static int async_configure(const Paceline__Job *job, struct strategy_traits *traits,
                           struct err *err)
{
    (void)job, (void)err;
    traits->joinable = true;
    traits->sends_gradients = true;
    traits->round = 1;
    return OK;
}

const struct strategy_ops strategy_async_allreduce = {
    .name = "async_allreduce",
    .configure = async_configure,
    .export_join_state = async_export_join_state,
    .worker = async_worker,
    .close = async_close,
};
