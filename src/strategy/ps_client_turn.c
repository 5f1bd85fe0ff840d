/* One turn of a worker's side of the parameter servers: it handles a message of a server, a
 * transfer that has ended, or a new view. ps_client.c waits by turns. */
#include "base/fault.h"
#include "strategy/ps_client.h"
#include "tensor/kernels.h"
#include "world/trace.h"

#include <string.h>

/* ---- fetching ---- */

static const uint8_t next_states[LINK_STATES] = {
    [LINK_HELD] = 1 << LINK_REQUESTED,
    [LINK_REQUESTED] = 1 << LINK_REQUESTED | 1 << LINK_ARRIVING,
    [LINK_ARRIVING] = 1 << LINK_REQUESTED | 1 << LINK_HELD,
};

static void set_state(struct ps_link *link, enum ps_link_state state)
{
    PL_ASSERT(next_states[link->state] & 1 << state);
    link->state = state;
}

/* Has it offered its state, and not resumed since? */
static bool is_frozen(const struct ps_client *c)
{
    return c->asked > c->port.epoch;
}

void ps_observe_client(const struct ps_client *c)
{
    const struct group_observer *observer = c->m->group->observer;
    if (observer && observer->pushed)
        observer->pushed(observer->user, c->m->world->self, c);
}

bool ps_holds_all(const struct ps_client *c)
{
    for (size_t i = 0; i < c->port.placement.shards; i++)
        if (c->link[i].state != LINK_HELD)
            return false;
    return true;
}

bool ps_is_full(const struct ps_client *c)
{
    return c->pushed + 1 - c->state.push[c->m->world->self] >= c->kept;
}

/* Has the clock replied that nothing is owed any more, or that nothing is flushed now? */
static bool is_delivered(const struct ps_client *c)
{
    bool flushing = c->ok.flags & PS_FLUSH && !(c->ok.flags & PS_WHOLE);
    return c->delivery == PS_ASKS && c->ok.number > c->asked_after && !flushing;
}

static void set_delivery(struct ps_client *c, enum ps_delivery delivery)
{
    c->delivery = delivery;
    c->m->owes = delivery != PS_DELIVERED;
}

/* A checkpoint of this worker's state has been requested: the clock is to flush before. */
static bool asks_for_flush(struct ps_client *c)
{
    if (c->residual.n == 0 || !c->port.placement.on_workers || is_frozen(c))
        return false;
    bool due = c->m->checkpoint_due(c->m);
    if (!due) {
        set_delivery(c, PS_OWES);
    } else if (c->delivery == PS_OWES) {
        set_delivery(c, PS_ASKS);
        c->asked_after = c->pushed;
    }
    return c->delivery == PS_ASKS && c->asked_after == c->pushed;
}

/* Is the next copy to be a state? Always, if that costs nothing; else the first and the last one,
 * for a worker that leaves, for a checkpoint, and when the next push would take the last room for
 * pushes that no state contains. */
static bool needs_state(const struct ps_client *c)
{
    return !c->states_apart || c->state.version == 0 || c->ended || !members_empty(&c->keep_for) ||
           is_delivered(c) || ps_is_full(c);
}

int ps_request_copies(struct ps_client *c)
{
    int rc = OK;
    c->whole = needs_state(c);
    c->wanted = c->ok.version;
    struct ps_message message = {.op = PS_FETCH,
                                 .flags = (c->whole ? PS_WHOLE : 0u) | (c->ended ? PS_LEFT : 0u) |
                                          (asks_for_flush(c) ? PS_FLUSH : 0u),
                                 .number = c->pushed,
                                 .version = c->wanted};
    c->copy_bytes = 0;
    for (size_t i = 0; rc == OK && i < c->port.placement.shards; i++) {
        transfer_cancel(&c->link[i].part);
        set_state(&c->link[i], LINK_REQUESTED);
        message.samples = c->link[i].copied;
        if (!is_frozen(c) && (i == 0 || !c->whole)) /* else resume_pushing requests them */
            rc = ps_send_shard(&c->port, i, &message);
    }
    return rc;
}

/* Where the part of a state that belongs to a link lies. */
static struct shard_state state_of(struct ps_client *c, const struct ps_link *link, size_t workers)
{
    return (struct shard_state){&c->state.both, c->state.vector, link->range.from, c->state.push,
                                workers};
}

