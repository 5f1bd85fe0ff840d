/* The loop of a worker where the model is in slices (SparkDML §2.2): F members with a slice each
 * are one replica, which takes the same records in each step. Without other replicas the gathers
 * and sums within a step have made the gradient of a slice complete, and
 *
 *     x_f ← x_f − η · g_f
 *
 * is the optimizer of one worker, since the updates of an element depend on that element alone.
 * Where there are R replicas, a round ends with a sum over the peers of each slice: of gradients
 * (`allreduce`), or after τ steps of models (`sync`; `diloco` and `easgd`, by sliced_rule.h),
 *
 *     g_f ← Σ_r w_r g_f,r / Σ_r w_r ,   or   x_f ← Σ_r w_r x_f,r / Σ_r w_r .
 *
 * Before it the slices of a replica agree on w_r, since one of them alone may see a value that is
 * not finite; but gradients leave in buckets during the step, and are added up once more if a
 * replica of which they did is found not to count (slice_buckets.h). After it an exchange of one
 * number among all members is the commit point of the round: the uses for which the driver has
 * requested the model of the first member.
 *
 * Sums have no commit rule. A member takes part in the exchange only when it has its sum; so if one
 * member has completed the exchange, all have what they need to apply the round, and do. Otherwise,
 * in a new view, all repeat the round from its beginning, with the replicas that are left.
 *
 * A replica that the view has newly got receives its state from the others behind the last commit
 * point, and has no share of the round under way. */
#include "base/fault.h"
#include "strategy/slice_buckets.h"
#include "strategy/sliced_rule.h"
#include "world/trace.h"

#include <math.h>

enum { HASH_EVERY = 100, HASH_PIECES = 4 };

/* The numbers of a vote of the slices of a replica, whose sums are exact. */
enum { VOTE_BAD, VOTE_LEAVES, VOTE_HASH, VOTES = VOTE_HASH + HASH_PIECES };

struct sliced {
    struct slice_group group; /* first: the learner's meetings get it */
    struct sliced_rule rule;
    bool models;      /* peers average models, not gradients */
    uint64_t applied; /* rounds whose results the learner has */
    uint64_t view;    /* of the streams' states */
    bool joiner;      /* has no share of the round under way */
    bool ended, left;
    size_t sharing, rank; /* replicas that share the samples of a round; of this one among them */
    /* The round under way. */
    uint64_t steps, samples;
    struct exchange_meta mine;
    uint64_t hash;                /* of x before it; 0: replicas are not compared */
    float *sum;                   /* x or dx, then s, then the weight; NULL without replicas */
    struct slice_buckets buckets; /* of dx; they fill `sum` */
    /* The learner's state before it, as far as a repetition needs that. */
    bool kept;
    struct vec before, before_state[OPTIM_STATE_MAX];
    uint64_t before_updates, before_steps;
    /* Models that are shown to the driver. */
    uint64_t shown;
    uint32_t due;
};

static struct learner *learner_of(const struct sliced *s)
{
    return s->group.m->learner;
}

/* The member whose model the driver gets, as all know it. */
static uint32_t first_of(const struct member *m)
{
    return members_next(&m->progress.sharers, 0);
}

/* ---- the repetition of a round ---- */

static int keep_before(struct sliced *s)
{
    struct learner *l = learner_of(s);
    struct vec *own = s->models ? &l->both : &l->s;
    if (s->kept) {
        vec_copy(own, &s->before, vec_all(own));
        for (size_t i = 0; s->models && i < l->optim.ops->states; i++)
            vec_copy(&l->optim.state[i], &s->before_state[i], vec_all(&l->optim.state[i]));
        l->optim.updates = s->before_updates;
        l->steps = s->before_steps;
        return OK;
    }
    struct world *world = s->group.m->world;
    int64_t begun = trace_now(world);
    vec_copy(&s->before, own, vec_all(own));
    for (size_t i = 0; s->models && i < l->optim.ops->states; i++)
        vec_copy(&s->before_state[i], &l->optim.state[i], vec_all(&l->optim.state[i]));
    s->before_updates = l->optim.updates;
    s->before_steps = l->steps;
    s->kept = true;
    int rc = world_copied(world, own->n * sizeof(float));
    trace_copied(world, begun, TRACE_STEPS, s->group.m->progress.exchanges + 1,
                 own->n * sizeof(float));
    return rc;
}

