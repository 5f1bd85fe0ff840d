/* The lanes of `mpca` and `pace`. Each is a task that does the exchanges of one shard at its turns,
 * without announcements. */
#include "strategy/phased.h"
#include "tensor/kernels.h"

/* ---- setting up ---- */

const struct phased_rule *phased_rule(const Paceline__Job *job)
{
    bool is_pace = job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_PACE;
    return is_pace ? &pace_rule : &mpca_rule;
}

int phased_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err)
{
    if (job->collective && job->collective->algorithm != PACELINE__COLLECTIVE__ALGORITHM__auto)
        return err_set(err, ERR_UNSUPPORTED,
                       "collective.algorithm: %s has its own reduce and broadcast",
                       job_strategy_name(job));
    traits->is_async = true;
    traits->takes_leases = true;
    traits->driver_part = !phased_rule(job)->settings(job).symmetric;
    traits->joinable = true;
    traits->join_needs_no_model = true;
    traits->round = 1;
    return OK;
}

static int lane_init(struct phased_lane *lane, struct vec *x, struct vec *s, uint64_t completed,
                     const struct exchange_config *wanted, struct arena *arena)
{
    struct phased_node *node = lane->node;
    uint32_t number = (uint32_t)(lane - node->lane);
    struct exchange_config config = *wanted;
    config.prepare = phased_lane_prepare;
    config.user = lane;
    config.stages = &node->stages;
    config.states = node->settings.states;
    lane->r = range_shard(x->n, node->lanes, number);
    lane->n_s = number + 1 == node->lanes ? s->n : 0;
    config.exact = (struct range){lane->r.len, lane->n_s};
    lane->arrived = lane->c = node->joins ? PHASED_NONE : completed;
    lane->reported = completed;
    /* A resumed run has its ṽ, and a joiner the others' results: these are no first motions. */
    lane->leap.trained = completed > 0 || node->joins ? PACE_RAMP : 0;
    size_t n = lane->r.len + lane->n_s;
    size_t heading = node->worker || node->joins ? lane->r.len + HEADING_EXTRAS : 0;
    if (vec_init(&lane->heading[0], arena, heading) != OK)
        return ERR_NOMEM;
    lane->heading[1] = lane->heading[0];
    if (config.split == EXCHANGE_AT_OWNERS && vec_init(&lane->heading[1], arena, heading) != OK)
        return ERR_NOMEM;
    for (int i = 0; i < 2 && node->worker && node->v; i++)
        vec_import(&lane->heading[i], (struct range){0, lane->r.len}, node->v->at + lane->r.from);
    config.kept = lane->heading[completed & 1];
    int rc = exchange_init(&lane->exchange, node->group, number, config.split == EXCHANGE_AT_ROOT,
                           n, &config, completed, arena);
    lane->exchange.in_background = true;
    if (rc == OK && node->worker)
        rc = vec_init(&lane->slot.x, arena, n);
    if (rc == OK && node->worker)
        rc = vec_init(&lane->spare, arena, n);
    if (rc == OK && node->prepares)
        rc = phased_part_init(lane, x, s, arena);
    if (rc != OK)
        return rc;
    /* The first x̃* is the initial model. */
    float *first = lane->exchange.result[completed & 1].at;
    vec_export(x, lane->r, first);
    vec_export(s, (struct range){0, lane->n_s}, first + lane->r.len);
    lane->star = lane->exchange.result[completed & 1];
    atomic_store(&lane->held, node->worker ? first : NULL);
    atomic_store(&lane->slot.turn, stages_tick(&node->stages, number));
    atomic_store(&lane->slot.counted, PHASED_NONE);
    if (node->joins)
        exchange_join_unsynced(&lane->exchange);
    return OK;
}

