#include "strategy/ps_server_internal.h"

#include "base/fault.h"

#include <inttypes.h>
#include <string.h>

/* ---- states ---- */

static const uint8_t next_stages[SERVER_STAGES] = {
    [SERVER_EMPTY] = 1 << SERVER_UNSYNCED,
    [SERVER_UNSYNCED] = 1 << SERVER_SERVES,
    [SERVER_LEVELS] = 1 << SERVER_SERVES,
    [SERVER_SERVES] = 1 << SERVER_LEVELS,
};

void ps_enter(struct ps_server *s, enum ps_server_stage stage)
{
    PL_ASSERT(next_stages[s->stage] & 1 << stage);
    s->stage = stage;
}

static const uint8_t next_uses[USES] = {
    [USE_NONE] = 1 << USE_ARRIVES | 1 << USE_WAITS | 1 << USE_COPY,
    [USE_ARRIVES] = 1 << USE_WAITS | 1 << USE_NONE,
    [USE_WAITS] = 1 << USE_NONE,
    [USE_COPY] = 1 << USE_NONE,
};

void ps_set_use(struct ps_server_client *g, enum ps_use use)
{
    PL_ASSERT(next_uses[g->use] & 1 << use);
    g->use = use;
}

/* ---- setting up ---- */

static int make_client(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node] = arena_new(&s->own, struct ps_server_client);
    size_t n = s->shard.range.len, most = ps_state_length(&s->layout, VIEW_MEMBERS_MAX);
    bool whole = !s->config.placement.on_workers;
    if (!g || vec_init(&g->both, &s->own, whole ? most : n) != OK)
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
    s->stage = config->origin == SHARD_INITIAL ? SERVER_SERVES : SERVER_EMPTY;
    s->giver = WORLD_ANY;
    ps_sender_init(&s->sender, world, group, PS_LANE_SERVER + (uint32_t)config->index);
    s->sender.transfers.chunk = config->chunk;
    int rc = shard_init(&s->shard, &config->shard, table, x, state, range, arena, err);
    if (rc == OK)
        s->layout = (struct ps_state_layout){
            .model = range.len,
            .optimizer = s->shard.x.n * shard_states(&config->shard, &s->shard.optim)};
    if (rc == OK && config->origin == SHARD_RECOVERED)
        rc = vec_init(&s->state, arena, ps_state_length(&s->layout, VIEW_MEMBERS_MAX));
    s->together = arena_array(arena, VIEW_MEMBERS_MAX, struct push);
    s->orders_kept =
        2 * VIEW_MEMBERS_MAX + 1; /* each is about a push, and a worker has one at a time */
    s->orders = arena_array(arena, s->orders_kept, struct ps_message);
    s->stand = arena_array(arena, config->placement.shards, struct ps_stand);
    if (rc == OK && (!s->together || !s->orders || !s->stand))
        rc = ERR_NOMEM;
    for (size_t i = 0; rc == OK && i < now->count; i++)
        rc = make_client(s, now->node[i]);
    if (rc != OK || config->index > 0)
        return rc;
    s->clock = arena_new(arena, struct ps_clock);
    if (!s->clock)
        return ERR_NOMEM;
    ps_clock_init(s->clock, &config->clock, &config->start, &s->known);
    return OK;
}

void ps_server_release(struct ps_server *s)
{
    arena_release(&s->own);
    memset(s->client, 0, sizeof s->client);
}

/* ---- pushes come in ---- */

int ps_report_shard(struct ps_server *s, size_t shard, const struct ps_message *message)
{
    struct ps_message reported = *message;
    reported.view = s->view;
    return ps_sender_send(&s->sender, ps_placement_host(&s->config.placement, shard),
                          PS_LANE_SERVER + (uint32_t)shard, &reported);
}

int ps_have(struct ps_server *s, uint32_t node)
{
    const struct ps_server_client *g = s->client[node];
    if (s->clock) {
        ps_clock_have(s->clock, node, 0, g->samples, g->bad, world_now(s->world));
        return OK;
    }
    const struct ps_message message = {.op = PS_HAVE,
                                       .flags = g->bad ? PS_LOST : 0,
                                       .node = node,
                                       .shard = (uint32_t)s->config.index,
                                       .number = g->number,
                                       .samples = g->samples};
    return ps_report_shard(s, 0, &message);
}

/* A worker sends its pushes to the driver in order, and repeats them so: one that follows a missing
 * one will come again. */
static bool is_next(const struct ps_server *s, const struct ps_server_client *g,
                    const struct ps_message *push)
{
    return push->number == g->done + 1 ||
           (s->config.placement.on_workers && push->number > g->done);
}

