#include "strategy/ps_recovery.h"

#include <inttypes.h>
#include <string.h>

/* ---- setting up ---- */

static int make_client(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node] = arena_new(&s->own, struct ps_server_client);
    size_t n = s->shard.range.len, most = shard_state_length(&s->layout, VIEW_MEMBERS_MAX);
    if (!g || vec_init(&g->both, &s->own, most) != OK)
        return ERR_NOMEM;
    if (s->shard.s.n == 0 || s->config.shard.rule == SHARD_ELASTIC)
        return OK;
    return vec_init(&g->last, &s->own, n);
}

/* Reuses the memory of a departed worker that no pending order refers to. */
static int welcome_worker(struct ps_server *s, uint32_t node, const struct members *kept)
{
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_server_client *g = members_has(kept, p) ? NULL : s->client[p];
        if (!g)
            continue;
        s->client[p] = NULL;
        s->client[node] = g;
        *g = (struct ps_server_client){.both = g->both, .last = g->last};
        return OK;
    }
    return make_client(s, node);
}

void ps_server_configure(struct ps_server_config *config, const Paceline__Job *job,
                         const struct group *group, const struct progress *start, size_t records,
                         const struct join_state *join)
{
    config->placement = ps_placement_of(group, config->servers, config->colocated, join);
    config->chunk = strategy_chunk(job);
    config->start = *start;
    config->shard.solver = job->solver;
    config->clock.job = job;
    config->clock.shards = config->placement.shards;
    config->clock.records = records;
}

int ps_server_init(struct ps_server *s, struct world *world, struct group *group,
                   const struct logger *log, const struct ps_server_config *config,
                   const struct segments *table, const struct vec *x, const struct vec *state,
                   struct arena *arena, struct err *err)
{
    const struct view *now = config->placement.now;
    struct range range = range_shard(x->n + state->n, config->placement.shards, config->index);
    *s = (struct ps_server){.world = world, .group = group, .log = log, .config = *config};
    arena_init(&s->own);
    s->known = view_members(now);
    s->view = now->number;
    s->sample_offset = config->start.sample_offset;
    s->stage = config->moved ? SERVER_EMPTY : SERVER_SERVES;
    s->giver = WORLD_ANY;
    ps_sender_init(&s->sender, world, group, PS_LANE_SERVER + (uint32_t)config->index);
    s->sender.transfers.chunk = config->chunk;
    int rc = shard_init(&s->shard, &config->shard, table, x, state, range, arena, err);
    if (rc == OK)
        s->layout = shard_layout_of(&range, x->n, shard_states(&config->shard, &s->shard.optim));
    s->together = arena_array(arena, VIEW_MEMBERS_MAX, struct push);
    s->stand = arena_array(arena, config->placement.shards, enum ps_stand);
    if (rc == OK && (!s->together || !s->stand))
        rc = ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < now->count; i++)
        rc = make_client(s, now->node[i]);
    if (rc != OK || config->index > 0)
        return rc;
    s->clock = arena_new(arena, struct ps_clock);
    if (!s->clock)
        return ERR_NOMEM;
    s->recovers = config->moved;
    ps_clock_init(s->clock, &config->clock, &config->start, &s->known);
    return OK;
}

void ps_server_release(struct ps_server *s)
{
    arena_release(&s->own);
    memset(s->client, 0, sizeof s->client);
}

/* ---- joining and leaving workers ---- */

static void drop_waiting(struct ps_server_client *g)
{
    if (g->next)
        message_unref(g->next);
    g->next = NULL;
}

static void drop_transfers(struct ps_server_client *g)
{
    transfer_cancel(&g->push);
    transfer_cancel(&g->part);
    drop_waiting(g);
    g->request = REQUEST_NONE;
    if (g->use != USE_NONE && g->use != USE_WAITS) /* its order may be on its way */
        ps_set_use(g, USE_NONE);
}

/* A worker has died, or its loop has ended. */
static int on_worker_gone(struct ps_server *s, uint32_t node, bool died)
{
    struct ps_decision d;
    if (died)
        drop_transfers(s->client[node]);
    if (!s->clock)
        return OK;
    ps_clock_leave(s->clock, node, died, &d);
    return ps_send_oks(s, &d, world_now(s->world));
}

