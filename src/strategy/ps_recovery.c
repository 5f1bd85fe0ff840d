#include "strategy/ps_recovery.h"

#include "base/fault.h"

/* Of a shard's report; a new view discards it. */
static const uint8_t next_stands[STANDS] = {
    [STAND_NONE] = 1 << STAND_CONTINUES | 1 << STAND_TAKEN,
    [STAND_CONTINUES] = 1 << STAND_TAKEN,
};

static void set_stand(enum ps_stand *stand, enum ps_stand next)
{
    PL_ASSERT(next_stands[*stand] & 1 << next);
    *stand = next;
}

static int report_to_worker(struct ps_server *s, uint32_t node, enum ps_op op, uint64_t number)
{
    const struct ps_message message = {.op = op,
                                       .shard = (uint32_t)s->config.index,
                                       .view = s->view,
                                       .number = number,
                                       .version = s->version};
    return ps_sender_send(&s->sender, node, PS_LANE_WORKER, &message);
}

/* ---- 4: all shards follow the clock again ---- */

/* Workers that send pushes again, which the state lacks. */
static struct members repeating_workers(const struct ps_server *s)
{
    struct members members = {{0}};
    MEMBERS_EACH (p, &s->known)
        if (s->client[p] && s->client[p]->offered > s->client[p]->done)
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
    uint64_t missing = s->config.placement.on_workers ? s->departed * s->config.push : 0;
    uint64_t offset = s->sample_offset > missing ? s->sample_offset - missing : 0;
    ps_clock_resume(s->clock, offset, &members);
    if (s->version > 0)
        ps_clock_set(s->clock, s->clock_value);
}

/* Those that arrived before the clock counted again. */
static int have_again(struct ps_server *s)
{
    int rc = OK;
    MEMBERS_EACH (p, &s->known)
        if (rc == OK && s->client[p] && s->client[p]->use == USE_WAITS)
            rc = ps_have(s, p);
    return rc;
}

static int finish_recovery(struct ps_server *s)
{
    int rc = OK;
    bool recovers = s->recovers;
    const struct ps_message message = {.op = PS_SYNC, .flags = recovers ? PS_NEW : 0};
    for (size_t i = 0; i < s->config.placement.shards; i++)
        if (s->stand[i] != STAND_TAKEN && (recovers || s->stand[i] == STAND_NONE))
            return OK;
    s->recovers = false;
    if (recovers)
        set_clock_back(s);
    ps_enter(s, SERVER_SERVES);
    for (size_t i = 1; rc == OK && i < s->config.placement.shards; i++)
        rc = ps_report_shard(s, i, &message);
    MEMBERS_EACH (p, &s->known)
        if (rc == OK && recovers && s->client[p])
            rc = report_to_worker(s, p, PS_RESUME, s->client[p]->done);
    if (rc == OK && recovers)
        rc = have_again(s);
    return rc == OK ? ps_reply_all(s) : rc;
}

static int on_sync(struct ps_server *s, const struct ps_message *message)
{
    if (s->stage == SERVER_SERVES)
        return OK;
    ps_enter(s, SERVER_SERVES);
    int rc = message->flags & PS_NEW ? have_again(s) : OK;
    return rc == OK ? ps_reply_all(s) : rc;
}

/* ---- 3: each shard reports ---- */

static int on_stand(struct ps_server *s, const struct ps_message *message)
{
    if (!s->clock || message->shard >= s->config.placement.shards || s->stage == SERVER_SERVES)
        return OK;
    enum ps_stand *stand = &s->stand[message->shard];
    bool taken = message->flags & PS_NEW;
    if (taken && (!s->recovers || message->version != s->best))
        return ERR_PROTOCOL; /* the clock has named another state */
    if (*stand == STAND_NONE || (taken && *stand == STAND_CONTINUES))
        set_stand(stand, taken ? STAND_TAKEN : STAND_CONTINUES);
    return s->stage == SERVER_LEVELS ? finish_recovery(s) : OK;
}

static int report_stand(struct ps_server *s)
{
    const struct ps_message message = {.op = PS_STATE,
                                       .flags = s->took == s->view ? PS_NEW : 0,
                                       .shard = (uint32_t)s->config.index,
                                       .view = s->view,
                                       .version = s->version};
    return s->clock ? on_stand(s, &message) : ps_report_shard(s, 0, &message);
}

/* ---- 2: all shards take the newest state ---- */

/* Pushes and copies under way are void. */
static void forget_pushes(struct ps_server *s)
{
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_server_client *g = s->client[p];
        if (!g)
            continue;
        transfer_cancel(&g->push);
        transfer_cancel(&g->part);
        if (g->next)
            transfer_refuse(&s->sender.transfers, g->next);
        g->next = NULL;
        g->request = REQUEST_NONE;
        if (g->use != USE_NONE)
            ps_set_use(g, USE_NONE);
        g->number = g->done = g->averaged = 0;
    }
}

