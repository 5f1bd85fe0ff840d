/* Servers after a change of the view. If a shard has moved, or the driver has recovered, all shards
 * take the newest state that a worker has: PROTOCOL.md has the steps, 1 to 3. */
#include "base/fault.h"
#include "strategy/ps_server.h"

#include <string.h>

/* ---- 3: all shards have taken the state ---- */

/* Workers that send pushes again, which the state lacks. */
static struct members repeating_workers(const struct ps_server *s)
{
    struct members members = {{0}};
    MEMBERS_EACH (p, &s->known)
        if (s->client[p] && s->client[p]->offered > s->done[p])
            members_add(&members, p);
    return members;
}

bool ps_lacks_pushes(const struct ps_server *s)
{
    const struct members members = repeating_workers(s);
    return !members_empty(&members);
}

/* A worker that is gone may not have reported its last push to the driver: the others take the
 * missing steps. A worker whose loop has ended may have pushes to repeat. */
static void set_clock_back(struct ps_server *s)
{
    const struct members training = members_without(&s->known, &s->left);
    const struct members repeating = repeating_workers(s);
    const struct members members = members_union(&training, &repeating);
    uint64_t missing = s->port.placement.on_workers ? s->departed * s->config.push : 0;
    uint64_t offset = s->sample_offset > missing ? s->sample_offset - missing : 0;
    ps_clock_resume(s->clock, offset, &members);
    ps_end_flush(s);
    s->outliers = (struct members){{0}};
    if (s->version > 0)
        ps_clock_set(s->clock, s->clock_value);
}

/* The clock's: a shard has taken the state. No worker pushes or fetches before all have. */
static int on_taken(struct ps_server *s, size_t shard, uint64_t version)
{
    int rc = OK;
    if (version != s->best)
        return ERR_PROTOCOL; /* the clock has named another state */
    members_add(&s->taken, (uint32_t)shard);
    if (members_count(&s->taken) < s->port.placement.shards)
        return OK;
    set_clock_back(s);
    ps_enter(s, SERVER_SERVES);
    MEMBERS_EACH (p, &s->known) {
        const struct ps_message message = {
            .op = PS_RESUME, .number = s->done[p], .version = s->version};
        rc = rc == OK ? ps_send_worker(&s->port, p, &message) : rc;
    }
    return rc;
}

/* ---- 2: all shards take the newest state ---- */

/* Pushes and copies under way are void, and their senders learn it. */
static void forget_pushes(struct ps_server *s)
{
    memset(s->done, 0, sizeof s->done);
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_server_client *g = s->client[p];
        if (!g)
            continue;
        transfer_cancel(&g->push);
        transfer_cancel(&g->part);
        if (g->next)
            transfer_refuse(&s->port.transfers, g->next);
        g->next = NULL;
        g->request = REQUEST_NONE;
        if (g->use != USE_NONE)
            ps_set_use(s, g, USE_NONE);
        g->number = g->averaged = 0;
        g->copied = 0; /* orders count from the state again */
    }
}

static void import_state(struct ps_server *s, const struct ps_message *header)
{
    const struct shard_state state = {&s->shard.both, s->shard.optim.state, 0, s->done,
                                      header->node};
    shard_import_state(&s->layout, &state, s->state.at);
    if (s->shard.x.n > 0)
        s->shard.optim.updates = header->number;
    s->history = (uint64_t)header->ns;
    s->sample_offset = header->samples;
    s->clock_value = header->t;
    s->departed = 0;
    for (uint32_t p = 0; p < header->node; p++) {
        struct ps_server_client *g = s->client[p];
        if (!members_has(&s->known, p) || !g) {
            s->departed += s->done[p] > 0;
            s->done[p] = 0;
            continue;
        }
        g->number = s->done[p];
        if (g->number > 0 && g->last.n > 0) { /* its own s is lost: the mean stands for it */
            vec_copy(&g->last, &s->shard.both, vec_all(&g->last));
            g->averaged = s->config.push;
        }
    }
    if (s->leader)
        s->leader->model.updates = s->shard.optim.updates;
}

static int continue_from(struct ps_server *s, uint64_t version)
{
    s->version = version;
    ps_observe(s, true);
    ps_enter(s, s->clock ? SERVER_LEVELS : SERVER_SERVES);
    if (s->clock)
        return on_taken(s, 0, version);
    return ps_send_shard(&s->port, 0,
                         &(struct ps_message){.op = PS_STATE,
                                              .shard = (uint32_t)s->config.index,
                                              .version = s->version});
}

