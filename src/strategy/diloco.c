/* `diloco`: DiLoCo (Douillard et al. 2023) and Streaming DiLoCo (Douillard et al. 2025). Every
 * worker takes H = tau steps from the joint model x̃ with the job's own optimizer, the inner one
 * (the papers use AdamW). How far the workers' mean has moved serves as a gradient of x̃, and x̃
 * takes one step with an outer optimizer, Nesterov's as PyTorch's SGD has it:
 *
 *     Δ = x̃ − 1/K Σ x_i
 *     v ← μ·v + Δ
 *     x̃ ← x̃ − η·(Δ + μ·v)                  η = outer_lr, μ = outer_momentum
 *     x_i ← x̃
 *
 * All compute x̃ and v alike from the same committed mean: there is no server. The last line of the
 * outer step is computed as x̃ ← mean + (1−η)·Δ − ημ·v, which is the same, and with η = 1 and μ = 0
 * the mean itself: `sync`.
 *
 * fragments: P > 1. x is cut into P fragments, anywhere. Fragment p = 0 … P−1 goes through all this
 * by itself every H steps, at the steps t with t ≡ H(p+1)/P (mod H): so less is exchanged at once.
 *
 * overlap: o > 0. What is submitted at step t is taken at step t + o, and exchanged meanwhile
 * beside training. The fragment has gone on by o steps then, and keeps a part of them:
 *
 *     x_i ← mix·x_i + (1−mix)·x̃
 *
 * At the end of the run all that is under way is taken, and whatever has moved since it was
 * submitted is exchanged once more. s of layers goes with the last fragment; its mean is the joint
 * model's, workers keep their own. on_replace: what becomes of the inner optimizer's state of a
 * fragment: `keep`, `reset` (P = 1 alone: the count of updates is the whole model's), or `average`,
 * which is mixed like x.
 *
 * Where a worker trains is ahead of where the run stands: records are committed with the first
 * exchange that is submitted after them. */
#include "strategy/background.h"
#include "strategy/mpca_rules.h"
#include "strategy/strategy.h"

enum { FRAGMENTS_MAX = 16, HASH_EVERY = 100 /* exchanges of a fragment */ };

/* To a newcomer: where workers train, and when each fragment was submitted last. */
enum { TOLD_PLACE, TOLD_STEPS, TOLD_SENT };
_Static_assert(TOLD_SENT + FRAGMENTS_MAX <= ADMISSION_WORDS, "all can be told");

struct fragment {
    struct range r;        /* of x */
    bool last;             /* s goes with it */
    struct exchange *lane; /* for x, the inner optimizer's state if it is averaged, s */
    struct background beside;
    bool away;          /* submitted, not taken */
    bool entered;       /* a newcomer has taken part here */
    struct course sent; /* where the worker was when it submitted */
};

struct diloco {
    struct member *m;
    const Paceline__DiLoCo *how;
    struct fragment at[FRAGMENTS_MAX];
    size_t count, states;       /* vectors of inner state that travel */
    bool lossy;                 /* the code of the wire rounds */
    struct course here;         /* where this worker trains */
    struct exchange_meta since; /* its steps since it submitted last */
    struct vec x, s, v;         /* x̃, s̃, v */
};

static struct vec part(const struct vec *v, size_t from, size_t len)
{
    return (struct vec){v->at + from, len};
}

/* ---- when ---- */

/* Is t among a fragment's steps? The next one of them after t? */
static uint64_t phase(const struct diloco *d, size_t p)
{
    uint64_t H = d->how->tau;
    return H * (p + 1) / d->count % H;
}

static bool is_due(const struct diloco *d, size_t p, uint64_t t)
{
    return t % d->how->tau == phase(d, p);
}

static uint64_t next_due(const struct diloco *d, size_t p, uint64_t t)
{
    uint64_t H = d->how->tau;
    return t + H - (t % H + H - phase(d, p)) % H;
}

/* Steps until something is to be submitted or taken. */
static uint64_t steps_ahead(const struct diloco *d)
{
    uint64_t t = d->here.steps, next = t + d->how->tau;
    for (size_t p = 0; p < d->count; p++) {
        const struct fragment *f = &d->at[p];
        uint64_t due = next_due(d, p, t), back = f->sent.steps + d->how->overlap;
        next = due < next ? due : next;
        next = f->away && back < next ? back : next;
    }
    return next - t;
}

/* ---- set-up ---- */