static void import_state(struct ps_server *s, const struct ps_message *header)
{
    shard_import_state(&s->layout, &s->shard.both, s->shard.optim.state, 0, s->state.at);
    s->shard.optim.updates = header->number;
    s->history = (uint64_t)header->ns;
    s->sample_offset = header->samples;
    s->clock_value = header->t;
    s->departed = 0;
    for (uint32_t p = 0; p < header->node; p++) {
        struct ps_server_client *g = s->client[p];
        uint64_t pushed = shard_state_push(&s->layout, s->state.at, p);
        if (!members_has(&s->known, p) || !g) {
            s->departed += pushed > 0;
            continue;
        }
        g->number = g->done = pushed;
        if (pushed > 0 && g->last.n > 0) { /* its own s is lost: the mean stands for it */
            vec_copy(&g->last, &s->shard.both, vec_all(&g->last));
            g->averaged = s->config.push;
        }
    }
    if (s->leader)
        s->leader->model.updates = s->shard.optim.updates;
}

static int continue_from(struct ps_server *s)
{
    s->version = s->best;
    ps_enter(s, SERVER_LEVELS);
    ps_observe(s, true);
    int rc = report_stand(s);
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++)
        rc = ps_take_next(s, p);
    return rc;
}

int ps_on_given(struct ps_server *s)
{
    struct ps_message header;
    PL_ASSERT(ps_message_decode(transfer_reader(&s->given), &header) == OK);
    PL_ASSERT(header.version == s->best);
    import_state(s, &header);
    log_info(s->log, "shard %zu continues at %s %u from worker %u's state of order %llu",
             s->config.index, s->leader ? "driver" : "worker", s->leader ? 0 : s->world->self,
             s->giver, (unsigned long long)s->best);
    return continue_from(s);
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
    return continue_from(s);
}

/* A state on this node is the nearest. */
static int take_state(struct ps_server *s, const struct ps_message *message)
{
    int rc = OK;
    if (s->took == s->view)
        return OK;
    if (s->stage != SERVER_EMPTY)
        ps_enter(s, SERVER_EMPTY);
    forget_pushes(s);
    s->took = s->view;
    s->best = message->version;
    if (members_empty(&message->members))
        return continue_without(s);
    s->giver = members_has(&message->members, s->world->self) ? s->world->self
                                                              : members_next(&message->members, 0);
    if (!s->state.at)
        rc = vec_init(&s->state, &s->own, shard_state_length(&s->layout, VIEW_MEMBERS_MAX));
    return rc == OK ? report_to_worker(s, s->giver, PS_GIVE, 0) : rc;
}

static int take_given(struct ps_server *s, struct message *m, const struct ps_message *header)
{
    if (!(header->flags & PS_WHOLE) || header->node > VIEW_MEMBERS_MAX ||
        header->version != s->best) {
        transfer_refuse(&s->sender.transfers, m);
        return ERR_PROTOCOL;
    }
    const struct transfer_in in = {.x = s->state.at,
                                   .n = shard_state_length(&s->layout, header->node)};
    transfer_cancel(&s->given);
    transfer_accept(&s->given, &s->sender.transfers, m, &in);
    return OK;
}

/* ---- 1: the clock learns which states there are ---- */

/* All have offered. */
static int name_newest(struct ps_server *s)
{
    int rc = OK;
    const struct ps_message message = {
        .op = PS_TAKE, .view = s->view, .version = s->best, .members = s->givers};
    for (size_t i = 1; rc == OK && i < s->config.placement.shards; i++)
        rc = ps_report_shard(s, i, &message);
    return rc == OK ? take_state(s, &message) : rc;
}

static int on_offer(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (!s->clock || !s->recovers || s->took == s->view || members_has(&s->offered, from))
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
    return members_within(&s->known, &s->offered) ? name_newest(s) : OK;
}

int ps_take_stock(struct ps_server *s)
{
    int rc = OK;
    transfer_cancel(&s->given);
    if (!s->clock)
        return s->stage == SERVER_EMPTY ? OK : report_stand(s);
    s->offered = s->givers = s->left = (struct members){{0}};
    s->best = 0;
    for (size_t i = 0; i < s->config.placement.shards; i++)
        s->stand[i] = STAND_NONE;
    MEMBERS_EACH (p, &s->known)
        if (rc == OK && s->recovers)
            rc = report_to_worker(s, p, PS_ASK, 0);
    return rc == OK && !s->recovers ? report_stand(s) : rc;
}

int ps_on_stock(struct ps_server *s, struct message *m, const struct ps_message *message)
{
    uint32_t from = m->from;
    if (message->op == PS_GIVEN && s->stage == SERVER_EMPTY && from == s->giver)
        return take_given(s, m, message);
    transfer_refuse(&s->sender.transfers, m);
    switch (message->op) {
    case PS_COPY: return on_offer(s, from, message);
    case PS_TAKE: return take_state(s, message);
    case PS_STATE: return on_stand(s, message);
    case PS_SYNC: return on_sync(s, message);
    default: return OK;
    }
}
