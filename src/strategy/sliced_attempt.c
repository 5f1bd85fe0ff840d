/* A round of a worker where the model is in slices: its steps, the sum over the replicas, and its
 * repetition (sliced_worker.c). */
#include "strategy/sliced_attempt.h"

#include "base/fault.h"
#include "world/trace.h"

#include <math.h>

enum { HASH_EVERY = 100, HASH_PIECES = 4 };

/* The numbers of a vote of the slices of a replica, whose sums are exact. */
enum { VOTE_BAD, VOTE_LEAVES, VOTE_LACKS, VOTE_HASH, VOTES = VOTE_HASH + HASH_PIECES };

static struct learner *learner_of(const struct sliced *s)
{
    return s->group.m->learner;
}

/* ---- the repetition of a round ---- */

int sliced_keep(struct sliced *s)
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
void sliced_count_sharing(struct sliced *s)
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

struct stretch sliced_share(const struct sliced *s, uint64_t t, uint64_t samples)
{
    struct range cut = range_cut(samples, s->sharing, s->rank, 1);
    return (struct stretch){s->group.m->progress.sample_offset + t * samples + cut.from, cut.len};
}

/* Has this replica a share of the round under way? */
static bool has_share(const struct sliced *s)
{
    const struct member *m = s->group.m;
    return !s->joiner && strategy_shares(m, &m->progress);
}

static int train_step(struct sliced *s, uint64_t t, uint64_t samples)
{
    struct member *m = s->group.m;
    struct learner *l = m->learner;
    struct stretch share = sliced_share(s, t, samples);
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
    bool shares = has_share(s);
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

enum replica_part { REPLICA_ABSENT, REPLICA_WAITS, REPLICA_SHARES };

/* Has a replica of the view, with all its slices, a share of this round? A member that lost its
 * seat may have one again as a joiner, while the last round, of another view, still counts it. */
static enum replica_part part_of(const struct sliced *s, size_t replica)
{
    const struct slice_group *g = &s->group;
    bool first = g->lane[SLICE_ROUNDS]->completed == g->entered, shares = true;
    for (size_t f = 0; f < g->slice.count; f++) {
        uint32_t node = view_seated(g->view, (uint32_t)(replica * g->slice.count + f));
        if (node == VIEW_MEMBERS_MAX)
            return REPLICA_ABSENT;
        shares &= members_has(&g->m->progress.sharers, node) &&
                  !(first && members_has(&g->view->fresh, node));
    }
    return shares ? REPLICA_SHARES : REPLICA_WAITS;
}

/* While joiners lack their state, the first of the replicas that have it waits with its leave. All
 * slices decide alike. */
static void announce_leave(struct sliced *s)
{
    const struct slice_group *g = &s->group;
    size_t parts[REPLICA_SHARES + 1] = {0}, before = 0;
    for (size_t r = 0; r < VIEW_MEMBERS_MAX / g->slice.count; r++) {
        enum replica_part part = r == g->replica ? REPLICA_ABSENT : part_of(s, r);
        parts[part]++;
        before += part == REPLICA_SHARES && r < g->replica;
    }
    if (parts[REPLICA_WAITS] > 0 ? before > 0 : parts[REPLICA_SHARES] > 0)
        members_add(&s->mine.leaving, g->m->world->self);
    else if (parts[REPLICA_WAITS] == 0)
        s->mine.stop_votes++; /* nobody can continue without this replica */
}

/* The slices of a replica contribute together, or not at all, and leave together. They have no
 * share of the next round while one of them lacks a part of its state. */
static int agree_on_weight(struct sliced *s)
{
    struct member *m = s->group.m;
    uint64_t hash = s->hash;
    float vote[VOTES] = {[VOTE_BAD] = has_bad_share(s),
                         [VOTE_LEAVES] = group_is_leaving(m->group),
                         [VOTE_LACKS] = slice_group_lacks_state(&s->group)};
    for (int i = 0; i < HASH_PIECES; i++)
        vote[VOTE_HASH + i] = (float)(hash >> 16 * i & 0xffff);
    int rc = slice_group_vote(&s->group, vote, VOTES);
    if (rc != OK)
        return rc;
    if (vote[VOTE_BAD] > 0)
        s->mine.weight = 0;
    if (vote[VOTE_LACKS] > 0)
        members_add(&s->mine.leaving, m->world->self);
    else if (vote[VOTE_LEAVES] > 0)
        announce_leave(s);
    hash = 1;
    for (int i = 0; i < HASH_PIECES; i++)
        hash = hash << 16 ^ (uint64_t)vote[VOTE_HASH + i];
    if (s->hash != 0 && vote[VOTE_LACKS] == 0)
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
    if (trained == OK)
        trained = slice_buckets_begin_rest(&s->buckets);
    if (trained != OK && trained != ERR_VIEW)
        return trained;
    int rc = slice_group_abandon(&s->group);
    if (rc == OK)
        rc = slice_buckets_end(&s->buckets);
    return trained == OK || rc == ERR_CANCELLED ? rc : trained;
}

/* No member completes the round before joiners have had their turn. The end of the view ends a
 * turn, too. */
static int end_turn(struct sliced *s, int trained)
{
    if (trained != OK && trained != ERR_VIEW)
        return trained;
    int rc = slice_group_end_turn(&s->group);
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

/* Before the model changes. */
static void hash_common(struct sliced *s)
{
    const struct member *m = s->group.m;
    const struct vec *common = sliced_rule_common(&s->rule, m->learner);
    bool compares = slice_group_has_replicas(&s->group) && m->progress.exchanges % HASH_EVERY == 0;
    s->hash = compares ? vec_hash(common, vec_all(common)) | 1 : 0;
}

int sliced_attempt(struct sliced *s)
{
    struct member *m = s->group.m;
    struct exchange *lane = s->group.lane[SLICE_ROUNDS];
    bool replicas = slice_group_has_replicas(&s->group);
    s->steps = round_steps(s);
    s->group.bytes = 0;
    int rc = sliced_keep(s);
    if (s->models)
        hash_common(s);
    if (rc == OK)
        rc = end_turn(s, train_steps(s));
    if (!s->models)
        hash_common(s); /* a turn may have been under way up to here */
    rc = end_buckets(s, rc);
    if (rc == OK)
        rc = end_round(s);
    if (rc == OK)
        rc = agree_on_norm(s);
    if (!replicas)
        s->mine.stop_votes += group_is_leaving(m->group);
    uint32_t requests =
        sliced_first(m) == m->world->self ? atomic_load(&m->group->model_requests) : 0;
    lane->input.at[0] = (float)requests;
    return rc == OK ? exchange_run(lane, &s->mine) : rc;
}

/* ---- its result ---- */

void sliced_update(struct sliced *s, const struct exchange_meta *meta)
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

/* ---- its life ---- */

uint32_t sliced_first(const struct member *m)
{
    return members_next(&m->progress.sharers, 0);
}

int sliced_open_rounds(struct sliced *s)
{
    struct member *m = s->group.m;
    bool sums = slice_group_has_replicas(&s->group);
    s->sum = sums ? arena_array(m->arena, sum_floats(s), float) : NULL;
    int rc = s->sum || !sums ? open_before(s) : ERR_NOMEM;
    return rc == OK ? slice_buckets_open(&s->buckets, &s->group, s->sum) : rc;
}

void sliced_close_rounds(struct sliced *s)
{
    slice_buckets_close(&s->buckets);
}