static int open_fragment(struct diloco *d, size_t p)
{
    struct member *m = d->m;
    struct fragment *f = &d->at[p];
    const struct exchange_config how = strategy_exchange_how(m->job);
    f->r = mpca_shard_range(d->x.n, d->count, p);
    f->last = p + 1 == d->count;
    f->sent = m->course;
    f->entered = !m->admission;
    size_t n = f->r.len * (1 + d->states) + (f->last ? d->s.n : 0);
    int rc =
        lanes_open(&m->lanes, m->group, false, n, &how, m->course.exchanges, m->arena, &f->lane);
    if (rc == OK)
        rc = background_start(&f->beside, m, f->lane);
    return rc;
}

static int diloco_open(struct diloco *d, struct member *m)
{
    const struct learner *l = m->learner;
    size_t n = l->x.n;
    d->m = m;
    d->how = m->job->strategy->diloco;
    d->here = m->course;
    d->since = (struct exchange_meta){.weight = 1};
    d->lossy = m->job->collective->wire != PACELINE__COLLECTIVE__WIRE__f32;
    d->states = d->how->on_replace == PACELINE__ON_REPLACE__average ? l->optim.ops->states : 0;
    d->count = d->how->fragments;
    while (d->count > 1 && n / d->count < SEGMENT_ALIGN)
        d->count--; /* a vector so short has no more */
    if (vec_init(&d->x, m->arena, n) != OK || vec_init(&d->s, m->arena, l->s.n) != OK ||
        vec_init(&d->v, m->arena, n) != OK)
        return ERR_NOMEM;
    vec_copy(&d->x, &l->x, vec_all(&d->x));
    vec_copy(&d->s, &l->s, vec_all(&d->s));
    if (m->resumed)
        vec_copy(&d->v, m->resumed, vec_all(&d->v));
    m->joint.x = &d->x;
    m->joint.s = &d->s;
    m->joint.extra = &d->v;
    int rc = OK;
    for (size_t p = 0; rc == OK && p < d->count; p++)
        rc = open_fragment(d, p);
    return rc;
}

/* ---- the two ends of an exchange ---- */

/* x travels as it is. If the code rounds, x − x̃ does: it is so much smaller. */
static void put_fragment(const struct diloco *d, const struct fragment *f)
{
    const struct learner *l = d->m->learner;
    struct vec x = part(&f->lane->input, 0, f->r.len), joint = part(&d->x, f->r.from, f->r.len);
    float *at = x.at + x.n;
    vec_export(&l->x, f->r, x.at);
    if (d->lossy)
        vec_axpy(&x, -1.0f, &joint, vec_all(&x));
    for (size_t i = 0; i < d->states; i++, at += x.n)
        vec_export(&l->optim.state[i], f->r, at);
    if (f->last)
        vec_export(&l->s, vec_all(&l->s), at);
}

/* Has this worker taken part in the exchanges of all fragments, but perhaps this one? */
static bool all_entered(const struct diloco *d, const struct fragment *but)
{
    bool all = true;
    for (const struct fragment *f = d->at; f < d->at + d->count; f++)
        all &= f == but || f->entered;
    return all;
}

static void submit(struct diloco *d, struct fragment *f)
{
    struct exchange_meta mine = d->since;
    mine.stop_votes = atomic_load(&d->m->group->stop);
    mine.hash_min = UINT64_MAX;
    if (f->lane->completed % HASH_EVERY == 0)
        mine.hash_min = mine.hash_max = vec_hash(&d->x, f->r);
    d->since = (struct exchange_meta){.weight = 1};
    if (!all_entered(d, f)) /* and has no share yet */
        members_add(&mine.leaving, d->m->world->self);
    put_fragment(d, f);
    f->sent = d->here;
    f->away = true;
    background_submit(&f->beside, &mine);
}