static int on_join(struct ps_server *s, uint32_t node, const struct members *kept)
{
    int rc = welcome_worker(s, node, kept);
    if (rc == OK && s->clock)
        ps_clock_join(s->clock, node);
    return rc;
}

/* Does another node serve any of the shards in this view? */
static bool has_moved(const struct ps_server *s, const struct view *view)
{
    struct ps_placement next = s->config.placement;
    bool moved = false;
    next.now = view;
    for (size_t i = 0; i < next.shards; i++)
        moved |= ps_placement_host(&next, i) != ps_placement_host(&s->config.placement, i);
    return moved;
}

/* Follow a new view, if there is one. */
static int look_at_view(struct ps_server *s)
{
    const struct view *view = group_view(s->group);
    if (view->number == s->view)
        return OK;
    int rc = OK;
    const struct members now = view_members(view), before = s->known;
    struct members kept = before; /* clients whose memory is kept: all, while the shards are at
                                     different orders */
    if (s->stage != SERVER_SERVES)
        memset(&kept, 0xff, sizeof kept);
    s->view = view->number;
    s->known = now;
    const struct members lost = members_without(&before, &now);
    const struct members joined = members_without(&now, &before);
    MEMBERS_EACH (p, &lost)
        rc = rc == OK ? on_worker_gone(s, p, true) : rc;
    MEMBERS_EACH (p, &joined)
        rc = rc == OK ? on_join(s, p, &kept) : rc;
    s->recovers |= s->clock && has_moved(s, view);
    s->config.placement.now = view;
    if (s->stage == SERVER_SERVES && !s->config.placement.on_workers)
        return rc; /* there is nothing to level */
    if (s->stage == SERVER_SERVES)
        ps_enter(s, SERVER_LEVELS);
    return rc == OK ? ps_take_stock(s) : rc;
}

/* ---- the task ---- */

static int on_fetch(struct ps_server *s, uint32_t node, const struct ps_message *message)
{
    struct ps_server_client *g = s->client[node];
    g->request = message->flags & PS_WHOLE && s->clock ? REQUEST_STATE : REQUEST_PART;
    g->after = message->number;
    g->version = message->version;
    if (s->clock)
        ps_clock_fetched(s->clock, node);
    return ps_reply(s, node);
}

/* Of the clock's affairs. */
static int on_clock_message(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (message->op == PS_LEAVE)
        return on_worker_gone(s, from, false);
    const struct ps_server_client *g =
        message->node < VIEW_MEMBERS_MAX ? s->client[message->node] : NULL;
    if (message->op == PS_HAVE && g && message->number > g->done && message->shard > 0)
        ps_clock_have(s->clock, message->node, message->shard, message->samples,
                      message->flags & PS_LOST, world_now(s->world));
    return OK;
}

static bool is_known(const struct ps_server *s, uint32_t node)
{
    return node < VIEW_MEMBERS_MAX && s->client[node] && members_has(&s->known, node);
}

/* Another node has seen the view of that number: wait for it, and follow it. */
static int see_view(struct ps_server *s, uint32_t number)
{
    int64_t deadline = world_now(s->world) + s->group->timing.piece;
    int rc = number > s->view ? group_wait_view(s->group, number - 1, deadline) : OK;
    return rc == OK ? look_at_view(s) : rc;
}

static int on_message(struct ps_server *s, struct message *m)
{
    struct ps_message message;
    uint32_t from = m->from;
    bool read = ps_message_decode(transfer_header_reader(m), &message) == OK;
    bool stock = read && message.op >= PS_ASK; /* of a view, which the sender may have received
                                                   from the previous driver */
    bool joins = read && !is_known(s, from) && message.view > s->view; /* perhaps */
    int rc = stock || joins ? see_view(s, message.view) : OK;
    bool known = rc == OK && read && is_known(s, from);
    if (known && message.op == PS_PUSH)
        return ps_on_push(s, m);
    if (known && stock && message.view == s->view)
        return ps_on_stock(s, m, &message);
    transfer_refuse(&s->sender.transfers, m);
    if (!known || stock)
        return rc; /* a stranger's, or of another view */
    if (message.op == PS_FETCH)
        return on_fetch(s, from, &message);
    if (message.op == PS_APPLY || message.op == PS_DROP || message.op == PS_SHOW)
        return ps_on_order(s, &message);
    return s->clock ? on_clock_message(s, from, &message) : OK;
}

