#include "strategy/ps_recovery.h"

#include "base/fault.h"

/* Of a shard's report; a new view discards it. */
static const uint8_t next_states[STAND_STATES] = {
    [STAND_NONE] = 1 << STAND_NEW | 1 << STAND_KNOWN,
    [STAND_KNOWN] = 1 << STAND_REPLAYS,
};

static void set_state(struct ps_stand *stand, enum ps_stand_state state)
{
    PL_ASSERT(next_states[stand->state] & 1 << state);
    stand->state = state;
}

static bool is_recovered(const struct ps_server *s)
{
    return s->config.origin == SHARD_RECOVERED;
}

/* ---- 1: copies ---- */

static int report_to_worker(struct ps_server *s, uint32_t node, enum ps_op op, uint32_t flags,
                            uint64_t number)
{
    const struct ps_message message = {.op = op,
                                       .flags = flags,
                                       .shard = (uint32_t)s->config.index,
                                       .view = s->view,
                                       .number = number,
                                       .version = s->version};
    return ps_sender_send(&s->sender, node, PS_LANE_WORKER, &message);
}

/* All have offered: request the newest copy. If all are joiners that have fetched none, the model
 * is this driver's, from its checkpoint. */
static int request_newest(struct ps_server *s)
{
    if (s->giver != WORLD_ANY)
        return report_to_worker(s, s->giver, PS_GIVE, 0, 0);
    log_warn(s->log, "no worker has a copy of the global model: it is the checkpoint's");
    ps_enter(s, SERVER_UNSYNCED);
    return ps_report_state(s);
}

static int on_copy(struct ps_server *s, uint32_t from, const struct ps_message *message)
{
    if (message->flags & PS_LEFT)
        members_add(&s->left, from);
    if (s->client[from])
        s->client[from]->copy_of = *message;
    if (is_recovered(s) && s->stage >= SERVER_LEVELS) /* it has seen this view before it learnt
                                                         where the shards continue */
        return report_to_worker(s, from, PS_RESUME, PS_NEW, s->client[from]->done);
    if (s->stage != SERVER_EMPTY || members_has(&s->offered, from))
        return OK;
    bool better = s->giver == WORLD_ANY || message->version > s->best ||
                  (message->version == s->best && from < s->giver);
    members_add(&s->offered, from);
    if (better && !(message->flags & PS_NEW)) {
        s->best = message->version;
        s->giver = from;
    }
    return members_within(&s->known, &s->offered) ? request_newest(s) : OK;
}

/* Order 0 has no state but the model: the optimizer's vectors are those of the checkpoint, and no
 * push is contained. */
static void import_state(struct ps_server *s, const struct ps_message *header)
{
    struct shard_layout layout = s->layout;
    if (header->version == 0)
        layout.optimizer = 0;
    shard_import_state(&layout, &s->shard, s->state.at);
    if (header->version == 0)
        return;
    s->shard.optim.updates = header->number;
    s->sample_offset = header->samples;
    MEMBERS_EACH (p, &s->known) {
        struct ps_server_client *g = s->client[p];
        if (!g || p >= header->node)
            continue;
        g->done = shard_state_push(&s->layout, s->state.at, p);
        if (g->done > 0 && g->last.n > 0) { /* its own s is lost: the mean stands for it */
            vec_copy(&g->last, &s->shard.both, vec_all(&g->last));
            g->averaged = s->config.push;
        }
    }
    s->clock_value = header->t;
    if (s->leader)
        s->leader->model.updates = s->shard.optim.updates;
}

int ps_on_copied(struct ps_server *s)
{
    struct ps_message header;
    ps_enter(s, SERVER_UNSYNCED);
    s->version = s->best;
    if (is_recovered(s)) {
        PL_ASSERT(ps_message_decode(transfer_reader(&s->given), &header) == OK);
        PL_ASSERT(header.version == s->best);
        import_state(s, &header);
        ps_observe(s, true);
    }
    log_info(s->log, "shard %zu continues at %s %u from worker %u's copy of order %llu",
             s->config.index, is_recovered(s) ? "driver" : "worker",
             is_recovered(s) ? 0 : s->world->self, s->giver, (unsigned long long)s->best);
    return ps_report_state(s);
}

/* ---- 3: the clock brings all to one order ---- */

/* The node that knows which pushes are decided reports it to their workers, and to the shards that
 * are new. */