/* The parts of a state have arrived: pushes that it contains are needed no more. ERR_PROTOCOL: it
 * contains fewer than the one before, or more than there are */
static int keep_state(struct ps_client *c)
{
    struct ps_state *state = &c->state;
    uint64_t before = state->push[c->m->world->self];
    state->header = c->link[0].arriving;
    memset(state->push, 0, sizeof state->push);
    for (size_t i = 0; i < c->port.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        /* The numbers are those of shard 0: a server that has seen the next view has fewer. */
        const struct shard_state part = state_of(c, link, i == 0 ? state->header.node : 0);
        if (link->arriving.version != state->header.version ||
            link->arriving.node != state->header.node)
            return ERR_PROTOCOL; /* all shards send theirs behind one order */
        shard_import_state(&link->layout, &part, link->landing.at);
        link->copied = link->arriving.version + 1;
    }
    if (is_delivered(c))
        set_delivery(c, PS_DELIVERED);
    else if (c->delivery == PS_DELIVERED)
        set_delivery(c, PS_OWES);
    state->version = c->ok.version = state->header.version;
    state->here = true;
    c->m->model.updates = state->header.number;
    if (c->states_apart)
        vec_copy(&c->global, &state->both, vec_all(&c->global));
    ps_observe_client(c);
    uint64_t contained = state->push[c->m->world->self];
    return contained < before || contained > c->pushed ? ERR_PROTOCOL : OK;
}

/* A copy, or the difference to the last one; s is always itself. */
static void take_copy(struct ps_client *c, struct ps_link *link)
{
    bool delta = link->arriving.flags & PS_DELTA;
    const struct range x = {link->range.from, link->layout.x};
    struct vec own = vec_part(&c->global, x.from, x.len);
    const struct range s = {x.from + x.len, link->range.len - x.len};
    if (delta)
        vec_axpy(&own, 1.0f, &link->landing, vec_all(&own));
    else
        vec_import(&c->global, x, link->landing.at);
    vec_import(&c->global, s, link->landing.at + x.len);
    link->copied = link->arriving.version + 1;
}

/* The next view reports a lost server, or one that goes back to a state. */
static int on_ended(struct ps_client *c, const struct transfer *ended)
{
    if (ended->status == ERR_PEER || ended->status == ERR_STOP)
        return OK;
    for (size_t i = 0; i < c->port.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        if (ended != &link->part)
            continue;
        if (ended->status != OK)
            return ended->status;
        set_state(link, LINK_HELD);
        if (c->whole)
            return ps_holds_all(c) ? keep_state(c) : OK;
        take_copy(c, link);
    }
    return OK;
}

/* ---- a worker leaves ---- */

int ps_ask_successor(struct ps_client *c)
{
    const struct members now = view_members(c->port.placement.now);
    const struct ps_message message = {
        .op = PS_KEEP, .number = c->pushed, .version = c->state.version};
    uint32_t next = members_next(&now, c->successor == WORLD_ANY ? 0 : c->successor + 1);
    if (next == c->m->world->self)
        next = members_next(&now, next + 1);
    c->successor = next < VIEW_MEMBERS_MAX ? next : WORLD_ANY;
    return c->successor == WORLD_ANY ? OK : ps_send_worker(&c->port, next, &message);
}

static int on_kept(struct ps_client *c, const struct ps_message *message)
{
    if (message->flags & PS_LEFT)
        return ps_ask_successor(c);
    c->successor = WORLD_ANY;
    return OK;
}

static void on_keep(struct ps_client *c, uint32_t from, const struct ps_message *message)
{
    if (message->version > c->keep_version)
        c->keep_version = message->version;
    c->keep_push[from] = message->number;
    members_add(&c->keep_for, from);
}

/* Reply as soon as there is such a state; fetch one, or one for a checkpoint, when no other copy is
 * on its way. */
static int keep_for_leavers(struct ps_client *c)
{
    bool leaves = !members_empty(&c->keep_for) && group_is_leaving(c->m->group);
    const struct ps_message message = {.op = PS_KEPT, .flags = leaves ? PS_LEFT : 0};
    int rc = OK;
    MEMBERS_EACH (p, &c->keep_for) {
        bool kept = c->state.version >= c->keep_version && c->state.push[p] >= c->keep_push[p];
        if (rc != OK || !(kept || leaves))
            continue;
        members_remove(&c->keep_for, p);
        rc = ps_send_worker(&c->port, p, &message);
    }
    bool lacks = !members_empty(&c->keep_for) || is_delivered(c);
    return rc == OK && lacks && ps_holds_all(c) && !is_frozen(c) ? ps_request_copies(c) : rc;
}

