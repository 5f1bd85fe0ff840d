#include "strategy/ps_client.h"

#include "base/fault.h"

/* ---- states ---- */

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

static const uint8_t next_stages[CLIENT_STAGES] = {
    [CLIENT_JOINING] = 1 << CLIENT_TRAINING | 1 << CLIENT_ENDED,
    [CLIENT_TRAINING] = 1 << CLIENT_ENDED,
};

static void enter_stage(struct ps_client *c, enum ps_client_stage stage)
{
    PL_ASSERT(next_stages[c->stage] & 1 << stage);
    c->stage = stage;
}

/* ---- one turn ---- */

static int report_shard(struct ps_client *c, size_t shard, const struct ps_message *message)
{
    return ps_sender_send(&c->sender, c->link[shard].host, PS_LANE_SERVER + (uint32_t)shard,
                          message);
}

static int report_leave(struct ps_client *c)
{
    const struct ps_message message = {.op = PS_LEAVE};
    return report_shard(c, 0, &message);
}

static void observe_client(const struct ps_client *c)
{
    const struct group_observer *observer = c->m->group->observer;
    if (observer && observer->pushed)
        observer->pushed(observer->user, c->m->world->self, c);
}

static bool has_states(const struct ps_client *c)
{
    return c->state.n > 0;
}

/* Is it a joiner that has fetched no state yet? */
static bool lacks_state(const struct ps_client *c)
{
    return has_states(c) && c->m->join_state && c->state_header.op != PS_PART;
}

/* Is the next copy to be a state? Always, if that costs nothing; else the first one, and when the
 * next push would take the last room for pushes that no state contains. */
static bool needs_state(const struct ps_client *c)
{
    return has_states(c) && (c->layout.optimizer == 0 || c->state_header.version == 0 ||
                             c->pushed + 1 - c->contained >= c->kept);
}

static int request_copy(struct ps_client *c, size_t shard)
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
    size_t n = ps_state_length(&c->layout, header->node);
    uint64_t contained = ps_state_push(&c->layout, c->landing.at, c->m->world->self);
    if (contained < c->contained || contained > c->pushed)
        return ERR_PROTOCOL;
    vec_copy(&c->state, &c->landing, (struct range){0, n});
    c->state_header = *header;
    c->contained = contained;
    observe_client(c);
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