static int resume_all(struct ps_server *s, uint32_t flags)
{
    int rc = OK;
    MEMBERS_EACH (p, &s->known) {
        if (!s->client[p])
            continue;
        const struct ps_message known = {.op = PS_KNOWN, .node = p, .number = s->client[p]->done};
        for (size_t i = 0; rc == OK && !(flags & PS_LOST) && i < s->config.placement.shards; i++)
            if (i != s->config.index)
                rc = ps_report_shard(s, i, &known);
        if (rc == OK)
            rc = report_to_worker(s, p, PS_RESUME, flags, s->client[p]->done);
    }
    return rc;
}

static int on_known(struct ps_server *s, const struct ps_message *message)
{
    struct ps_server_client *g = message->node < VIEW_MEMBERS_MAX ? s->client[message->node] : NULL;
    if (!g || g->done >= message->number)
        return OK;
    g->done = message->number;
    if (g->use == USE_WAITS && g->number <= g->done)
        ps_set_use(g, USE_NONE);
    return ps_reply_all(s);
}

/* The shard with most orders of the previous clock; the number of shards: none has any. */
static size_t find_most(const struct ps_server *s)
{
    size_t most = s->config.placement.shards;
    for (size_t i = 0; i < s->config.placement.shards; i++)
        if (s->stand[i].state != STAND_NEW &&
            (most == s->config.placement.shards || s->stand[i].version > s->stand[most].version))
            most = i;
    return most;
}

/* Request the missing orders for shards that lack some. true: none lacks any. */
static bool level_shards(struct ps_server *s, size_t most, int *rc)
{
    bool done = true;
    for (size_t i = 1; i < s->config.placement.shards; i++) {
        struct ps_stand *stand = &s->stand[i];
        if (stand->state == STAND_NEW || stand->version == s->stand[most].version)
            continue;
        const struct ps_message message = {.op = PS_REPLAY,
                                           .node = ps_placement_host(&s->config.placement, i),
                                           .shard = (uint32_t)i,
                                           .version = stand->version};
        done = false;
        if (stand->state == STAND_REPLAYS || *rc != OK)
            continue;
        *rc = ps_report_shard(s, most, &message);
        set_state(stand, STAND_REPLAYS);
    }
    return done;
}

/* Workers that send pushes again, which this recovered driver lacks. */
static struct members repeating_workers(const struct ps_server *s)
{
    struct members members = {{0}};
    MEMBERS_EACH (p, &s->known)
        if (is_recovered(s) && s->client[p] && s->client[p]->copy_of.number > s->client[p]->done)
            members_add(&members, p);
    return members;
}

bool ps_lacks_pushes(const struct ps_server *s)
{
    const struct members members = repeating_workers(s);
    return !members_empty(&members);
}

/* A worker that died with the clock may not have reported its last push, which counted, to the
 * driver: the others take the missing steps. A worker whose loop has ended may have pushes to
 * repeat. */
static void go_on_from(struct ps_server *s, size_t most)
{
    const struct members training = members_without(&s->known, &s->left);
    const struct members repeating = repeating_workers(s);
    const struct members members = members_union(&training, &repeating);
    uint64_t reported = s->config.start.sample_offset + s->config.push;
    if (most < s->config.placement.shards) {
        s->version = s->stand[most].version;
        s->history = s->stand[most].history;
        s->sample_offset = s->stand[most].sample_offset;
    }
    if (!is_recovered(s) && s->sample_offset >= reported)
        s->sample_offset -= s->config.push;
    ps_clock_resume(s->clock, s->sample_offset, &members);
    if (is_recovered(s) && s->version > 0)
        ps_clock_set(s->clock, s->clock_value);
}

/* ---- 2 to 4: reports ---- */

static int report_to_all(struct ps_server *s, bool new_clock, size_t witness)
{
    int rc = OK;
    for (size_t i = 1; rc == OK && i < s->config.placement.shards; i++) {
        const struct ps_message message = {.op = PS_SYNC,
                                           .flags = (new_clock ? PS_NEW : 0u) |
                                                    (i == witness ? PS_LEFT : 0u),
                                           .number = s->history,
                                           .version = s->version,
                                           .samples = s->sample_offset};
        rc = ps_report_shard(s, i, &message);
    }
    uint32_t flags = (new_clock ? PS_NEW : 0u) | (new_clock && !is_recovered(s) ? PS_LOST : 0u);
    if (rc == OK && (!new_clock || witness == s->config.placement.shards))
        rc = resume_all(s, flags);
    return rc == OK ? ps_reply_all(s) : rc;
}