/* ---- pushing ---- */

bool ps_may_open(const struct ps_client *c)
{
    return !async_sender_busy(&c->push_sender) && !c->repeat && c->ok.number >= c->pushed &&
           ps_holds_all(c) && !ps_is_full(c) && !is_frozen(c);
}

/* The parts before shard `end` of the push `sending`, with a header in that memory. */
static void make_parts(struct ps_client *c, size_t end, uint8_t header[PS_MESSAGE_MAX])
{
    const struct ps_push *push = &c->push[c->sending % c->kept];
    const struct ps_message message = {.op = PS_PUSH,
                                       .flags = push->lost      ? PS_LOST
                                                : push->flushes ? PS_FLUSH
                                                                : 0,
                                       .number = c->sending,
                                       .samples = push->samples};
    enum codec codec = ps_push_codec(c, push);
    size_t len = ps_port_encode(&c->port, &message, header);
    for (size_t i = 0; i < end; i++) {
        struct ps_link *link = &c->link[i];
        c->push_sender.part[i].what = (struct transfer_out){
            .to = ps_placement_host(&c->port.placement, i),
            .lane = PS_LANE_SERVER + (uint32_t)i,
            .x = push->lost ? NULL : push->vec.at + link->range.from,
            .n = push->lost ? 0 : link->range.len,
            .codec = codec,
            .exact = codec == CODEC_F32 ? 0 : link->range.len - link->layout.x,
            .header = header,
            .header_len = len};
    }
}

void ps_open_push(struct ps_client *c)
{
    make_parts(c, c->port.placement.shards, c->push_header);
    c->repeat = false;
    async_sender_open(&c->push_sender);
}

void ps_lose_push(struct ps_client *c)
{
    c->push[c->sending % c->kept].lost = true;
    make_parts(c, atomic_load(&c->push_sender.from), c->lost_header);
}

void ps_send_push(struct ps_client *c)
{
    ps_open_push(c);
    async_sender_send_from(&c->push_sender, 0);
}

/* Send a push again where one is needed, when the previous sending has ended. */
static void repeat_push(struct ps_client *c)
{
    if (c->repeat && !async_sender_busy(&c->push_sender))
        ps_send_push(c);
}

void ps_report_leave(struct ps_client *c)
{
    const struct ps_message message = {.op = PS_LEAVE};
    transfer_cancel(&c->leaving);
    ps_send_floats(&c->port, &c->leaving, &message,
                   (struct transfer_out){.to = ps_placement_host(&c->port.placement, 0),
                                         .lane = PS_LANE_SERVER});
}

/* The push is decided. After a recovery, others may follow it. */
static void on_ok(struct ps_client *c, const struct ps_message *message)
{
    c->ok = *message;
    if (message->number == c->pushed && c->ended) {
        ps_report_leave(c);
    } else if (message->number < c->pushed && message->number == c->sending) {
        c->sending++;
        c->repeat = true;
    }
}

/* ---- a new view ---- */

static int serve_shard(void *arg)
{
    struct ps_server *server = arg;
    kernels_set_threads(1); /* those of the job compute */
    return ps_server_run(server, NULL);
}

static void set_optimizer(const struct ps_client *c, struct ps_server *server,
                          const struct range *range)
{
    struct shard *shard = &server->shard;
    for (size_t i = 0; shard->x.n > 0 && i < c->vectors; i++)
        vec_export(&c->state.vector[i], (struct range){range->from, shard->x.n},
                   shard->optim.state[i].at);
    shard->optim.updates = c->state.header.number;
}

int ps_client_serve(struct ps_client *c, size_t shard, bool moved)
{
    const struct member *m = c->m;
    struct ps_link *link = &c->link[shard];
    struct ps_server_config config = c->config;
    config.index = shard;
    config.moved = moved;
    link->server = arena_new(m->arena, struct ps_server);
    if (!link->server)
        return ERR_NOMEM;
    int rc = ps_server_init(link->server, m->group, &config, &c->port.placement, m->learner->table,
                            &m->learner->x, &m->learner->s, m->arena);
    if (moved) /* an estimate, used if no worker has a state */
        link->server->sample_offset += (m->progress.sample_offset - m->start.sample_offset) *
                                       members_count(&c->port.placement.first);
    else if (rc == OK) /* of a resumed run: the state has the checkpoint's optimizer */
        set_optimizer(c, link->server, &link->range);
    return rc == OK ? world_spawn(m->world, "server", serve_shard, link->server, &link->serving)
                    : rc;
}