/* Offer the copy here to the shard's new server. */
static int offer_copy(struct ps_client *c, size_t shard)
{
    const struct ps_message copy = {
        .op = PS_COPY,
        .flags = (c->stage == CLIENT_ENDED ? PS_LEFT : 0u) | (lacks_state(c) ? PS_NEW : 0u),
        .shard = (uint32_t)shard,
        .view = c->view,
        .number = c->pushed,
        .version = has_states(c) ? c->state_header.version : c->link[shard].version};
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
            rc = offer_copy(c, i);
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

static int give_copy(struct ps_client *c, const struct ps_message *requested)
{
    uint8_t bytes[PS_MESSAGE_MAX];
    struct ps_link *link = &c->link[requested->shard];
    struct ps_message message = {.shard = requested->shard};
    struct vec copy = {c->global.at + link->range.from, link->range.len};
    if (has_states(c)) {
        message = c->state_header;
        message.flags = PS_WHOLE;
        copy = (struct vec){c->state.at, ps_state_length(&c->layout, message.node)};
    }
    message.op = PS_GIVEN;
    message.view = c->view;
    transfer_cancel(&link->offered);
    transfer_send(
        &link->offered, &c->sender.transfers,
        &(struct transfer_out){.to = ps_placement_host(&c->config.placement, requested->shard),
                               .lane = PS_LANE_SERVER + requested->shard,
                               .x = copy.at,
                               .n = copy.n,
                               .header = bytes,
                               .header_len = ps_message_encode(&message, bytes)});
    return OK;
}

/* All shards are served again. The new server of a shard that has moved receives the pushes that
 * are not decided, and the worker requests the copy that it lacks. */
static int resume_shard(struct ps_client *c, const struct ps_message *message)
{
    int rc = OK;
    bool new_clock = message->flags & PS_NEW, recovered = has_recovered(c);
    if (has_states(c) && (message->number < c->contained || message->number > c->pushed))
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
    if (has_states(c) && new_clock && undecided) {
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
            rc = request_copy(c, i);
    }
    return rc == OK && c->stage == CLIENT_ENDED && !undecided ? report_leave(c) : rc;
}

/* The push is decided. After a recovery, others may follow it. */
static int on_ok(struct ps_client *c, const struct ps_message *message)
{
    c->ok = *message;
    if (message->number == c->pushed)
        return c->stage == CLIENT_ENDED ? report_leave(c) : OK;
    if (has_states(c) && message->number == c->sending) {
        c->sending++;
        c->link[0].repeat = true;
    }
    return OK;
}

static int on_message(struct ps_client *c, struct message *m)
{
    struct ps_message message;
    uint32_t from = m->from;
    bool read =
        ps_message_decode(transfer_header_reader(m), &message) == OK &&
        message.shard < c->config.placement.shards &&
        (!(message.flags & PS_WHOLE) ||
         (has_states(c) && message.node <= VIEW_MEMBERS_MAX && message.node > c->m->world->self));
    struct ps_link *link = read ? &c->link[message.shard] : NULL;
    /* An older part is the reply to a request that was repeated. */
    if (read && message.op == PS_PART && from == link->host && link->state == LINK_REQUESTED &&
        message.version >= link->wanted) {
        struct transfer_in in = {.x = c->landing.at + link->range.from, .n = link->range.len};
        if (message.flags & PS_WHOLE)
            in.n = ps_state_length(&c->layout, message.node);
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
    return message.op == PS_GIVE     ? give_copy(c, &message)
           : message.op == PS_RESUME ? resume_shard(c, &message)
                                     : OK;
}

static void send_push(struct ps_client *c)
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
        send_push(c);
}

/* Wait once and handle one event, if `holds` is still true. While data moves, `patience` is the
 * time for the next piece. */
static int take_turn(struct ps_client *c, bool (*holds)(const struct ps_client *), int64_t patience)
{
    struct world *world = c->m->world;
    struct transfer_wake got;
    const struct wait_for changed = wait_signal(world, SIGNAL_GROUP);
    uint64_t moved = atomic_load(&c->m->group->moved);
    const struct wait_for pushed = wait_signal(world, SIGNAL_PUSHED);
    int rc = look_around(c);
    repeat_push(c);
    if (rc != OK || (holds && !holds(c)))
        return rc;
    const struct wait_for own[] = {
        changed,
        pushed,
    };
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

int ps_client_step(struct ps_client *c)
{
    int rc = OK;
    while (rc == OK)
        rc = take_turn(c, NULL, 0);
    return rc == ERR_TIMEOUT ? OK : rc;
}

/* ---- pushing ---- */

static bool is_undecided(const struct ps_client *c)
{
    return c->ok.number < c->pushed;
}

static bool is_pushing(const struct ps_client *c)
{
    return async_sender_busy(&c->push_sender) || is_undecided(c);
}

/* A worker that waits for others computes nothing, and is not expected to. */
static int wait_while(struct ps_client *c, bool (*holds)(const struct ps_client *),
                      int64_t patience)
{
    int rc = OK;
    bool busy = atomic_exchange(&c->m->group->work.busy, false);
    while (rc == OK && holds(c)) {
        /* The learner's x stays as it is meanwhile. */
        if (c->config.admits_in_waits && c->stage != CLIENT_ENDED)
            rc = c->m->on_step_boundary(c->m);
        if (rc == OK)
            rc = take_turn(c, holds, patience);
    }
    atomic_store(&c->m->group->work.busy, busy);
    return rc;
}

int ps_client_flush(struct ps_client *c)
{
    int rc = wait_while(c, is_pushing, c->m->group->timing.piece);
    return rc == OK ? atomic_load(&c->push_sender.status) : rc;
}

int ps_client_push(struct ps_client *c, uint64_t samples, bool lost)
{
    int rc = ps_client_flush(c);
    if (rc == OK && has_states(c) && c->pushed + 1 - c->contained >= c->kept)
        rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    if (has_states(c) && c->pushed + 1 - c->contained >= c->kept)
        return ERR_PROTOCOL; /* the driver has sent a copy that is no state */
    c->sending = ++c->pushed;
    c->push[c->pushed % c->kept].lost = lost;
    c->push[c->pushed % c->kept].samples = samples;
    for (size_t i = 0; i < c->config.placement.shards; i++)
        c->link[i].repeat = true;
    observe_client(c);
    send_push(c);
    return ps_client_take_push_memory(c, c->pushed + 1);
}

/* No deadline: heartbeats detect the death of the workers that the consistency waits for. */
int ps_client_await_ok(struct ps_client *c)
{
    int rc = wait_while(c, is_undecided, WORLD_FOREVER);
    return rc == OK && c->ok.flags & PS_LOST ? ERR_DIVERGED : rc;
}

/* ---- fetching ---- */

static bool is_lacking(const struct ps_client *c)
{
    for (size_t i = 0; i < c->config.placement.shards; i++)
        if (c->link[i].state != LINK_HELD)
            return true;
    return false;
}

int ps_client_fetch(struct ps_client *c)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++)
        rc = request_copy(c, i);
    return rc == OK ? wait_while(c, is_lacking, c->m->group->timing.piece) : rc;
}