int ps_on_given_ended(struct ps_server *s)
{
    struct ps_message header;
    PL_ASSERT(ps_message_decode(transfer_reader(&s->given), &header) == OK);
    import_state(s, &header);
    log_info(s->log, "shard %zu continues at %s %u from worker %u's state of order %llu",
             s->config.index, s->leader ? "driver" : "worker", s->leader ? 0 : s->world->self,
             s->given.peer, (unsigned long long)header.version);
    return continue_from(s, header.version);
}

/* All workers are joiners that have fetched nothing yet: the model is what this node has, such as a
 * recovered driver from its checkpoint, or a joiner from its donor. */
static int continue_without(struct ps_server *s)
{
    log_warn(s->log,
             "no worker has a state of the global model: shard %zu continues with what is "
             "here",
             s->config.index);
    s->history = 0;
    return continue_from(s, 0);
}

int ps_on_given(struct ps_server *s, struct message *m, const struct ps_message *header)
{
    bool fits = header->node <= VIEW_MEMBERS_MAX, whole = header->flags & PS_WHOLE;
    int rc = fits ? OK : ERR_PROTOCOL;
    if (!fits || s->port.epoch == ps_port_view(&s->port)) { /* it has taken one in this view */
        transfer_refuse(&s->port.transfers, m);
        return rc;
    }
    if (s->stage != SERVER_EMPTY)
        ps_enter(s, SERVER_EMPTY);
    forget_pushes(s);
    s->port.epoch = s->ordered_in = ps_port_view(&s->port);
    if (whole && !s->state.at)
        rc = vec_init(&s->state, &s->own, shard_state_length(&s->layout, VIEW_MEMBERS_MAX));
    const struct transfer_in in = {.x = s->state.at,
                                   .n = shard_state_length(&s->layout, header->node)};
    if (whole && rc == OK)
        transfer_accept(&s->given, &s->port.transfers, m, &in);
    else
        transfer_refuse(&s->port.transfers, m);
    return rc == OK && !whole ? continue_without(s) : rc;
}

/* ---- 1: the clock learns which states there are ---- */

/* All have offered. A state on the shard's own node is the nearest. */
static int name_givers(struct ps_server *s)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < s->port.placement.shards; i++) {
        uint32_t host = ps_placement_host(&s->port.placement, i);
        uint32_t giver = members_has(&s->givers, host) ? host : members_next(&s->givers, 0);
        const struct ps_message message = {.op = giver < VIEW_MEMBERS_MAX ? PS_GIVE : PS_GIVEN,
                                           .shard = (uint32_t)i};
        rc = giver < VIEW_MEMBERS_MAX ? ps_send_worker(&s->port, giver, &message)
                                      : ps_send_shard(&s->port, i, &message);
    }
    return rc;
}

static int on_offer(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (members_has(&s->offered, from))
        return OK;
    if (message->flags & PS_LEFT)
        members_add(&s->left, from);
    s->client[from]->offered = message->number;
    members_add(&s->offered, from);
    bool has = !(message->flags & PS_NEW);
    if (has && (members_empty(&s->givers) || message->version > s->best))
        s->givers = members_only(from);
    else if (has && message->version == s->best)
        members_add(&s->givers, from);
    if (members_has(&s->givers, from))
        s->best = message->version;
    return members_within(&s->known, &s->offered) ? name_givers(s) : OK;
}

int ps_ask_for_states(struct ps_server *s)
{
    int rc = OK;
    if (s->stage == SERVER_SERVES)
        ps_enter(s, SERVER_LEVELS);
    s->offered = s->givers = s->left = s->taken = (struct members){{0}};
    s->best = 0;
    MEMBERS_EACH (p, &s->known)
        rc = rc == OK ? ps_send_worker(&s->port, p, &(struct ps_message){.op = PS_ASK}) : rc;
    return rc;
}

int ps_on_recovery(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (!s->clock || s->stage == SERVER_SERVES)
        return OK;
    if (message->op == PS_COPY)
        return on_offer(s, from, message);
    return message->op == PS_STATE && message->shard < s->port.placement.shards
               ? on_taken(s, message->shard, message->version)
               : OK;
}