/* If a shard has moved here, start its server. */
static int on_view(struct ps_client *c, const struct view *view)
{
    int rc = OK;
    c->port.placement.now = view;
    if (!c->ended) /* else the worker's task, which reports it to a recovered driver, may read it */
        c->m->progress.sharers = view_members(view);
    for (size_t i = 0; rc == OK && i < c->port.placement.shards; i++) {
        if (ps_placement_host(&c->port.placement, i) != c->m->world->self || c->link[i].server)
            continue;
        log_warn(c->m->group->log,
                 "shard %zu of the model: its server is gone, worker %u takes over", i,
                 c->m->world->self);
        rc = ps_client_serve(c, i, true);
    }
    const struct members now = view_members(view);
    c->keep_for = members_intersection(&c->keep_for, &now);
    if (rc == OK && c->successor != WORLD_ANY && view_rank(view, c->successor) < 0) {
        c->successor = WORLD_ANY;
        rc = ps_ask_successor(c);
    }
    return rc;
}

static int look_around(struct ps_client *c)
{
    const struct view *view = group_view(c->m->group);
    if (atomic_load(&c->m->group->end.over))
        return ERR_DRIVER;
    return view->number == ps_port_view(&c->port) ? OK : on_view(c, view);
}

/* The state that is offered stays: a copy that is on its way here is void. */
static int offer_state(struct ps_client *c)
{
    if (c->asked == ps_port_view(&c->port))
        return OK;
    c->asked = ps_port_view(&c->port);
    for (size_t i = 0; i < c->port.placement.shards; i++)
        transfer_cancel(&c->link[i].part);
    const struct ps_message copy = {.op = PS_COPY,
                                    .flags =
                                        (c->ended ? PS_LEFT : 0u) | (c->state.here ? 0u : PS_NEW),
                                    .number = c->pushed,
                                    .version = c->state.version};
    return ps_send_shard(&c->port, 0, &copy);
}

static int give_state(struct ps_client *c, size_t shard)
{
    struct ps_link *link = &c->link[shard];
    struct ps_message message = c->state.header;
    const struct shard_state part = state_of(c, link, message.node);
    size_t n = shard_state_length(&link->layout, message.node);
    transfer_cancel(&link->given);
    int64_t begun = trace_now(c->m->world);
    shard_export_state(&link->layout, &part, link->landing.at);
    message.op = PS_GIVEN;
    message.flags = PS_WHOLE;
    ps_send_floats(&c->port, &link->given, &message,
                   (struct transfer_out){.to = ps_placement_host(&c->port.placement, shard),
                                         .lane = PS_LANE_SERVER + (uint32_t)shard,
                                         .x = link->landing.at,
                                         .n = n});
    int rc = world_copied(c->m->world, n * sizeof(float));
    trace_copied(c->m->world, begun, TRACE_STEPS, c->m->progress.exchanges, n * sizeof(float));
    return rc;
}

/* The shards continue: they need the pushes that the state lacks, and this worker the copies that
 * it waits for. */
static int resume_pushing(struct ps_client *c, const struct ps_message *message)
{
    if (message->number < c->state.push[c->m->world->self] || message->number > c->pushed)
        return ERR_PROTOCOL; /* their state is older than the one that this worker has offered */
    c->port.epoch = c->asked;
    bool undecided = message->number < c->pushed;
    c->ok = (struct ps_message){.number = message->number,
                                .version = message->version,
                                .flags = undecided ? 0 : c->ok.flags & PS_STOP, /* it was told */
                                .node = c->m->world->self};
    for (size_t i = 0; i < c->port.placement.shards; i++)
        c->link[i].copied = 0;  /* orders count from the state again */
    if (c->delivery == PS_ASKS) /* the OK of a push that is sent again is no reply */
        set_delivery(c, PS_OWES);
    c->repeat = undecided;
    c->sending = message->number + 1;
    if (undecided)
        log_info(c->m->group->log, "worker %u sends pushes %llu to %llu again", c->m->world->self,
                 (unsigned long long)message->number + 1, (unsigned long long)c->pushed);
    if (c->ended && !undecided)
        ps_report_leave(c);
    return ps_holds_all(c) ? OK : ps_request_copies(c);
}