static int open_before(struct sliced *s)
{
    struct member *m = s->group.m;
    const struct learner *l = m->learner;
    int rc = vec_init(&s->before, m->arena, s->models ? l->both.n : l->s.n);
    for (size_t i = 0; rc == OK && s->models && i < l->optim.ops->states; i++)
        rc = vec_init(&s->before_state[i], m->arena, l->x.n);
    return rc;
}

/* ---- a round ---- */

/* Replicas share the samples of a round in the order of their numbers. Those that the view loses
 * keep their shares until the round is over. */
static void count_sharing(struct sliced *s)
{
    const struct slice_group *g = &s->group;
    uint32_t own = group_seat(g->m->group, g->m->world->self);
    struct members replicas = {{0}};
    MEMBERS_EACH (node, &g->m->progress.sharers) {
        uint32_t seat = group_seat(g->m->group, node);
        if (seat != VIEW_NO_SEAT)
            members_add(&replicas, seat / (uint32_t)g->slice.count);
    }
    s->rank = own == VIEW_NO_SEAT ? 0 : members_rank(&replicas, own / (uint32_t)g->slice.count);
    s->sharing = members_count(&replicas);
}

static struct stretch share_of(const struct sliced *s, uint64_t t, uint64_t samples)
{
    struct range cut = range_cut(samples, s->sharing, s->rank, 1);
    return (struct stretch){s->group.m->progress.sample_offset + t * samples + cut.from, cut.len};
}

static int train_step(struct sliced *s, uint64_t t, uint64_t samples)
{
    struct member *m = s->group.m;
    struct learner *l = m->learner;
    struct stretch share = share_of(s, t, samples);
    if (atomic_load(&m->group->end.over))
        return ERR_DRIVER;
    l->optim.scale = strategy_rate_scale(m->job, samples);
    int rc = s->models ? learner_step(l, share.start, share.count)
                       : learner_gradient(l, share.start, share.count);
    if (s->group.slice.index == 0) { /* the records of a replica count once */
        s->mine.samples += share.count;
        s->mine.loss += l->loss * (double)share.count;
    }
    if (rc == OK && t + 1 < s->steps)
        rc = m->on_step_boundary(m);
    return rc;
}

static int train_steps(struct sliced *s)
{
    struct member *m = s->group.m;
    uint64_t samples = strategy_step_samples(m->job, &m->progress, m->learner->epoch_records);
    s->samples = samples;
    s->mine = (struct exchange_meta){
        .weight = 1,
        .stop_votes = atomic_load(&m->group->stop),
        .hash_min = UINT64_MAX,
    };
    bool shares = !s->joiner && strategy_shares(m, &m->progress);
    if (!shares)
        strategy_contribute_nothing(m, &s->mine);
    int rc = slice_buckets_begin(&s->buckets, shares);
    if (!shares)
        return rc;
    for (uint64_t t = 0; rc == OK && t < s->steps; t++)
        rc = train_step(s, t, samples);
    if (rc == ERR_DIVERGED)
        s->mine.weight = 0;
    return rc == ERR_DIVERGED ? OK : rc;
}

static struct vec *summand_of(const struct sliced *s)
{
    struct learner *l = learner_of(s);
    return s->models ? &l->x : &l->dx;
}

static size_t sum_floats(const struct sliced *s)
{
    return summand_of(s)->n + learner_of(s)->s.n + 1;
}

static bool has_bad_share(const struct sliced *s)
{
    const struct vec *sum = summand_of(s), *state = &learner_of(s)->s;
    bool shares = !members_has(&s->mine.non_contributing, s->group.m->world->self);
    return shares && (s->mine.weight == 0 || !vec_finite(sum, vec_all(sum)) ||
                      !vec_finite(state, vec_all(state)));
}