/* Accept the next push of a worker. */
static int take_push(struct ps_server *s, struct message *m)
{
    struct ps_server_client *g = s->client[m->from];
    struct ps_message message;
    uint32_t node = m->from;
    if (ps_message_decode(transfer_header_reader(m), &message) != OK || !is_next(s, g, &message)) {
        transfer_refuse(&s->sender.transfers, m);
        return OK;
    }
    g->samples = message.samples;
    g->number = message.number;
    g->bad = message.flags & PS_LOST;
    ps_set_use(g, g->bad ? USE_WAITS : USE_ARRIVES);
    if (g->bad) {
        transfer_refuse(&s->sender.transfers, m);
        return ps_have(s, node);
    }
    const struct transfer_in in = {.x = g->both.at, .n = s->shard.range.len};
    transfer_accept(&g->push, &s->sender.transfers, m, &in);
    return OK;
}

static int on_push(struct ps_server *s, struct message *m)
{
    struct ps_server_client *g = s->client[m->from];
    if (g->next)
        transfer_refuse(&s->sender.transfers, g->next); /* a second waiting one */
    g->next = m;
    return ps_take_next(s, m->from);
}

int ps_take_next(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    /* Does it know which push is the next? */
    bool knows = s->stage >= SERVER_LEVELS || s->config.origin != SHARD_RECOVERED;
    if (!g || !g->next || !knows || g->use != USE_NONE)
        return OK;
    struct message *m = g->next;
    g->next = NULL;
    return take_push(s, m);
}

/* A push has ended. A part that is not finite is not applied, nor are the others of that push. */
static int on_push_ended(struct ps_server *s, struct ps_server_client *g)
{
    if (g->push.status != OK || g->number <= g->done) { /* broken; or decided meanwhile */
        ps_set_use(g, USE_NONE);
        return ps_take_next(s, g->push.peer);
    }
    ps_set_use(g, USE_WAITS);
    g->bad = !vec_finite(&g->both, vec_all(&s->shard.both));
    if (g->bad)
        log_warn(s->log, "worker %u: its push %llu is not finite and is left out", g->push.peer,
                 (unsigned long long)g->number);
    return ps_have(s, g->push.peer);
}

/* ---- what is fetched goes out ---- */

/* Write the whole state of this driver, with its header. Returns its floats. */
static size_t export_whole(const struct ps_server *s, struct vec *to, struct ps_message *header)
{
    uint32_t workers = 0;
    ps_state_export(&s->layout, &s->shard, to->at);
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        bool known = s->client[p] && members_has(&s->known, p);
        if (known)
            workers = p + 1;
        ps_state_put_push(&s->layout, to->at, p, known ? s->client[p]->done : 0);
    }
    header->flags |= PS_WHOLE;
    header->node = workers;
    header->number = s->shard.optim.updates;
    header->samples = s->sample_offset;
    header->t = ps_clock_value(s->clock);
    return ps_state_length(&s->layout, workers);
}

static int reply_copy(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    uint8_t bytes[PS_MESSAGE_MAX];
    bool pushed_elsewhere = s->config.origin == SHARD_MOVED && g->number == 0;
    bool sees = (g->done >= g->after || pushed_elsewhere) && s->version >= g->version;
    if (g->request == REQUEST_NONE || !sees || s->stage < SERVER_LEVELS || g->use != USE_NONE)
        return OK;
    struct ps_message message = {
        .op = PS_PART, .shard = (uint32_t)s->config.index, .version = s->version};
    size_t n = s->shard.both.n;
    if (g->request == REQUEST_STATE)
        n = export_whole(s, &g->both, &message);
    else
        vec_copy(&g->both, &s->shard.both, vec_all(&s->shard.both));
    g->request = REQUEST_NONE;
    ps_set_use(g, USE_COPY);
    transfer_send(&g->part, &s->sender.transfers,
                  &(struct transfer_out){.to = node,
                                         .lane = PS_LANE_WORKER,
                                         .x = g->both.at,
                                         .n = n,
                                         .header = bytes,
                                         .header_len = ps_message_encode(&message, bytes)});
    return world_copied(s->world, n * sizeof(float));
}

int ps_reply_all(struct ps_server *s)
{
    int rc = OK;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p])
            rc = reply_copy(s, p);
    return rc;
}

/* ---- joining and leaving workers ---- */