/* ---- one turn ---- */

static bool is_host(const struct ps_client *c, uint32_t node, size_t shard)
{
    return node == ps_placement_host(&c->port.placement, shard);
}

/* Does this worker wait for that part? An older one is the reply to a request that was repeated, or
 * of a shard before it went back to a state. */
static bool expects_part(const struct ps_client *c, uint32_t from, const struct ps_message *part)
{
    bool whole = part->flags & PS_WHOLE;
    bool delta = part->flags & PS_DELTA;
    bool fits = whole ? !delta && part->node <= VIEW_MEMBERS_MAX && part->node > c->m->world->self
                      : !delta || c->link[part->shard].copied > 0;
    return part->op == PS_PART && is_host(c, from, part->shard) &&
           c->link[part->shard].state == LINK_REQUESTED && fits && !is_frozen(c) &&
           whole == c->whole && part->version >= c->wanted && part->epoch >= c->asked;
}

/* A message of the recovery, of this view. */
static int on_clock(struct ps_client *c, const struct ps_message *message)
{
    if (message->op == PS_RESUME && message->view == c->asked && is_frozen(c))
        return resume_pushing(c, message);
    if (message->view != ps_port_view(&c->port))
        return OK;
    if (message->op == PS_ASK)
        return offer_state(c);
    return message->op == PS_GIVE && is_frozen(c) ? give_state(c, message->shard) : OK;
}

static int on_message(struct ps_client *c, struct message *m)
{
    struct ps_message message;
    uint32_t from = m->from;
    bool read = ps_message_decode(transfer_header_reader(m), &message) == OK &&
                message.shard < c->port.placement.shards;
    if (read && expects_part(c, from, &message)) {
        struct ps_link *link = &c->link[message.shard];
        struct transfer_in in = {.x = link->landing.at, .n = link->range.len};
        if (c->whole)
            in.n = shard_state_length(&link->layout, message.node);
        if (message.flags & PS_DELTA) {
            in.codec = c->config.codec;
            in.exact = link->range.len - link->layout.x;
        }
        c->copy_bytes += c->whole ? in.n * sizeof(float) : ps_link_bytes(link, in.codec);
        set_state(link, LINK_ARRIVING);
        link->arriving = message;
        transfer_accept(&link->part, &c->port.transfers, m, &in);
        return OK;
    }
    transfer_refuse(&c->port.transfers, m);
    if (!read)
        return OK;
    if (message.op == PS_OK && is_host(c, from, 0))
        on_ok(c, &message);
    if (message.op == PS_KEPT && from == c->successor)
        return on_kept(c, &message);
    if (message.op < PS_ASK && message.op != PS_KEEP)
        return OK;
    int rc = ps_port_await_view(&c->port, &message); /* a leaver may be new, and asks once */
    if (rc == OK)
        rc = look_around(c);
    if (rc != OK || message.op != PS_KEEP)
        return rc == OK ? on_clock(c, &message) : rc;
    if (view_rank(c->port.placement.now, from) >= 0)
        on_keep(c, from, &message);
    return OK;
}

int ps_take_turn(struct ps_client *c, bool (*holds)(const struct ps_client *), int64_t patience)
{
    struct world *world = c->m->world;
    struct transfer_wake got;
    const struct wait_for own[] = {wait_signal(world, SIGNAL_GROUP),
                                   wait_signal(world, SIGNAL_PUSHED)};
    uint64_t moved = atomic_load(&c->m->group->moved);
    int rc = look_around(c);
    repeat_push(c);
    if (rc == OK)
        rc = keep_for_leavers(c);
    if (rc != OK || (holds && !holds(c)))
        return rc;
    int64_t deadline = patience < WORLD_FOREVER ? world_now(world) + patience : WORLD_FOREVER;
    rc = transfers_next(&c->port.transfers, own, 2, deadline, &got);
    bool stirs =
        atomic_load(&c->m->group->moved) != moved || atomic_load(&c->m->group->driver.missing);
    if (rc == ERR_TIMEOUT && patience > 0 && stirs)
        return OK;
    if (rc == OK && got.header)
        return on_message(c, got.header);
    return rc == OK && got.ended ? on_ended(c, got.ended) : rc;
}