int phased_node_init(struct phased_node *node, const Paceline__Job *job, struct vec *x,
                     struct vec *s, uint64_t exchanges, struct arena *arena)
{
    const struct phased_settings *set = &node->settings;
    struct exchange_config config = strategy_exchange_config(job);
    node->rule = phased_rule(job);
    node->settings = node->rule->settings(job);
    uint64_t completed = exchanges / set->shards;
    config.split = set->symmetric ? EXCHANGE_AT_OWNERS : EXCHANGE_AT_ROOT;
    node->threads = node->threads > 0 ? node->threads : (int)job->threads;
    node->worker = node->world->self != WORLD_DRIVER;
    node->prepares = set->symmetric || !node->worker;
    node->lanes = set->shards;
    stages_init(&node->stages, node->world, SIGNAL_PHASED_TURN, node->lanes, set->phases,
                completed);
    node->lane = arena_array(arena, node->lanes, struct phased_lane);
    for (uint32_t i = 0; i < node->lanes && node->lane; i++) {
        node->lane[i].node = node;
        int rc = lane_init(&node->lane[i], x, s, completed, &config, arena);
        if (rc != OK)
            return rc;
    }
    if (!node->lane)
        return ERR_NOMEM;
    size_t longest = node->lane[node->lanes - 1].exchange.n_floats;
    if (node->lane[0].exchange.n_floats > longest)
        longest = node->lane[0].exchange.n_floats;
    return node->worker ? vec_init(&node->proxy.x, arena, longest) : OK;
}

/* ---- waiting ---- */

/* This node is a leaf and its lane is not yet, or the reverse, or it was a leaf meanwhile. */
static bool has_fallen_out(const struct phased_lane *lane)
{
    const struct group *group = lane->node->group;
    return group_is_leaf(group) != lane->as_leaf ||
           (lane->in_line && group_was_leaf(group, lane->exchange.synced));
}

/* Bring the lane into line in the view in which it has not fallen out, and in no later one: before
 * that this node may have been a leaf. */
static int stay_in_line(struct phased_lane *lane)
{
    struct group *group = lane->node->group;
    for (;;) {
        const struct view *view = group_view(group);
        if (has_fallen_out(lane))
            return ERR_VIEW;
        if (atomic_load(&group->end.over))
            return OK;
        int rc = exchange_sync_in(&lane->exchange, view);
        if (rc != ERR_VIEW)
            return rc;
    }
}