static int on_death(struct ps_server *s, uint32_t node, bool died)
{
    struct ps_server_client *g = s->client[node];
    struct ps_decision d;
    if (died) {
        transfer_cancel(&g->push);
        transfer_cancel(&g->part);
        if (g->next)
            message_unref(g->next);
        g->next = NULL;
        g->request = REQUEST_NONE;
        if (g->use == USE_ARRIVES ||
            g->use == USE_COPY) /* an order about a push may be on its way */
            ps_set_use(g, USE_NONE);
    }
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

int ps_look_at_view(struct ps_server *s)
{
    const struct view *view = group_view(s->group);
    if (view->number == s->view)
        return OK;
    int rc = OK;
    const struct members now = view_members(view), before = s->known;
    struct members all; /* clients whose memory is kept: all, while the shards are at different
                           orders */
    memset(&all, s->stage == SERVER_SERVES ? 0 : 0xff, sizeof all);
    const struct members kept = members_union(&all, &before);
    s->view = view->number;
    s->known = now;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++)
        if (members_has(&before, p) && !members_has(&now, p))
            rc = on_death(s, p, true);
    for (size_t i = 0; rc == OK && i < view->count; i++)
        if (!members_has(&before, view->node[i]))
            rc = on_join(s, view->node[i], &kept);
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
    bool whole = message->flags & PS_WHOLE && !s->config.placement.on_workers;
    g->request = whole ? REQUEST_STATE : REQUEST_PART;
    g->after = message->number;
    g->version = message->version;
    if (s->clock)
        ps_clock_fetched(s->clock, node);
    return reply_copy(s, node);
}

/* Of the clock's affairs. */
static int on_clock_message(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (message->op == PS_LEAVE)
        return on_death(s, from, false);
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

int ps_see_view(struct ps_server *s, uint32_t number)
{
    int64_t deadline = world_now(s->world) + s->group->timing.piece;
    int rc = number > s->view ? group_wait_view(s->group, number - 1, deadline) : OK;
    return rc == OK ? ps_look_at_view(s) : rc;
}

static int on_message(struct ps_server *s, struct message *m)
{
    struct ps_message message;
    uint32_t from = m->from;
    bool read = ps_message_decode(transfer_header_reader(m), &message) == OK;
    bool news = read && !is_known(s, from) && message.view > s->view; /* a joiner, perhaps */
    int rc = news ? ps_see_view(s, message.view) : OK;
    if (rc != OK) {
        transfer_refuse(&s->sender.transfers, m);
        return rc;
    }
    bool known = is_known(s, from);
    if (known && read && message.op == PS_PUSH)
        return on_push(s, m);
    if (known && read && message.op >= PS_COPY)
        return ps_on_stock(s, m, &message);
    transfer_refuse(&s->sender.transfers, m);
    if (!known || !read)
        return OK; /* a stranger's, or of one that has been given up */
    if (message.op == PS_FETCH)
        return on_fetch(s, from, &message);
    if (message.op == PS_APPLY || message.op == PS_DROP)
        return ps_on_order(s, &message);
    return s->clock ? on_clock_message(s, from, &message) : OK;
}

static int on_ended(struct ps_server *s, struct transfer *ended)
{
    struct ps_server_client *g = ended->peer < VIEW_MEMBERS_MAX ? s->client[ended->peer] : NULL;
    if (g && ended == &g->push)
        return on_push_ended(s, g);
    if (g && ended == &g->part) {
        ps_set_use(g, USE_NONE);
        int rc = ps_take_next(s, ended->peer);
        return rc == OK ? reply_copy(s, ended->peer) : rc;
    }
    return ended == &s->given && ended->status == OK ? ps_on_copied(s) : OK;
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
        if (finish && atomic_load(finish) && s->stage >= SERVER_LEVELS && !ps_lacks_pushes(s))
            break;
        rc = ps_look_at_view(s);
        if (rc == OK)
            rc = ps_decide(s);
        if (rc == OK)
            rc = take_in(s, &change);
    }
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p] && s->client[p]->next)
            message_unref(s->client[p]->next);
    ps_sender_close(&s->sender);
    if (s->stage >= SERVER_LEVELS)
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

int ps_changed(struct ps_server *s)
{
    if (!s->leader)
        return OK;
    s->leader->model.updates = s->shard.optim.updates;
    return s->leader->on_commit(s->leader, NULL);
}

static int serve_driver(struct ps_server *s, struct driver_part *l,
                        const struct ps_server_config *config)
{
    struct err err;
    int rc = ps_server_init(s, l->world, l->group, l->log, config, l->table, &l->x, &l->s, l->arena,
                            &err);
    if (rc != OK)
        return rc;
    if (config->origin == SHARD_RECOVERED)
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
    if (l->lanes.needs_sync) {
        own.origin = SHARD_RECOVERED;
        own.start = (struct progress){0}; /* its clock uses the offset alone, which may be before
                                             the ledger's */
    }
    int rc = s ? serve_driver(s, l, &own) : ERR_NOMEM;
    if (s)
        ps_server_release(s);
    return rc;
}