/* The outer step of a fragment. What was put in has served, and gives its place to Δ. */
static void outer_step(struct diloco *d, const struct fragment *f)
{
    float lr = d->how->outer_lr, momentum = d->how->outer_momentum;
    struct vec mean = part(exchange_result(f->lane), 0, f->r.len);
    struct vec x = part(&d->x, f->r.from, f->r.len), v = part(&d->v, f->r.from, f->r.len);
    struct vec delta = part(&f->lane->input, 0, f->r.len);
    struct range all = vec_all(&x);
    if (d->lossy) { /* what came is the mean of x − x̃ */
        vec_copy(&delta, &mean, all);
        vec_scale(&delta, -1.0f, all);
        vec_axpy(&x, 1.0f, &mean, all);
    } else {
        vec_copy(&delta, &x, all);
        vec_axpy(&delta, -1.0f, &mean, all);
        vec_copy(&x, &mean, all);
    }
    vec_scale(&v, momentum, all);
    vec_axpy(&v, 1.0f, &delta, all);
    vec_axpy(&x, 1.0f - lr, &delta, all);
    vec_axpy(&x, -lr * momentum, &v, all);
}

/* x_i ← mix·x_i + (1−mix)·x̃, or x̃ where the worker has not gone on; its inner state likewise. */
static void replace(struct diloco *d, const struct fragment *f)
{
    struct learner *l = d->m->learner;
    const struct vec *mean = exchange_result(f->lane);
    float joint = d->here.steps > f->sent.steps ? 1.0f - d->how->mix : 1.0f;
    vec_lerp(&l->x, joint, &d->x, f->r);
    for (size_t i = 0; i < d->states; i++) {
        struct vec own = part(&l->optim.state[i], f->r.from, f->r.len);
        struct vec of_all = part(mean, f->r.len * (1 + i), f->r.len);
        vec_lerp(&own, joint, &of_all, vec_all(&own));
    }
    if (d->how->on_replace == PACELINE__ON_REPLACE__reset)
        optim_reset(&l->optim);
}

/* A model that is no number any more, or was not when it was submitted. */
static void begin_afresh(struct diloco *d)
{
    struct learner *l = d->m->learner;
    vec_copy(&l->x, &d->x, vec_all(&l->x));
    vec_copy(&l->s, &d->s, vec_all(&l->s));
    optim_reset(&l->optim);
    l->steps = d->here.steps;
}

/* Take what was submitted, waiting if it is still on its way: the run has come to where that was.
 */
static int receive(struct diloco *d, struct fragment *f)
{
    struct member *m = d->m;
    int rc = background_wait(&f->beside, WORLD_FOREVER);
    const struct exchange_meta *tally = exchange_result_meta(f->lane);
    if (rc != OK)
        return rc;
    if (tally->hash_max != 0 && tally->hash_min != tally->hash_max)
        return ERR_REPLICAS;
    if (tally->weight == 0)
        return ERR_DIVERGED;
    f->away = false;
    f->entered = true;
    outer_step(d, f);
    if (f->last)
        vec_import(&d->s, vec_all(&d->s),
                   exchange_result(f->lane)->at + f->r.len * (1 + d->states));
    replace(d, f);
    if (f->lane->mine.weight == 0)
        begin_afresh(d);
    bool shared = strategy_shares(m, &d->here);
    d->here.who = strategy_sharers(tally);
    if (!shared && strategy_shares(m, &d->here))
        d->since = (struct exchange_meta){.weight = 1}; /* it begins here */
    m->course.place = f->sent.place;
    m->course.steps = f->sent.steps;
    m->course.exchanges++;
    m->course.who = d->here.who;
    return m->committed(m, f->lane);
}

/* ---- a worker ---- */

static int train(struct diloco *d, uint64_t steps)
{
    struct member *m = d->m;
    uint64_t all = members_count(&d->here.who) * job_step_records(m->job);
    uint64_t end = d->here.steps + steps;
    if (!strategy_shares(m, &d->here)) { /* the others train */
        d->here.steps = end;
        d->here.place += steps * all;
        if (d->since.samples == 0) /* else it leaves, and has yet to give the steps of an overlap */
            strategy_give_nothing(m, &d->since);
    }
    while (d->here.steps < end) {
        uint64_t before = d->since.samples;
        bool lost = d->since.weight == 0;
        d->since.weight = 1;
        int rc = strategy_steps(m, &d->here, 0, end - d->here.steps, WORLD_FOREVER, &d->since);
        if (rc != OK)
            return rc;
        bool diverged = d->since.weight == 0;
        uint64_t taken = (d->since.samples - before) / job_step_records(m->job) + diverged;
        d->here.steps += taken;
        d->here.place += taken * all;
        if (diverged)
            begin_afresh(d);
        d->since.weight = diverged || lost ? 0 : 1;
    }
    return OK;
}