/* The slices of a replica contribute together, or not at all, and leave together. */
static int agree_on_weight(struct sliced *s)
{
    struct member *m = s->group.m;
    uint64_t hash = s->hash;
    float vote[VOTES] = {[VOTE_BAD] = has_bad_share(s), [VOTE_LEAVES] = group_is_leaving(m->group)};
    for (int i = 0; i < HASH_PIECES; i++)
        vote[VOTE_HASH + i] = (float)(hash >> 16 * i & 0xffff);
    int rc = slice_group_vote(&s->group, vote, VOTES);
    if (rc != OK)
        return rc;
    if (vote[VOTE_BAD] > 0)
        s->mine.weight = 0;
    if (vote[VOTE_LEAVES] > 0 && s->group.peers->count > 1)
        members_add(&s->mine.leaving, m->world->self);
    else if (vote[VOTE_LEAVES] > 0)
        s->mine.stop_votes++; /* nobody can continue without this replica */
    hash = 1;
    for (int i = 0; i < HASH_PIECES; i++)
        hash = hash << 16 ^ (uint64_t)vote[VOTE_HASH + i];
    if (s->hash != 0)
        s->mine.hash_min = s->mine.hash_max = hash;
    return OK;
}

/* sum ← Σ over the peers of w·(x or dx, s, 1). */
static int sum_peers(struct sliced *s)
{
    const struct learner *l = learner_of(s);
    size_t n = sum_floats(s), n_own = summand_of(s)->n;
    struct vec all = {s->sum, n};
    struct world *world = s->group.m->world;
    int64_t begun = trace_now(world);
    vec_fill(&all, vec_all(&all), 0);
    if (s->mine.weight > 0) {
        vec_export(summand_of(s), vec_all(summand_of(s)), s->sum);
        vec_export(&l->s, vec_all(&l->s), s->sum + n_own);
        s->sum[n - 1] = 1;
        if (s->mine.weight != 1)
            vec_scale(&all, (float)s->mine.weight, vec_all(&all));
    }
    int rc = world_copied(world, n * sizeof(float));
    trace_copied(world, begun, TRACE_STEPS, s->group.m->progress.exchanges + 1, n * sizeof(float));
    return rc == OK ? slice_group_sum(&s->group, s->sum, n) : rc;
}

/* Buckets have added up what all replicas with a gradient have. A replica that does not count after
 * all lets the sum of the weights be none: then all add up once more. */
static int complete_sum(struct sliced *s)
{
    const struct learner *l = learner_of(s);
    struct vec sum = {s->sum, l->dx.n}, rest = {s->sum + l->dx.n, l->s.n + 1};
    vec_fill(&rest, vec_all(&rest), 0);
    if (s->mine.weight > 0) {
        PL_ASSERT(s->mine.weight == 1 && s->buckets.adds);
        vec_export(&l->s, vec_all(&l->s), rest.at);
        rest.at[l->s.n] = 1;
    } else if (s->buckets.adds) {
        rest.at[l->s.n] = NAN;
    }
    int rc = slice_buckets_add_rest(&s->buckets, rest.at, rest.n);
    if (rc != OK || isfinite(rest.at[l->s.n]))
        return rc == OK ? slice_group_align(&s->group, &sum) : rc;
    rc = slice_group_align(&s->group, summand_of(s));
    return rc == OK ? sum_peers(s) : rc;
}

/* The gradient or the model of a round becomes the peers' sum. */
static int end_round(struct sliced *s)
{
    bool replicas = slice_group_has_replicas(&s->group);
    bool summed = replicas && s->buckets.count > 0;
    int rc = slice_group_align_states(&s->group);
    if (rc == OK && !summed)
        rc = slice_group_align(&s->group, summand_of(s));
    if (rc == OK && replicas)
        rc = agree_on_weight(s);
    if (rc == OK && replicas)
        rc = summed ? complete_sum(s) : sum_peers(s);
    return rc;
}

/* Sums that the end of a view has ended are not used any more, either. */
static int end_buckets(struct sliced *s, int trained)
{
    if (trained != OK && trained != ERR_VIEW)
        return trained;
    int rc = slice_group_abandon(&s->group);
    if (rc == OK)
        rc = slice_buckets_end(&s->buckets);
    return trained == OK || rc == ERR_CANCELLED ? rc : trained;
}

