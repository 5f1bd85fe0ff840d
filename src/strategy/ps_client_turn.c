#include "strategy/ps_client_turn.h"

#include "base/fault.h"
#include "tensor/kernels.h"

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

static int report_shard(struct ps_client *c, size_t shard, const struct ps_message *message)
{
    return ps_sender_send(&c->sender, c->link[shard].host, PS_LANE_SERVER + (uint32_t)shard,
                          message);
}

void ps_observe_client(const struct ps_client *c)
{
    const struct group_observer *observer = c->m->group->observer;
    if (observer && observer->pushed)
        observer->pushed(observer->user, c->m->world->self, c);
}

/* Is it a joiner that has fetched no state yet? */
static bool lacks_state(const struct ps_client *c)
{
    return ps_has_states(c) && c->m->join_state && c->state_header.op != PS_PART;
}

/* Is the next copy to be a state? Always, if that costs nothing; else the first one, and when the
 * next push would take the last room for pushes that no state contains. */
static bool needs_state(const struct ps_client *c)
{
    return ps_has_states(c) && (c->layout.optimizer == 0 || c->state_header.version == 0 ||
                                c->pushed + 1 - c->contained >= c->kept);
}

int ps_request_copy(struct ps_client *c, size_t shard)
{
    const struct ps_message message = {.op = PS_FETCH,
                                       .flags = needs_state(c) ? PS_WHOLE : 0,
                                       .view = c->view,
                                       .number = c->pushed,
                                       .version = c->ok.version};
    transfer_cancel(&c->link[shard].part);
    set_state(&c->link[shard], LINK_REQUESTED);
    c->link[shard].wanted = c->ok.version;
    return report_shard(c, shard, &message);
}

/* A state has arrived: pushes that it contains are needed no more. ERR_PROTOCOL: it contains fewer
 * than the one before, or more than there are */
static int keep_state(struct ps_client *c, const struct ps_message *header)
{
    size_t n = shard_state_length(&c->layout, header->node);
    uint64_t contained = shard_state_push(&c->layout, c->landing.at, c->m->world->self);
    if (contained < c->contained || contained > c->pushed)
        return ERR_PROTOCOL;
    vec_copy(&c->state, &c->landing, (struct range){0, n});
    c->state_header = *header;
    c->contained = contained;
    ps_observe_client(c);
    return OK;
}

/* The next view reports a lost server. */
static int on_ended(struct ps_client *c, const struct transfer *ended)
{
    if (ended->status == ERR_PEER)
        return OK;
    for (size_t i = 0; i < c->config.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        if (ended != &link->part)
            continue;
        if (ended->status != OK)
            return ended->status;
        set_state(link, LINK_HELD);
        link->version = link->arriving.version;
        int rc = link->arriving.flags & PS_WHOLE ? keep_state(c, &link->arriving) : OK;
        if (rc != OK)
            return rc;
        if (c->global.at != c->state.at)
            vec_copy(&c->global, &c->landing, link->range);
    }
    return OK;
}

/* ---- pushing ---- */

void ps_send_push(struct ps_client *c)
{
    const struct ps_push *push = &c->push[c->sending % c->kept];
    const struct ps_message message = {.op = PS_PUSH,
                                       .flags = push->lost ? PS_LOST : 0,
                                       .number = c->sending,
                                       .samples = push->samples};
    size_t len = ps_message_encode(&message, c->push_header);
    for (size_t i = 0; i < c->config.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        c->push_sender.part[i].skip = !link->repeat;
        c->push_sender.part[i].what =
            (struct transfer_out){.to = link->host,
                                  .lane = PS_LANE_SERVER + (uint32_t)i,
                                  .x = push->lost ? NULL : push->vec.at + link->range.from,
                                  .n = push->lost ? 0 : link->range.len,
                                  .header = c->push_header,
                                  .header_len = len};
        link->repeat = false;
    }
    async_sender_send(&c->push_sender);
}

/* Send a push again where it is needed, when the previous sending has ended. */
static void repeat_push(struct ps_client *c)
{
    bool some = false;
    for (size_t i = 0; i < c->config.placement.shards; i++)
        some |= c->link[i].repeat;
    if (some && !async_sender_busy(&c->push_sender))
        ps_send_push(c);
}

int ps_report_leave(struct ps_client *c)
{
    const struct ps_message message = {.op = PS_LEAVE};
    return report_shard(c, 0, &message);
}