static int await_signal(struct phased_lane *lane, uint32_t signal,
                        bool (*holds)(const struct phased_lane *lane), int64_t deadline)
{
    struct world *world = lane->node->world;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(world, signal),
            wait_signal(world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = stay_in_line(lane);
        if (rc == OK && atomic_load(&lane->node->group->end.over))
            rc = ERR_DRIVER;
        if (rc != OK || (holds && holds(lane)))
            return rc;
        rc = world_wait(world, set, 2, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

int phased_await(struct phased_lane *lane, bool (*holds)(const struct phased_lane *lane),
                 int64_t deadline)
{
    return await_signal(lane, SIGNAL_PHASED, holds, deadline);
}

static bool has_its_turn(const struct phased_lane *lane)
{
    return stages_clear(&lane->node->stages, lane->exchange.lane, STAGE_REDUCE);
}

static int await_turn(struct phased_lane *lane)
{
    return await_signal(lane, SIGNAL_PHASED_TURN + lane->exchange.lane, has_its_turn,
                        WORLD_FOREVER);
}

/* Votes to stop: that of a member whose training has ended, and in a last exchange one more. */
enum { VOTE_ENDED = 1, VOTE_LAST = 1 << 16 };

static size_t count_participants(const struct phased_lane *lane)
{
    return members_count(&exchange_result_meta(&lane->exchange)->participants);
}

/* No member trains any more, and all know it from the newest result. The next exchange is the last
 * one: members contribute what they have trained since their last contributions. */
static bool last_is_next(const struct phased_lane *lane)
{
    uint32_t votes = exchange_result_meta(&lane->exchange)->stop_votes;
    return votes > 0 && votes % VOTE_LAST == count_participants(lane);
}

static bool last_is_over(const struct phased_lane *lane)
{
    uint32_t votes = exchange_result_meta(&lane->exchange)->stop_votes;
    return votes > 0 && votes / VOTE_LAST == count_participants(lane);
}

static bool has_contribution(const struct phased_lane *lane)
{
    const struct phased_node *node = lane->node;
    return atomic_load(&lane->slot.state) == SLOT_READY || atomic_load(&node->stopped) ||
           (atomic_load(&node->ended) && !atomic_load(&lane->slot.last));
}

static bool is_committed(const struct phased_lane *lane)
{
    return !atomic_load(&lane->prepared);
}

static bool is_known(const struct phased_lane *lane)
{
    return lane->exchange.standing < LANE_UNKNOWN;
}

static bool is_unread(void *lane)
{
    return atomic_load(&((struct phased_lane *)lane)->reading) == 0;
}

static bool reads_newest(void *arg)
{
    struct phased_lane *lane = arg;
    uint64_t reading = atomic_load(&lane->reading);
    return reading == 0 || reading == (lane->exchange.completed & 1) + 1;
}

int phased_withhold(struct phased_lane *lane)
{
    atomic_store(&lane->arrived, PHASED_NONE);
    return group_wait(lane->node->group, SIGNAL_PHASED, is_unread, lane, WORLD_FOREVER);
}

static void swap_held(struct phased_lane *lane, struct vec *written)
{
    struct vec held = *written;
    if (!held.at || held.at != atomic_load(&lane->held))
        return;
    *written = lane->spare;
    lane->spare = held;
}

void phased_spare_held(struct phased_lane *lane)
{
    struct exchange *e = &lane->exchange;
    lane->before = e->result[~e->completed & 1];
    swap_held(lane, &e->result[~e->completed & 1]);
    swap_held(lane, &e->input);
    swap_held(lane, &lane->slot.x);
}

/* A flush counts when copies of the model contain it. */
static void record_flush(struct phased_lane *lane)
{
    if (lane->flushing > 0)
        atomic_store(&lane->flushed, lane->flushing);
}

/* Training may adopt the newest result, and from then on reads no older one. */
static int publish_result(struct phased_lane *lane)
{
    atomic_store(&lane->arrived, lane->exchange.completed);
    record_flush(lane);
    world_raise(lane->node->world, SIGNAL_PHASED);
    int rc = group_wait(lane->node->group, SIGNAL_PHASED, reads_newest, lane, WORLD_FOREVER);
    phased_spare_held(lane);
    return rc;
}

/* ---- a turn ---- */

/* How long ticks take, for training to know when a contribution will be needed. */
static void record_tick(struct phased_node *node, uint64_t tick)
{
    int64_t now = world_now(node->world), before = atomic_load(&node->tick_at);
    if (before > 0)
        mpca_times_record(&node->ticks, now - before);
    atomic_store(&node->tick_ns, mpca_times_median(&node->ticks));
    atomic_store(&node->tick_at, now);
    atomic_store(&node->tick, tick);
}

/* Two typical steps, which members know from the exchange before; this worker's first step is
 * waited for as long as it takes, but a joiner's not at all. */
static int64_t patience_of(const struct phased_node *node)
{
    int64_t typical = atomic_load(&node->typical_ns);
    if (typical == 0 && node->joins)
        return world_now(node->world);
    return typical > 0 ? world_now(node->world) + 2 * typical : WORLD_FOREVER;
}

/* Take training's contribution if it is ready in time; else this worker takes part with weight 0,
 * and a later contribution is for the next exchange. */
static int take_contribution(struct phased_lane *lane, struct exchange_meta *mine)
{
    struct phased_node *node = lane->node;
    struct phased_slot *slot = &lane->slot;
    struct vec *input = &lane->exchange.input;
    int empty = SLOT_EMPTY;
    bool last = last_is_next(lane);
    atomic_compare_exchange_strong(&slot->state, &empty, SLOT_REQUESTED);
    atomic_store(&slot->last, last);
    if (last)
        world_raise(node->world, SIGNAL_PHASED);
    int rc = phased_await(lane, has_contribution, last ? WORLD_FOREVER : patience_of(node));
    if (rc != OK && rc != ERR_TIMEOUT)
        return rc;
    bool ended = atomic_load(&node->ended); /* and what it has filled before is in the slot */
    atomic_store(&slot->turn, stages_tick(&node->stages, lane->exchange.lane) + node->lanes);
    lane->given = 0;
    if (atomic_load(&slot->state) == SLOT_READY && !atomic_load(&node->stopped) &&
        phased_renew(lane)) {
        struct vec taken = slot->x;
        slot->x = *input;
        *input = taken;
        lane->given = slot->tau;
        atomic_store(&slot->state, SLOT_EMPTY);
    }
    uint64_t own = node->settings.equal && lane->given > 0 ? 1 : lane->given;
    mine->weight = (double)phased_proxy_add(lane, own);
    int64_t step = atomic_load(&node->step_ns);
    mine->rate = step > 0 ? 1 / world_seconds(step) : 0;
    mine->stop_votes = ended ? VOTE_ENDED + (last ? VOTE_LAST : 0) : 0;
    return OK;
}

void phased_settle(struct phased_lane *lane, uint64_t tau, enum phased_count count)
{
    if (count == NOT_COUNTED)
        atomic_fetch_add(&lane->slot.returned, tau);
    else
        atomic_store(&lane->slot.counted, count == COUNTED ? lane->exchange.completed : 0);
}

bool phased_renew(struct phased_lane *lane)
{
    const struct phased_rule *rule = lane->node->rule;
    if (!rule->renew || rule->renew(lane))
        return true;
    phased_settle(lane, lane->slot.tau, NOT_COUNTED);
    atomic_store(&lane->slot.state, SLOT_EMPTY);
    return false;
}

static void close_contribution(struct phased_lane *lane, enum phased_count count)
{
    if (lane->given > 0)
        phased_settle(lane, lane->given, count);
    lane->given = 0;
    phased_proxy_close(lane, count);
}

static int end_turn(struct phased_lane *lane)
{
    struct phased_node *node = lane->node;
    const struct exchange *e = &lane->exchange;
    const struct exchange_meta *meta = exchange_result_meta(e);
    if (node->worker)
        close_contribution(lane, members_has(&meta->contributors, node->world->self) ? COUNTED
                                                                                     : NOT_COUNTED);
    if (meta->rate > 0)
        atomic_store(&node->typical_ns,
                     (int64_t)(1e9 * (double)members_count(&meta->participants) / meta->rate));
    lane->cost[e->completed % PHASED_COSTS] = e->cost;
    int rc = phased_part_follow(lane);
    if (node->worker && node->prepares)
        phased_part_commit(lane);
    if (node->worker)
        return rc == OK ? publish_result(lane) : rc;
    atomic_store(&lane->prepared, true);
    atomic_store(&lane->arrived, e->completed);
    world_raise(node->world, SIGNAL_PHASED);
    return phased_await(lane, is_committed, WORLD_FOREVER);
}

/* There is no other turn. */
static int close_lane(struct phased_lane *lane)
{
    atomic_store(&lane->closed, true);
    world_raise(lane->node->world, SIGNAL_PHASED);
    return phased_await(lane, NULL, WORLD_FOREVER);
}

static void count_flush(struct phased_lane *lane)
{
    const struct exchange_cost *cost = &lane->exchange.cost;
    atomic_fetch_add(&lane->node->flush_ns, (int64_t)(1e9 * (cost->seconds - cost->waited_s)));
}

static int take_turn(struct phased_lane *lane)
{
    struct phased_node *node = lane->node;
    struct exchange_meta mine = {.hash_min = UINT64_MAX};
    uint64_t asked = 0;
    bool flushes = false;
    enum phased_count count = NOT_COUNTED;
    if (last_is_over(lane))
        return close_lane(lane);
    int rc = await_turn(lane);
    if (rc == OK) {
        record_tick(node, stages_tick(&node->stages, lane->exchange.lane));
        rc = node->worker ? take_contribution(lane, &mine) : OK;
    }
    if (rc == OK) {
        count = MAY_HAVE_COUNTED;
        lane->exchange.base = *exchange_result(&lane->exchange);
        asked = atomic_load(&node->asked);
        flushes = exchange_next_flushes(&lane->exchange);
        mine.flush_votes = asked > atomic_load(&node->answered);
        rc = exchange_run(&lane->exchange, &mine);
    }
    if (rc == OK && flushes)
        count_flush(lane);
    flushes &= rc == OK && exchange_result_meta(&lane->exchange)->weight > 0;
    lane->flushing = flushes ? asked : 0;
    if (rc == OK)
        rc = end_turn(lane);
    if (rc == ERR_VIEW)
        close_contribution(lane, count);
    return rc;
}

/* The lane of a joiner, of a recovered driver, or of a former leaf, is synchronised with the
 * others: it receives the number of exchanges and the last x̃*. Lanes with earlier ticks must be
 * known first, and are: they are at 0, or at their last. */
static int join_lane(struct phased_lane *lane)
{
    int rc = phased_withhold(lane);
    if (rc == OK)
        rc = phased_await(lane, is_known, WORLD_FOREVER);
    if (rc != OK)
        return rc;
    atomic_store(&lane->slot.turn, stages_tick(&lane->node->stages, lane->exchange.lane));
    struct vec *kept = &lane->exchange.config.kept, *heading = phased_heading(lane);
    if (kept->at != heading->at)
        vec_copy(heading, kept, vec_all(heading));
    *kept = *heading;
    phased_part_take_leap(lane);
    lane->part.owned.len = 0; /* its x̃ is older */
    if (!lane->node->worker)
        phased_part_take_up(lane);
    phased_spare_held(lane);
    atomic_store(&lane->report_from, lane->exchange.completed);
    atomic_store(&lane->arrived, lane->exchange.completed);
    lane->in_line = true;
    world_raise(lane->node->world, SIGNAL_PHASED);
    return OK;
}

static int lane_main(void *arg)
{
    struct phased_lane *lane = arg;
    kernels_set_threads(lane->node->threads);
    int rc = OK;
    transfers_init(&lane->transfers, lane->node->world, lane->node->group, lane->exchange.lane);
    lane->in_line = !lane->node->joins;
    while (rc == OK) {
        lane->as_leaf = group_is_leaf(lane->node->group);
        lane->in_line &= !lane->as_leaf;
        rc = lane->as_leaf   ? phased_leaf_turn(lane)
             : lane->in_line ? take_turn(lane)
                             : join_lane(lane);
        if (rc == ERR_VIEW) {
            lane->in_line = false;
            rc = OK;
        }
    }
    transfers_close(&lane->transfers);
    atomic_store(&lane->status, rc);
    world_raise(lane->node->world, SIGNAL_PHASED);
    return rc;
}

/* ---- from outside ---- */

int phased_node_start(struct phased_node *node)
{
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < node->lanes; i++)
        rc = world_spawn(node->world, "shard lane", lane_main, &node->lane[i], &node->lane[i].task);
    return rc == OK && node->worker ? phased_proxy_start(node) : rc;
}

void phased_node_stop(struct phased_node *node)
{
    for (uint32_t i = 0; node->lane && i < node->lanes; i++)
        if (node->lane[i].task)
            world_cancel(node->world, node->lane[i].task);
    world_end_task(node->world, &node->proxy.task);
    for (uint32_t i = 0; node->lane && i < node->lanes; i++)
        world_end_task(node->world, &node->lane[i].task);
}

void phased_node_close(struct phased_node *node)
{
    phased_node_stop(node);
    for (uint32_t i = 0; node->lane && i < node->lanes; i++)
        exchange_release(&node->lane[i].exchange);
    node->lane = NULL;
}

int phased_node_status(const struct phased_node *node)
{
    for (uint32_t i = 0; i < node->lanes; i++) {
        int rc = atomic_load(&node->lane[i].status);
        if (rc != OK)
            return rc;
    }
    return atomic_load(&node->proxy.status);
}

bool phased_closed(const struct phased_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= atomic_load(&node->lane[i].closed);
    return all;
}

static bool all_have_flushed(const struct phased_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= atomic_load(&node->lane[i].flushed) == atomic_load(&node->asked);
    return all;
}

bool phased_owes(struct phased_node *node, bool due)
{
    struct strategy_flush *flush = &node->flush;
    int64_t now = world_now(node->world);
    if (node->lane[0].exchange.residual[0].n == 0)
        return false;
    if (flush->on && all_have_flushed(node)) {
        strategy_flush_end(flush, now, atomic_load(&node->flush_ns));
    } else if (due && !flush->on && atomic_load(&node->answered) < atomic_load(&node->asked)) {
        return false; /* the copy waits for another to be sent, and every exchange is a flush */
    } else if (!flush->on) { /* and the copy is made: lanes may complete many exchanges meanwhile */
        atomic_store(&node->answered, atomic_load(&node->asked));
        if (due && strategy_flush_begin(flush, now)) {
            atomic_store(&node->flush_ns, 0); /* others have asked for those until now */
            atomic_fetch_add(&node->asked, 1);
        }
    }
    return flush->on || !due;
}

void phased_lane_commit(struct phased_lane *lane)
{
    phased_part_commit(lane);
    record_flush(lane);
    atomic_store(&lane->prepared, false);
    world_raise(lane->node->world, SIGNAL_PHASED);
}