static int on_ended(struct ps_server *s, struct transfer *ended)
{
    struct ps_server_client *g = ended->peer < VIEW_MEMBERS_MAX ? s->client[ended->peer] : NULL;
    if (g && ended == &g->push)
        return ps_on_push_ended(s, g);
    if (g && ended == &g->part) {
        ps_set_use(g, USE_NONE);
        int rc = ps_take_next(s, ended->peer);
        return rc == OK ? ps_reply(s, ended->peer) : rc;
    }
    return ended == &s->given && ended->status == OK ? ps_on_given(s) : OK;
}

/* Receive all messages that have arrived, before anything is decided. */
static int take_in(struct ps_server *s, const struct wait_for *change)
{
    int64_t deadline = WORLD_FOREVER;
    struct transfer_wake got;
    for (;;) {
        int rc = transfers_next(&s->sender.transfers, change, 1, deadline, &got);
        if (rc == ERR_TIMEOUT)
            return OK;
        if (rc == OK && got.header)
            rc = on_message(s, got.header);
        else if (rc == OK && got.ended)
            rc = on_ended(s, got.ended);
        if (rc != OK || got.which == 0)
            return rc;
        deadline = 0;
    }
}

int ps_server_run(struct ps_server *s, const atomic_bool *finish)
{
    int rc = s->stage == SERVER_EMPTY ? ps_take_stock(s) : OK;
    while (rc == OK) {
        const struct wait_for change = wait_signal(s->world, SIGNAL_GROUP);
        if (finish && atomic_load(finish) && s->stage != SERVER_EMPTY && !ps_lacks_pushes(s))
            break;
        rc = look_at_view(s);
        if (rc == OK)
            rc = ps_decide(s);
        if (rc == OK)
            rc = take_in(s, &change);
    }
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p])
            drop_waiting(s->client[p]);
    ps_sender_close(&s->sender);
    if (s->stage != SERVER_EMPTY)
        log_debug(s->log, "shard %zu at worker %u ends after %" PRIu64 " orders (%" PRIx64 ")",
                  s->config.index, s->world->self, s->version, s->history);
    return rc;
}

/* ---- the driver's part ---- */

/* A checkpoint has the optimizer's state if one optimizer has all of it. */
static void take_state(struct ps_server *s, const struct global_model *from)
{
    struct optim *optim = &s->shard.optim;
    if (!optim->ops || from->states != optim->ops->states)
        return;
    for (size_t i = 0; i < from->states; i++)
        vec_copy(&optim->state[i], &from->state[i], vec_all(&optim->state[i]));
    optim->updates = from->updates;
}

static int serve_driver(struct ps_server *s, struct driver_part *l)
{
    if (l->lanes.needs_sync)
        s->sample_offset = l->untaken;
    take_state(s, &l->resumed);
    l->model = (struct global_model){.x = &s->shard.x, .s = &s->shard.s};
    if (s->shard.optim.ops) {
        l->model.state = s->shard.optim.state;
        l->model.states = s->shard.optim.ops->states;
        l->model.updates = s->shard.optim.updates;
    }
    s->leader = l;
    return ps_server_run(s, &l->finish);
}

int ps_server_lead(struct driver_part *l, const struct ps_server_config *config)
{
    struct ps_server *s = arena_new(l->arena, struct ps_server);
    struct ps_server_config own = *config;
    struct err err;
    ps_server_configure(&own, l->job, l->group, &l->progress, l->records, NULL);
    if (l->lanes.needs_sync) {
        own.moved = true;
        own.start = (struct progress){0}; /* its clock uses the offset alone, which may be before
                                             the ledger's */
    }
    if (!s)
        return ERR_NOMEM;
    int rc =
        ps_server_init(s, l->world, l->group, l->log, &own, l->table, &l->x, &l->s, l->arena, &err);
    if (rc == OK)
        rc = serve_driver(s, l);
    ps_server_release(s);
    return rc;
}