/* The push is decided. After a recovery, others may follow it. */
static int on_ok(struct ps_client *c, const struct ps_message *message)
{
    c->ok = *message;
    if (message->number == c->pushed)
        return c->stage == CLIENT_ENDED ? ps_report_leave(c) : OK;
    if (ps_has_states(c) && message->number == c->sending) {
        c->sending++;
        c->link[0].repeat = true;
    }
    return OK;
}

/* ---- a new view ---- */

static int serve_shard(void *arg)
{
    struct ps_server *server = arg;
    kernels_set_threads(1); /* those of the job compute */
    return ps_server_run(server, NULL);
}

int ps_client_serve(struct ps_client *c, size_t shard, bool moved)
{
    const struct member *m = c->m;
    struct ps_link *link = &c->link[shard];
    struct ps_server_config config = c->config;
    struct err err;
    config.index = shard;
    config.origin = moved ? SHARD_MOVED : SHARD_INITIAL;
    link->server = arena_new(m->arena, struct ps_server);
    if (!link->server)
        return ERR_NOMEM;
    int rc = ps_server_init(link->server, m->world, m->group, m->group->log, &config,
                            m->learner->table, &m->learner->x, &m->learner->s, m->arena, &err);
    if (moved) /* an estimate, used if no shard knows the offset */
        link->server->sample_offset += (m->progress.sample_offset - m->start.sample_offset) *
                                       members_count(&config.placement.first);
    return rc == OK ? world_spawn(m->world, "server", serve_shard, link->server, &link->serving)
                    : rc;
}

int ps_offer_copy(struct ps_client *c, size_t shard)
{
    const struct ps_message copy = {
        .op = PS_COPY,
        .flags = (c->stage == CLIENT_ENDED ? PS_LEFT : 0u) | (lacks_state(c) ? PS_NEW : 0u),
        .shard = (uint32_t)shard,
        .view = c->view,
        .number = c->pushed,
        .version = ps_has_states(c) ? c->state_header.version : c->link[shard].version};
    return ps_sender_send(&c->sender, ps_placement_host(&c->config.placement, shard),
                          PS_LANE_SERVER + (uint32_t)shard, &copy);
}

/* Has the driver, which is the server, been replaced since this worker's last contact? */
static bool has_recovered(const struct ps_client *c)
{
    return !c->config.placement.on_workers &&
           c->config.placement.now->incarnation != c->incarnation;
}

/* Some shards have moved: this worker's copy of them may be the newest. If one has moved here,
 * start its server. */
static int on_view(struct ps_client *c, const struct view *view)
{
    int rc = OK;
    c->view = view->number;
    c->config.placement.now = view;
    if (c->stage != CLIENT_ENDED) /* else the worker's task, which reports it to a recovered
                                     driver, may read it */
        c->m->progress.sharers = view_members(view);
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        uint32_t host = ps_placement_host(&c->config.placement, i);
        bool offers = c->stage == CLIENT_JOINING || lacks_state(c);
        if (host == link->host && !has_recovered(c) && !offers)
            continue;
        if (host == c->m->world->self && !link->server) {
            log_warn(c->m->group->log,
                     "shard %zu of the model: its server is lost, worker %u takes over", i, host);
            rc = ps_client_serve(c, i, true);
        }
        if (has_recovered(c)) /* what it offers is to stay the newest state until it is requested */
            transfer_cancel(&link->part);
        if (rc == OK)
            rc = ps_offer_copy(c, i);
    }
    return rc;
}

static int look_around(struct ps_client *c)
{
    const struct view *view = group_view(c->m->group);
    if (atomic_load(&c->m->group->end.over))
        return ERR_DRIVER;
    return view->number == c->view ? OK : on_view(c, view);
}

static void give_copy(struct ps_client *c, const struct ps_message *requested)
{
    struct ps_link *link = &c->link[requested->shard];
    struct ps_message message = {.shard = requested->shard};
    struct vec copy = {c->global.at + link->range.from, link->range.len};
    if (ps_has_states(c)) {
        message = c->state_header;
        message.flags = PS_WHOLE;
        copy = (struct vec){c->state.at, shard_state_length(&c->layout, message.node)};
    }
    message.op = PS_GIVEN;
    message.view = c->view;
    transfer_cancel(&link->offered);
    ps_sender_send_vec(&c->sender, &link->offered,
                       ps_placement_host(&c->config.placement, requested->shard),
                       PS_LANE_SERVER + requested->shard, &message, &copy);
}