/* Behind an exchange beside which no other is under way. */
static size_t diloco_tell(const struct member *m, uint64_t word[ADMISSION_WORDS])
{
    const struct diloco *d = m->own;
    for (size_t p = 0; p < d->count; p++) {
        if (d->at[p].away)
            return ADMISSION_NOT_HERE;
        word[TOLD_SENT + p] = d->at[p].sent.steps;
    }
    word[TOLD_PLACE] = d->here.place;
    word[TOLD_STEPS] = d->here.steps;
    return TOLD_SENT + d->count;
}

static int diloco_enter(struct diloco *d, const struct admission *told)
{
    if (told->words != TOLD_SENT + d->count)
        return ERR_PROTOCOL;
    d->here.place = told->word[TOLD_PLACE];
    d->here.steps = told->word[TOLD_STEPS];
    for (size_t p = 0; p < d->count; p++)
        d->at[p].sent.steps = told->word[TOLD_SENT + p];
    return OK;
}

/* What is due at this step: first all that is to leave, then all that is to come back. */
static int exchange(struct diloco *d)
{
    uint64_t t = d->here.steps;
    int rc = OK;
    for (size_t p = 0; p < d->count; p++)
        if (is_due(d, p, t))
            submit(d, &d->at[p]);
    for (size_t p = 0; rc == OK && p < d->count; p++)
        if (d->at[p].away && t >= d->at[p].sent.steps + d->how->overlap)
            rc = receive(d, &d->at[p]);
    return rc;
}

/* The fragment that was submitted first of those that are away; NULL: none is. */
static struct fragment *oldest(struct diloco *d)
{
    struct fragment *first = NULL;
    for (struct fragment *f = d->at; f < d->at + d->count; f++)
        if (f->away && (!first || f->sent.steps < first->sent.steps))
            first = f;
    return first;
}

/* The end: nothing stays under way, and every fragment is as trained as it can be. */
static int finish(struct diloco *d)
{
    int rc = OK;
    for (struct fragment *f; rc == OK && (f = oldest(d));)
        rc = receive(d, f);
    for (size_t p = 0; rc == OK && p < d->count; p++) {
        if (d->at[p].sent.steps == d->here.steps)
            continue;
        submit(d, &d->at[p]);
        rc = receive(d, &d->at[p]);
    }
    return rc;
}

static int diloco_worker(struct member *m)
{
    struct diloco *d = m->own = arena_new(m->arena, struct diloco);
    size_t records = m->learner->corpus->set[SET_TRAIN].count;
    int rc = d ? diloco_open(d, m) : ERR_NOMEM;
    if (rc == OK && m->admission)
        rc = diloco_enter(d, m->admission);
    while (rc == OK && !strategy_done(m->job, &d->here, records)) {
        rc = train(d, strategy_round(m->job, &d->here, records, steps_ahead(d)));
        if (rc == OK)
            rc = exchange(d);
    }
    if (rc == OK)
        rc = finish(d);
    for (size_t p = 0; rc == ERR_STOP && p < d->count; p++)
        if (d->at[p].away) /* others may wait for it */
            background_wait(&d->at[p].beside, WORLD_FOREVER);
    return rc == ERR_STOP ? OK : rc;
}

static void diloco_close(struct member *m)
{
    struct diloco *d = m->own;
    for (size_t p = 0; d && p < d->count; p++)
        background_stop(&d->at[p].beside);
}

static int diloco_check(const Paceline__Job *job, struct err *err)
{
    const Paceline__DiLoCo *how = job->strategy->diloco;
    if (how->on_replace == PACELINE__ON_REPLACE__reset && how->fragments > 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "strategy.diloco.on_replace: reset needs fragments: 1, is %u",
                       how->fragments);
    return OK;
}

static uint64_t diloco_round(const Paceline__Job *job)
{
    const Paceline__DiLoCo *how = job->strategy->diloco;
    return how->tau / how->fragments;
}

/* Are there commit points at which nothing is under way? */
static bool diloco_joinable(const Paceline__Job *job)
{
    const Paceline__DiLoCo *how = job->strategy->diloco;
    return how->overlap == 0 || (uint64_t)how->overlap * how->fragments < how->tau;
}

const struct strategy_ops strategy_diloco = {
    .name = "diloco",
    .check = diloco_check,
    .round = diloco_round,
    .joinable = diloco_joinable,
    .tell = diloco_tell,
    .extras = 1,
    .extra_name = {"outer_momentum"},
    .worker = diloco_worker,
    .close = diloco_close,
};