int ps_client_take(struct ps_client *c)
{
    struct learner *l = c->m->learner;
    vec_copy(&l->x, &c->x, vec_all(&c->x));
    if (!vec_finite(&l->s, vec_all(&l->s)))
        vec_copy(&l->s, &c->s, vec_all(&c->s));
    return world_copied(c->m->world, c->x.n * sizeof(float));
}

/* ---- the end ---- */

static bool is_reporting(const struct ps_client *c)
{
    return ps_sender_busy(&c->sender);
}

static int serve_offers(void *arg)
{
    struct ps_client *c = arg;
    int rc = OK;
    while (rc == OK)
        rc = take_turn(c, NULL, WORLD_FOREVER);
    return rc;
}

int ps_client_leave(struct ps_client *c)
{
    int rc = wait_while(c, is_undecided, WORLD_FOREVER);
    enter_stage(c, CLIENT_ENDED);
    if (rc == OK)
        rc = report_leave(c);
    if (rc == OK)
        rc = wait_while(c, is_reporting, c->m->group->timing.piece);
    return rc == OK ? world_spawn(c->m->world, "worker", serve_offers, c, &c->lingering) : rc;
}

/* The clock first: it knows how far the others are to be. */
static int fetch_in_turn(struct ps_client *c)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++) {
        rc = request_copy(c, i);
        if (rc == OK)
            rc = wait_while(c, is_lacking, c->m->group->timing.piece);
        if (i == 0)
            c->ok.version = c->link[0].version;
    }
    return rc;
}

size_t ps_client_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct ps_client *c = m->own;
    return ps_placement_export(&c->config.placement, word);
}

int ps_client_gather(struct member *m)
{
    struct ps_client *c = m->own;
    world_end_task(m->world, &c->lingering);
    return fetch_in_turn(c);
}

static int offer_all(struct ps_client *c)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++)
        rc = offer_copy(c, i);
    return rc;
}

int ps_client_offer(struct ps_client *c)
{
    enter_stage(c, CLIENT_TRAINING);
    return offer_all(c);
}

/* If a shard is moving, its new server waits for an offer from every worker: this worker's copy is
 * its donor's, and counts as old. */
int ps_client_join(struct ps_client *c)
{
    int rc = offer_all(c);
    if (rc == OK)
        rc = fetch_in_turn(c);
    if (rc != OK)
        return rc;
    enter_stage(c, CLIENT_TRAINING);
    vec_copy(&c->m->learner->s, &c->s, vec_all(&c->s));
    return ps_client_take(c);
}