/* All shards are served again. The new server of a shard that has moved receives the pushes that
 * are not decided, and the worker requests the copy that it lacks. */
static int resume_shard(struct ps_client *c, const struct ps_message *message)
{
    int rc = OK;
    bool new_clock = message->flags & PS_NEW, recovered = has_recovered(c);
    if (ps_has_states(c) && (message->number < c->contained || message->number > c->pushed))
        return ERR_PROTOCOL; /* its state is older than the one that this worker has offered */
    c->incarnation = c->config.placement.now->incarnation;
    /* Only pushes that the shards have applied count. */
    if (new_clock && !(message->flags & PS_LOST))
        c->ok = (struct ps_message){.number = message->number,
                                    .flags = message->number == c->pushed ? c->ok.flags & PS_STOP
                                                                          : 0, /* it was told */
                                    .node = c->m->world->self};
    if (new_clock)
        c->ok.version = message->version;
    bool undecided = c->ok.number < c->pushed && message->number < c->pushed;
    if (ps_has_states(c) && new_clock && undecided) {
        log_info(c->m->group->log, "worker %u sends pushes %llu to %llu again", c->m->world->self,
                 (unsigned long long)message->number + 1, (unsigned long long)c->pushed);
        c->sending = message->number + 1;
    }
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        uint32_t host = ps_placement_host(&c->config.placement, i);
        bool moved = host != link->host || recovered;
        link->host = host;
        link->repeat = undecided && (moved || link->repeat);
        bool lost = new_clock && link->state == LINK_REQUESTED;
        if (lost || (moved && link->state != LINK_HELD))
            rc = ps_request_copy(c, i);
    }
    return rc == OK && c->stage == CLIENT_ENDED && !undecided ? ps_report_leave(c) : rc;
}

/* ---- one turn ---- */

static int on_message(struct ps_client *c, struct message *m)
{
    struct ps_message message;
    uint32_t from = m->from;
    bool read =
        ps_message_decode(transfer_header_reader(m), &message) == OK &&
        message.shard < c->config.placement.shards &&
        (!(message.flags & PS_WHOLE) || (ps_has_states(c) && message.node <= VIEW_MEMBERS_MAX &&
                                         message.node > c->m->world->self));
    struct ps_link *link = read ? &c->link[message.shard] : NULL;
    /* An older part is the reply to a request that was repeated. */
    if (read && message.op == PS_PART && from == link->host && link->state == LINK_REQUESTED &&
        message.version >= link->wanted) {
        struct transfer_in in = {.x = c->landing.at + link->range.from, .n = link->range.len};
        if (message.flags & PS_WHOLE)
            in.n = shard_state_length(&c->layout, message.node);
        set_state(link, LINK_ARRIVING);
        link->arriving = message;
        transfer_accept(&link->part, &c->sender.transfers, m, &in);
        return OK;
    }
    transfer_refuse(&c->sender.transfers, m);
    if (!read)
        return OK;
    if (message.op == PS_OK && from == c->link[0].host)
        return on_ok(c, &message);
    if (message.op < PS_COPY)
        return OK;
    int rc = message.view > c->view
                 ? group_wait_view(c->m->group, message.view - 1,
                                   world_now(c->m->world) + c->m->group->timing.piece)
                 : OK;
    if (rc == OK)
        rc = look_around(c);
    if (rc != OK || message.view != c->view)
        return rc;
    if (message.op == PS_GIVE)
        give_copy(c, &message);
    return message.op == PS_RESUME ? resume_shard(c, &message) : OK;
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
    if (rc != OK || (holds && !holds(c)))
        return rc;
    int64_t deadline = patience < WORLD_FOREVER ? world_now(world) + patience : WORLD_FOREVER;
    rc = transfers_next(&c->sender.transfers, own, 2, deadline, &got);
    bool stirs =
        atomic_load(&c->m->group->moved) != moved || atomic_load(&c->m->group->driver.missing);
    if (rc == ERR_TIMEOUT && patience > 0 && stirs)
        return OK;
    if (rc == OK && got.header)
        return on_message(c, got.header);
    return rc == OK && got.ended ? on_ended(c, got.ended) : rc;
}