/* Have all shards reported their state? */
static int finish_takeover(struct ps_server *s)
{
    int rc = OK;
    bool new_clock = s->stage < SERVER_LEVELS;
    size_t most = s->config.placement.shards;
    for (size_t i = 0; i < s->config.placement.shards; i++)
        if (s->stand[i].state == STAND_NONE)
            return OK;
    if (s->stage == SERVER_SERVES)
        return OK;
    if (new_clock) {
        most = find_most(s);
        if (most < s->config.placement.shards && !level_shards(s, most, &rc))
            return rc;
        go_on_from(s, most);
    }
    for (size_t i = 1; i < s->config.placement.shards; i++)
        if (s->stand[i].state == STAND_NEW)
            ps_clock_forget(s->clock, i);
    ps_enter(s, SERVER_SERVES);
    rc = report_to_all(s, new_clock, most);
    if (is_recovered(s)) /* pushes that arrived before it knew its state */
        MEMBERS_EACH (p, &s->known)
            rc = rc == OK ? ps_take_next(s, p) : rc;
    return rc;
}

static int on_stand(struct ps_server *s, const struct ps_message *message)
{
    if (!s->clock || message->shard >= s->config.placement.shards)
        return OK;
    struct ps_stand *stand = &s->stand[message->shard];
    if (stand->state == STAND_NONE)
        set_state(stand, message->flags & PS_NEW ? STAND_NEW : STAND_KNOWN);
    stand->version = message->version;
    stand->history = message->number;
    stand->sample_offset = message->samples;
    return s->stage > SERVER_EMPTY ? finish_takeover(s) : OK;
}

int ps_report_state(struct ps_server *s)
{
    const struct ps_message message = {.op = PS_STATE,
                                       .flags = s->stage < SERVER_LEVELS ? PS_NEW : 0,
                                       .shard = (uint32_t)s->config.index,
                                       .view = s->view,
                                       .number = s->history,
                                       .version = s->version,
                                       .samples = s->sample_offset};
    return s->clock ? on_stand(s, &message) : ps_report_shard(s, 0, &message);
}

int ps_take_stock(struct ps_server *s)
{
    transfer_cancel(&s->given);
    s->offered = (struct members){{0}};
    s->giver = WORLD_ANY;
    for (size_t i = 0; i < s->config.placement.shards; i++)
        s->stand[i] = (struct ps_stand){.state = STAND_NONE};
    return s->stage > SERVER_EMPTY ? ps_report_state(s) : OK;
}

static int on_replay(struct ps_server *s, const struct ps_message *message)
{
    int rc = OK;
    for (uint64_t n = message->version + 1; rc == OK && n <= s->version; n++)
        rc = ps_report_shard(s, message->shard, &s->orders[n % s->orders_kept]);
    return rc;
}

static int on_sync(struct ps_server *s, const struct ps_message *message)
{
    int rc = OK;
    if (s->stage != SERVER_UNSYNCED && s->stage != SERVER_LEVELS)
        return ERR_PROTOCOL;
    if (s->stage == SERVER_UNSYNCED) {
        s->version = message->version;
        s->history = message->number;
        s->sample_offset = message->samples;
    }
    ps_enter(s, SERVER_SERVES);
    if (message->flags & PS_NEW)
        MEMBERS_EACH (p, &s->known)
            if (rc == OK && s->client[p] && s->client[p]->use == USE_WAITS)
                rc = ps_have(s, p);
    if (rc == OK && message->flags & PS_LEFT)
        rc = resume_all(s, PS_NEW);
    return rc == OK ? ps_reply_all(s) : rc;
}

/* The copy of this server's range arrives; on a recovered driver, a whole state. */
static int take_given(struct ps_server *s, struct message *m, const struct ps_message *header)
{
    struct transfer_in in = {.x = s->shard.both.at, .n = s->shard.both.n};
    bool whole =
        header->flags & PS_WHOLE && header->node <= VIEW_MEMBERS_MAX && header->version == s->best;
    if (is_recovered(s) && !whole) {
        transfer_refuse(&s->sender.transfers, m);
        return ERR_PROTOCOL;
    }
    if (is_recovered(s))
        in = (struct transfer_in){.x = s->state.at,
                                  .n = shard_state_length(&s->layout, header->node)};
    transfer_cancel(&s->given);
    transfer_accept(&s->given, &s->sender.transfers, m, &in);
    return OK;
}

int ps_on_stock(struct ps_server *s, struct message *m, const struct ps_message *message)
{
    uint32_t from = m->from;
    if (message->op == PS_GIVEN && s->stage == SERVER_EMPTY && from == s->giver)
        return take_given(s, m, message);
    transfer_refuse(&s->sender.transfers, m);
    switch (message->op) {
    case PS_COPY: return on_copy(s, from, message);
    case PS_STATE: return on_stand(s, message);
    case PS_REPLAY: return on_replay(s, message);
    case PS_SYNC: return on_sync(s, message);
    case PS_KNOWN: return on_known(s, message);
    default: return OK;
    }
}