/* Of the gradient that the optimizer takes behind the commit point. */
static int agree_on_norm(struct sliced *s)
{
    struct learner *l = learner_of(s);
    const struct vec sum = {s->sum, l->dx.n};
    float weight = s->sum ? s->sum[sum_floats(s) - 1] : 1;
    if (s->models)
        return OK;
    return s->sum ? learner_agree_on_norm(l, &sum, weight > 0 ? 1 / (double)weight : 0)
                  : learner_agree_on_norm(l, &l->dx, 1);
}

static uint64_t round_steps(const struct sliced *s)
{
    const struct member *m = s->group.m;
    if (!s->models)
        return 1;
    return strategy_round(m->job, &m->progress, m->learner->epoch_records, s->rule.tau);
}

/* One attempt at the round behind the progress. ERR_VIEW: the view has changed */
static int attempt_round(struct sliced *s)
{
    struct member *m = s->group.m;
    struct exchange *lane = s->group.lane[SLICE_ROUNDS];
    bool replicas = slice_group_has_replicas(&s->group);
    s->steps = round_steps(s);
    s->group.bytes = 0;
    int rc = keep_before(s);
    bool compares = replicas && m->progress.exchanges % HASH_EVERY == 0;
    const struct vec *common = sliced_rule_common(&s->rule, m->learner);
    s->hash = compares ? vec_hash(common, vec_all(common)) | 1 : 0;
    if (rc == OK)
        rc = end_buckets(s, train_steps(s));
    if (rc == OK)
        rc = end_round(s);
    if (rc == OK)
        rc = agree_on_norm(s);
    if (!replicas)
        s->mine.stop_votes += group_is_leaving(m->group);
    uint32_t requests = first_of(m) == m->world->self ? atomic_load(&m->group->model_requests) : 0;
    lane->input.at[0] = (float)requests;
    return rc == OK ? exchange_run(lane, &s->mine) : rc;
}

/* ---- its result ---- */

static void update_model(struct sliced *s, const struct exchange_meta *meta)
{
    struct member *m = s->group.m;
    size_t n = sum_floats(s), n_own = summand_of(s)->n, slices = s->group.slice.count;
    struct vec all = {s->sum, n};
    struct sliced_round round = {
        .before = &s->before,
        .replicas = members_count(&meta->participants) / slices,
        .contributors = members_count(&meta->contributors) / slices,
        .steps = s->steps,
        .damaged = s->group.lane[SLICE_ROUNDS]->mine.weight == 0,
    };
    if (slice_group_has_replicas(&s->group)) {
        PL_ASSERT(s->sum[n - 1] > 0);
        vec_scale(&all, 1.0f / s->sum[n - 1], vec_all(&all));
        round.x = vec_part(&all, 0, n_own);
        round.s = vec_part(&all, n_own, m->learner->s.n);
    }
    sliced_rule_apply(&s->rule, m, &round);
}

/* The round's exchange is completed. */
static int commit_round(struct sliced *s)
{
    struct member *m = s->group.m;
    struct exchange *lane = s->group.lane[SLICE_ROUNDS];
    const struct exchange_meta *meta = exchange_result_meta(lane);
    bool replicas = slice_group_has_replicas(&s->group);
    s->applied = lane->completed;
    if (meta->hash_max != 0 && meta->hash_min != meta->hash_max)
        return ERR_REPLICAS;
    /* All that trained are lost, and those that have their slices now train from the next round. */
    struct members trained = members_without(&meta->participants, &meta->non_contributing);
    bool rests = replicas && members_empty(&trained);
    if (!rests && (replicas ? meta->weight == 0 : meta->weight < (double)s->group.slice.count))
        return ERR_DIVERGED;
    if (!rests)
        update_model(s, meta);
    s->joiner = s->kept = false;
    lane->cost.bytes += slice_group_take_bytes(&s->group);
    uint32_t requests = (uint32_t)exchange_result(lane)->at[0];
    strategy_advance(&m->progress, rests ? 0 : s->steps, s->samples, meta);
    count_sharing(s);
    int rc = m->on_commit(m, lane);
    if (rc != OK && rc != ERR_STOP)
        return rc;
    bool done = strategy_done(m->job, &m->progress, m->learner->epoch_records);
    s->left = rc == ERR_STOP && !done && !exchange_meta_ends_run(meta);
    s->ended = rc == ERR_STOP || done;
    s->due = s->ended ? 0 : requests | m->uses_due(m);
    s->shown += s->ended || s->due;
    return OK;
}

