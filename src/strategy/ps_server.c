/* The task of a parameter server: it follows views, and hands each message on. */
#include "strategy/ps_server.h"

#include "base/fault.h"

#include <inttypes.h>
#include <string.h>

/* ---- setting up ---- */

static int make_client(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node] = arena_new(&s->own, struct ps_server_client);
    size_t n = s->shard.range.len, most = shard_state_length(&s->layout, VIEW_MEMBERS_MAX);
    size_t copy = s->config.codec == CODEC_F32 ? 0 : s->shard.x.n;
    if (!g || vec_init(&g->both, &s->own, most) != OK || vec_init(&g->copy, &s->own, copy) != OK)
        return ERR_NOMEM;
    if (s->shard.s.n == 0 || s->config.shard.rule == SHARD_ELASTIC)
        return OK;
    return vec_init(&g->last, &s->own, n);
}

void ps_server_configure(struct ps_server_config *config, const struct ps_placement *placement,
                         const struct progress *start, size_t records)
{
    config->start = *start;
    config->shard.solver = config->clock.job->solver;
    config->codec = (enum codec)config->clock.job->collective->wire;
    config->clock.shards = placement->shards;
    config->clock.records = records;
}

int ps_server_init(struct ps_server *s, struct group *group, const struct ps_server_config *config,
                   const struct ps_placement *placement, const struct segments *table,
                   const struct vec *x, const struct vec *state, struct arena *arena)
{
    struct range range = range_shard(x->n + state->n, placement->shards, config->index);
    struct err err;
    *s = (struct ps_server){.world = group->world,
                            .group = group,
                            .log = group->log,
                            .config = *config,
                            .requester = WORLD_ANY};
    arena_init(&s->own);
    s->known = view_members(placement->now);
    s->sample_offset = config->start.sample_offset;
    s->stage = config->moved ? SERVER_EMPTY : SERVER_SERVES;
    ps_port_init(&s->port, group, PS_LANE_SERVER + (uint32_t)config->index, placement,
                 strategy_chunk(config->clock.job));
    int rc = shard_init(&s->shard, &config->shard, table, x, state, range, arena, &err);
    if (rc == OK)
        s->layout = shard_layout_of(&range, x->n, shard_states(&config->shard, &s->shard.optim));
    s->together = arena_array(arena, VIEW_MEMBERS_MAX, struct push);
    if (rc == OK && !s->together)
        rc = ERR_NOMEM;
    if (rc == OK && ps_rejects(s))
        rc = vec_init(&s->moved, arena, s->shard.x.n);
    MEMBERS_EACH (p, &s->known)
        rc = rc == OK ? make_client(s, p) : rc;
    if (rc != OK || config->index > 0)
        return rc;
    s->clock = arena_new(arena, struct ps_clock);
    if (s->clock)
        ps_clock_init(s->clock, &config->clock, &config->start, &s->known);
    return s->clock ? OK : ERR_NOMEM;
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

/* A worker has died, or its loop has ended. */
static int on_worker_gone(struct ps_server *s, uint32_t node, bool died)
{
    struct ps_decision d;
    if (!s->clock)
        return OK;
    ps_clock_leave(s->clock, node, died, &d);
    if (s->requester == node)
        ps_end_flush(s);
    return ps_send_oks(s, &d, world_now(s->world));
}

static int on_loss(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    transfer_cancel(&g->push);
    transfer_cancel(&g->part);
    drop_waiting(g);
    g->request = REQUEST_NONE;
    if (g->use != USE_NONE && g->use != USE_WAITS) /* its order may be on its way */
        ps_set_use(s, g, USE_NONE);
    g->lost_in = ps_port_view(&s->port);
    s->done[node] = 0;
    s->refused[node] = 0;
    members_remove(&s->outliers, node);
    members_remove(&s->flushed, node);
    members_remove(&s->flushed_twice, node);
    return on_worker_gone(s, node, true);
}

/* Reuses the memory of a worker that is lost, once no order can be about its pushes: the clock has
 * seen its loss. */
static int on_join(struct ps_server *s, uint32_t node)
{
    uint32_t seen = s->clock ? ps_port_view(&s->port) : s->ordered_in, p = 0;
    if (s->clock)
        ps_clock_join(s->clock, node);
    while (p < VIEW_MEMBERS_MAX &&
           (!s->client[p] || members_has(&s->known, p) || s->client[p]->lost_in > seen))
        p++;
    if (p == VIEW_MEMBERS_MAX)
        return make_client(s, node);
    struct ps_server_client *g = s->client[p];
    s->client[p] = NULL;
    s->client[node] = g;
    *g = (struct ps_server_client){.both = g->both, .last = g->last, .copy = g->copy};
    return OK;
}

/* Does another node serve any of the shards than before? */
static bool has_moved(const struct ps_placement *now, const struct ps_placement *before)
{
    bool moved = false;
    for (size_t i = 0; i < now->shards; i++)
        moved |= ps_placement_host(now, i) != ps_placement_host(before, i);
    return moved;
}

static bool is_host(const struct ps_server *s)
{
    return ps_placement_host(&s->port.placement, s->config.index) == s->world->self;
}

/* Follow a new view, if there is one. */
static int follow_view(struct ps_server *s)
{
    const struct ps_placement before = s->port.placement;
    const struct members had = s->known;
    const struct view *view = group_view(s->group);
    if (view->number == ps_port_view(&s->port))
        return OK;
    int rc = OK;
    s->port.placement.now = view;
    s->known = view_members(view);
    const struct members lost = members_without(&had, &s->known);
    const struct members joined = members_without(&s->known, &had);
    MEMBERS_EACH (p, &lost)
        rc = rc == OK ? on_loss(s, p) : rc;
    MEMBERS_EACH (p, &joined)
        rc = rc == OK ? on_join(s, p) : rc;
    transfer_cancel(&s->given);
    if (rc == OK && !is_host(s)) { /* P8: elders come from members' reports */
        log_error(s->log,
                  "shard %zu has moved from this worker, which lives: wrong elders in view %u",
                  s->config.index, view->number);
        return ERR_PROTOCOL;
    }
    bool recovers =
        s->clock && (s->stage != SERVER_SERVES || has_moved(&s->port.placement, &before));
    if (rc == OK && recovers)
        return ps_ask_for_states(s);
    return rc;
}

/* ---- the task ---- */

static int on_fetch(struct ps_server *s, uint32_t node, const struct ps_message *message)
{
    struct ps_server_client *g = s->client[node];
    g->request = message->flags & PS_WHOLE && s->clock ? REQUEST_STATE : REQUEST_PART;
    if (!g->next) /* else the push before it has the place of both */
        g->since = s->requests++;
    g->after = message->number;
    g->version = message->version;
    g->final = message->flags & PS_LEFT;
    g->from = message->samples;
    if (s->clock)
        ps_clock_fetched(s->clock, node);
    if (message->flags & PS_FLUSH)
        s->requester = node;
    return OK;
}

static int on_have(struct ps_server *s, const struct ps_message *message)
{
    uint32_t node = message->node;
    bool known = node < VIEW_MEMBERS_MAX && s->client[node];
    if (!s->clock || !known || message->number <= s->done[node] || message->shard == 0)
        return OK;
    if (message->flags & PS_OUTLIER)
        members_add(&s->outliers, node);
    ps_clock_have(s->clock, node, message->shard, message->samples,
                  message->flags & PS_OUTLIER ? PUSH_REFUSED
                  : message->flags & PS_LOST  ? PUSH_INFINITE
                                              : PUSH_SOUND,
                  world_now(s->world));
    return OK;
}

/* One without a vector. */
static int on_report(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    switch (message->op) {
    case PS_FETCH: return on_fetch(s, from, message);
    case PS_HAVE: return on_have(s, message);
    case PS_LEAVE: return on_worker_gone(s, from, false);
    case PS_APPLY:
    case PS_DROP:
    case PS_SHOW: return ps_on_order(s, message);
    default: return ps_on_recovery(s, from, message);
    }
}

/* The sender may have received a view earlier, also from the previous driver: it is followed first,
 * so that all shards know the workers that an order is about. */
static int on_message(struct ps_server *s, struct message *m)
{
    struct ps_message message;
    bool read = ps_message_decode(transfer_header_reader(m), &message) == OK;
    int rc = read ? ps_port_await_view(&s->port, &message) : OK;
    if (rc == OK)
        rc = follow_view(s);
    bool valid = rc == OK && read && members_has(&s->known, m->from) &&
                 (message.op < PS_ASK ? message.epoch >= s->port.epoch
                                      : message.view == ps_port_view(&s->port));
    if (valid && message.op == PS_PUSH)
        return ps_on_push(s, m);
    if (valid && message.op == PS_GIVEN)
        return ps_on_given(s, m, &message);
    uint32_t from = m->from;
    transfer_refuse(&s->port.transfers, m);
    return valid ? on_report(s, from, &message) : rc;
}

static int on_ended(struct ps_server *s, struct transfer *ended)
{
    struct ps_server_client *g = ended->peer < VIEW_MEMBERS_MAX ? s->client[ended->peer] : NULL;
    if (g && ended == &g->push)
        return ps_on_push_ended(s, g);
    if (g && ended == &g->part) {
        ps_set_use(s, g, USE_NONE);
        return OK;
    }
    return ended == &s->given && ended->status == OK ? ps_on_given_ended(s) : OK;
}

/* Receive all messages that have arrived, before anything is decided. */
static int take_in(struct ps_server *s, const struct wait_for *change, int64_t deadline)
{
    struct transfer_wake got;
    for (;;) {
        int rc = transfers_next(&s->port.transfers, change, 1, deadline, &got);
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
    int rc = s->clock && s->stage == SERVER_EMPTY ? ps_ask_for_states(s) : OK;
    while (rc == OK) {
        const struct wait_for change = wait_signal(s->world, SIGNAL_GROUP);
        int64_t deadline = WORLD_FOREVER;
        if (finish && atomic_load(finish) && s->stage != SERVER_EMPTY && !ps_lacks_pushes(s))
            break;
        rc = follow_view(s);
        if (rc == OK)
            rc = ps_decide(s);
        if (rc == OK)
            rc = ps_serve_workers(s, &deadline);
        if (rc == OK && s->leader && s->stage != SERVER_EMPTY && driver_part_saves(s->leader)) {
            s->leader->owes = false; /* nobody pushes */
            rc = s->leader->on_commit(s->leader, NULL);
        }
        if (rc == OK)
            rc = take_in(s, &change, deadline);
    }
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p])
            drop_waiting(s->client[p]);
    transfers_close(&s->port.transfers);
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
    struct ps_placement placement;
    int rc = ps_placement_init(&placement, l->group, config->servers, config->colocated, NULL);
    if (rc != OK)
        return rc;
    ps_server_configure(&own, &placement, &l->progress, l->records);
    if (l->lanes.needs_sync) {
        own.moved = true;
        own.start = (struct progress){0}; /* its clock uses the offset alone, which may be before
                                             the ledger's */
    }
    if (!s)
        return ERR_NOMEM;
    rc = ps_server_init(s, l->group, &own, &placement, l->table, &l->x, &l->s, l->arena);
    if (rc == OK)
        rc = serve_driver(s, l);
    ps_server_release(s);
    return rc;
}
