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
 * A replica that the view has newly got receives its state from the others behind commit points. It
 * has no share of the rounds until all its slices have their state. */
#include "strategy/sliced_attempt.h"

/* ---- the result of a round ---- */

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
        sliced_update(s, meta);
    s->joiner = s->kept = false;
    lane->cost.bytes += slice_group_take_bytes(&s->group);
    uint32_t requests = (uint32_t)exchange_result(lane)->at[0];
    strategy_advance(&m->progress, rests ? 0 : s->steps, s->samples, meta);
    sliced_count_sharing(s);
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
    struct stretch own = sliced_share(s, (place - m->progress.sample_offset) / samples, samples);
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
    uint32_t first = sliced_first(g->m), seat = view_seat(g->view, first);
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
        .lasts = !s->models && !s->due && !s->ended && l->s.n == 0, /* steps change s */
    };
    bool receives = slice_group_lacks_state(g), first = receives && g->received == 0;
    if (!receives && !g->handed && s->kept && !members_empty(&g->view->fresh)) {
        int rc = sliced_keep(s); /* the state behind the commit point, not one of the round */
        if (rc != OK)
            return rc;
        state.updates = l->optim.updates;
        state.steps = l->steps;
    }
    int rc = slice_group_hand_over(g, &state);
    if (rc != OK || !first)
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
        carried_state_reset(&s->group.m->learner->carried);
    s->view = view->number;
}

static bool has_fresh_mate(const struct slice_group *g)
{
    bool any = false;
    for (size_t f = 0; f < g->slice.count; f++)
        any |= members_has(&g->view->fresh, g->mates->node[f]);
    return any;
}

/* Bring this member to where the others of the view are: behind the same commit point. */
static int catch_up(struct sliced *s)
{
    struct slice_group *g = &s->group;
    const struct exchange *lane = g->lane[SLICE_ROUNDS];
    int rc = slice_group_enter(g);
    if (rc != OK)
        return rc;
    begin_streams(s);
    bool behind = !slice_group_is_fresh(g) && lane->completed > s->applied;
    if (behind)
        rc = commit_round(s);
    if (lane->completed == g->entered && has_fresh_mate(g))
        s->joiner = true; /* whether this member has its state or not */
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
    rc = sliced_attempt(s);
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
    if (rc == OK)
        rc = sliced_open_rounds(s);
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
        sliced_count_sharing(s);
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
    sliced_close_rounds(s);
    slice_group_close(&s->group);
}