/* ---- the model ---- */

/* Is the record at that place this replica's? */
static bool takes_place(const void *sliced, uint64_t place)
{
    const struct sliced *s = sliced;
    const struct member *m = s->group.m;
    uint64_t samples = strategy_step_samples(m->job, &m->progress, m->learner->epoch_records);
    if (s->joiner || !strategy_shares(m, &m->progress))
        return false;
    struct stretch own = share_of(s, (place - m->progress.sample_offset) / samples, samples);
    return place >= own.start && place - own.start < own.count;
}

static int collect_streams(struct sliced *s)
{
    const struct member *m = s->group.m;
    const struct carried_selection own = {
        .sampler = &m->learner->ws->loader.sampler,
        .from = m->progress.sample_offset,
        .takes = takes_place,
        .user = s,
    };
    return s->group.streams.n > 0 ? slice_group_collect_streams(&s->group, &own) : OK;
}

/* The replica whose member speaks shows the model, and at the end of the run all do, since each of
 * them may be asked for it. No member continues before that is done: in another view all would
 * repeat it, too. */
static int show_model(struct sliced *s)
{
    struct slice_group *g = &s->group;
    int collected = collect_streams(s);
    if (collected != OK)
        return collected;
    uint32_t first = first_of(g->m), seat = view_seat(g->view, first);
    bool is_ours = seat != VIEW_NO_SEAT && seat / g->slice.count == g->replica;
    int rc = s->ended || is_ours ? slice_group_show(g, s->due, s->ended, !s->ended && is_ours,
                                                    first == g->m->world->self)
                                 : OK;
    const struct exchange_meta mine = {.weight = 1, .hash_min = UINT64_MAX};
    return rc == OK ? exchange_run(g->lane[SLICE_MODELS], &mine) : rc;
}

static bool is_shown(const struct sliced *s)
{
    return s->group.lane[SLICE_MODELS]->completed >= s->shown;
}

static int bring_model(struct sliced *s)
{
    if (!s->due && !s->ended)
        return OK;
    int rc = is_shown(s) ? OK : show_model(s);
    if (rc == OK)
        s->due = 0;
    return rc;
}

/* ---- the loop ---- */

static int hand_over(struct sliced *s)
{
    struct slice_group *g = &s->group;
    const struct learner *l = g->m->learner;
    struct slice_state state = {
        .progress = g->m->progress,
        .models = s->shown,
        .due = s->due,
        .ended = s->ended,
        .shown = s->ended && is_shown(s),
        .scores = g->m->scores,
        .updates = l->optim.updates,
        .steps = l->steps,
    };
    bool receives = !g->handed && slice_group_is_fresh(g);
    if (!receives && !g->handed && s->kept && !members_empty(&g->view->fresh)) {
        int rc = keep_before(s); /* the state behind the commit point, not one of the round */
        if (rc != OK)
            return rc;
        state.updates = l->optim.updates;
        state.steps = l->steps;
    }
    int rc = slice_group_hand_over(g, &state);
    if (rc != OK || !receives)
        return rc;
    s->shown = state.models;
    s->due = state.due;
    s->ended = state.ended;
    s->applied = g->lane[SLICE_ROUNDS]->completed;
    s->joiner = true;
    s->kept = false;
    g->m->on_state(g->m);
    return OK;
}

/* A view that ends may end a round for some mates before its last step, and the next one may have
 * other mates: in each view all slices begin streams with the same state, 0. */
static void begin_streams(struct sliced *s)
{
    const struct view *view = s->group.view;
    if (s->view != view->number)
        carried_state_reset(&learner_of(s)->carried);
    s->view = view->number;
}

/* Bring this member to where the others of the view are: behind the same commit point. */
static int catch_up(struct sliced *s)
{
    struct slice_group *g = &s->group;
    int rc = slice_group_enter(g);
    if (rc != OK)
        return rc;
    begin_streams(s);
    bool behind = !slice_group_is_fresh(g) && g->lane[SLICE_ROUNDS]->completed > s->applied;
    if (behind)
        rc = commit_round(s);
    return rc == OK && g->whole ? hand_over(s) : rc;
}

static int take_turn(struct sliced *s)
{
    int rc = catch_up(s);
    if (rc != OK || s->left)
        return rc;
    if (!s->group.whole)
        return slice_group_await_end(&s->group);
    rc = bring_model(s);
    if (rc != OK || s->ended)
        return rc;
    rc = attempt_round(s);
    return rc == OK ? commit_round(s) : rc;
}

/* Another slice's seat: the worker has to open its net again. */
static bool is_misplaced(const struct sliced *s)
{
    const struct slice_group *g = &s->group;
    uint32_t seat = view_seat(group_view(g->m->group), g->m->world->self);
    return seat != VIEW_NO_SEAT && seat % g->slice.count != g->slice.index;
}

/* The loop has ended, and the run has not: joiners may still come, and need a state. */
static int stay_in_line(struct member *m)
{
    struct sliced *s = m->own;
    for (;;) {
        const struct view *view = group_view(m->group);
        bool seated = view_seat(view, m->world->self) != VIEW_NO_SEAT;
        if (view == s->group.view || !seated || s->left || atomic_load(&m->group->end.over))
            return OK;
        if (is_misplaced(s)) /* its mates would wait: another worker is to have the seat */
            return ERR_DRIVER;
        int rc = slice_group_enter(&s->group);
        if (rc == OK && s->group.whole)
            rc = hand_over(s);
        if (rc != OK && rc != ERR_VIEW)
            return rc == ERR_DRIVER ? OK : rc;
    }
}

static int open_sliced(struct member *m, struct sliced **out)
{
    struct sliced *s = m->own = *out = arena_new(m->arena, struct sliced);
    if (!s)
        return ERR_NOMEM;
    int rc = slice_group_open(&s->group, m);
    if (rc == OK)
        rc = sliced_rule_open(&s->rule, m);
    s->models = sliced_rule_sums_models(&s->rule);
    s->group.own = s->rule.own.n > 0 ? &s->rule.own : NULL;
    s->view = group_first_view(m->group)->number;
    s->applied = m->progress.exchanges;
    bool sums = slice_group_has_replicas(&s->group);
    s->sum = rc == OK && sums ? arena_array(m->arena, sum_floats(s), float) : NULL;
    if (rc == OK)
        rc = s->sum || !sums ? open_before(s) : ERR_NOMEM;
    if (rc == OK)
        rc = slice_buckets_open(&s->buckets, &s->group, s->sum);
    m->stay_in_line = stay_in_line;
    m->publishes_itself = true;
    m->learner->meet = slice_group_meet;
    m->learner->meet_user = &s->group;
    return rc;
}

int sliced_worker(struct member *m)
{
    struct sliced *s;
    int rc = open_sliced(m, &s);
    s->ended = rc == OK && strategy_done(m->job, &m->progress, m->learner->epoch_records);
    if (rc == OK && !s->ended) /* before the first round: of a joiner the state brings it */
        s->due = m->uses_due(m);
    s->shown = s->ended || s->due;
    if (rc == OK)
        count_sharing(s);
    bool over = false;
    while (rc == OK && !over) {
        rc = take_turn(s);
        over = s->left || (s->ended && is_shown(s));
        if (rc == ERR_VIEW && !is_misplaced(s) && s->group.whole)
            rc = OK;
    }
    return rc;
}

void sliced_close(struct member *m)
{
    struct sliced *s = m->own;
    if (!s)
        return;
    slice_buckets_close(&s->buckets);
    slice_group_close(&s->group);
}
