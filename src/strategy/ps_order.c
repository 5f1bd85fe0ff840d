/* The order of a parameter server: pushes arrive, the clock decides them for all shards, each shard
 * carries out the decisions, and copies go out. */
#include "base/fault.h"
#include "base/hash.h"
#include "strategy/ps_server.h"
#include "wire/wire_send.h"

static const uint8_t next_stages[SERVER_STAGES] = {
    [SERVER_EMPTY] = 1 << SERVER_LEVELS | 1 << SERVER_SERVES,
    [SERVER_LEVELS] = 1 << SERVER_SERVES | 1 << SERVER_EMPTY,
    [SERVER_SERVES] = 1 << SERVER_LEVELS | 1 << SERVER_EMPTY,
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

void ps_set_use(struct ps_server *s, struct ps_server_client *g, enum ps_use use)
{
    int64_t now = world_now(s->world);
    PL_ASSERT(next_uses[g->use] & 1 << use);
    if (g->use == USE_ARRIVES)
        link_turns_end(&s->in, &g->in, g->push.status == OK ? g->bytes : 0, now);
    if (g->use == USE_COPY)
        link_turns_end(&s->out, &g->out, g->part.status == OK ? g->bytes : 0, now);
    if (g->use == USE_ARRIVES && g->flushes && --s->f32_pushes == 0)
        s->f32_ns += now - s->f32_since;
    if (use == USE_ARRIVES && g->flushes && s->f32_pushes++ == 0)
        s->f32_since = now;
    if (use == USE_ARRIVES)
        link_turns_begin(&s->in, &g->in, g->bytes, now);
    if (use == USE_COPY)
        link_turns_begin(&s->out, &g->out, g->bytes, now);
    g->use = use;
}

static double vector_bytes(const struct ps_server *s, enum codec codec, size_t floats)
{
    size_t exact = s->shard.s.n < floats ? s->shard.s.n : floats;
    return (double)(codec_bytes(codec, floats - exact) + exact * sizeof(float));
}

void ps_observe(const struct ps_server *s, bool recovered)
{
    const struct group_observer *observer = s->group->observer;
    if (observer && observer->served)
        observer->served(observer->user, s, recovered);
}

/* ---- pushes arrive ---- */

/* Report to the clock that the worker's push has arrived. */
static int report_push(struct ps_server *s, uint32_t node)
{
    const struct ps_server_client *g = s->client[node];
    bool outlier = g->bad && g->outlier;
    if (s->clock && outlier)
        members_add(&s->outliers, node);
    if (s->clock) {
        ps_clock_have(s->clock, node, 0, g->samples,
                      outlier  ? PUSH_REFUSED
                      : g->bad ? PUSH_INFINITE
                               : PUSH_SOUND,
                      world_now(s->world));
        return OK;
    }
    return ps_send_shard(
        &s->port, 0,
        &(struct ps_message){.op = PS_HAVE,
                             .flags = (g->bad ? PS_LOST : 0u) | (outlier ? PS_OUTLIER : 0u),
                             .node = node,
                             .shard = (uint32_t)s->config.index,
                             .number = g->number,
                             .samples = g->samples});
}

static int take_push(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    struct message *m = g->next;
    struct ps_message push;
    g->next = NULL;
    /* A worker sends its pushes in order, and repeats them so: one that follows a missing one will
     * come again. */
    if (ps_message_decode(transfer_header_reader(m), &push) != OK ||
        push.number != s->done[node] + 1) {
        transfer_refuse(&s->port.transfers, m);
        return OK;
    }
    g->samples = push.samples;
    g->number = push.number;
    g->bad = push.flags & PS_LOST;
    g->outlier = false;
    g->flushes = push.flags & PS_FLUSH;
    enum codec codec = g->flushes ? CODEC_F32 : s->config.codec;
    g->bytes = vector_bytes(s, codec, s->shard.range.len);
    ps_set_use(s, g, g->bad ? USE_WAITS : USE_ARRIVES);
    const struct transfer_in in = {
        .x = g->both.at,
        .n = s->shard.range.len,
        .codec = codec,
        .exact = codec == CODEC_F32 ? 0 : s->shard.s.n,
    };
    if (!g->bad)
        transfer_accept(&g->push, &s->port.transfers, m, &in);
    else
        transfer_refuse(&s->port.transfers, m); /* it has no vector */
    return g->bad ? report_push(s, node) : OK;
}

int ps_on_push(struct ps_server *s, struct message *m)
{
    struct ps_server_client *g = s->client[m->from];
    if (g->next)
        transfer_refuse(&s->port.transfers, g->next); /* a second waiting one */
    g->next = m;
    g->since = s->requests++;
    return OK;
}

/* Compare the shard's part of a push with the newest ones of the other workers, and with the mean
 * of those that were applied. A refused push stays in the comparison: it is one of few. */
static int judge_push(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    struct outlier_claim claim[VIEW_MEMBERS_MAX];
    enum outlier_cause cause[VIEW_MEMBERS_MAX];
    const struct vec x = vec_part(&g->both, 0, s->shard.x.n);
    const struct vec_angle angle =
        vec_angle(&x, NULL, s->has_moved ? &s->moved : NULL, NULL, vec_all(&x));
    size_t n = 0, at = 0;
    g->claim = (struct outlier_claim){.weight = 1, .samples = g->samples};
    outlier_measure(&g->history, &angle, angle.uu, &g->claim);
    MEMBERS_EACH (p, &s->known) {
        at = p == node ? n : at;
        claim[n++] = s->client[p] ? s->client[p]->claim : (struct outlier_claim){0};
    }
    outlier_judge(claim, n, cause);
    g->outlier = cause[at] != OUTLIER_SOUND;
    if (g->outlier) {
        char why[OUTLIER_TEXT_MAX];
        outlier_explain(claim, n, at, cause[at], why);
        log_warn(s->log, "worker %u: its push %llu is refused: %s", node,
                 (unsigned long long)g->number, why);
    }
    return world_copied(s->world, 2 * x.n * sizeof(float));
}

/* A push has ended. A part that is not finite is not applied, nor are the others of that push. */
int ps_on_push_ended(struct ps_server *s, struct ps_server_client *g)
{
    uint32_t node = g->push.peer;
    if (g->push.status != OK || g->number <= s->done[node]) { /* broken; or decided meanwhile */
        ps_set_use(s, g, USE_NONE);
        return OK;
    }
    ps_set_use(s, g, USE_WAITS);
    g->bad = !vec_finite(&g->both, vec_all(&s->shard.both));
    if (g->bad)
        log_warn(s->log, "worker %u: its push %llu is not finite and is left out", node,
                 (unsigned long long)g->number);
    int rc = OK;
    if (ps_rejects(s) && !g->bad && s->shard.x.n > 0)
        rc = judge_push(s, node);
    g->bad |= g->outlier;
    return rc == OK ? report_push(s, node) : rc;
}

/* ---- copies go out ---- */

enum { DELTA_PASSES = 4 }; /* copy, difference, code, sum */

static int send_copy(struct ps_server *s, uint32_t node, struct ps_message *header, size_t floats)
{
    struct ps_server_client *g = s->client[node];
    header->op = PS_PART;
    header->shard = (uint32_t)s->config.index;
    header->version = s->version;
    bool delta = header->flags & PS_DELTA;
    g->bytes = vector_bytes(s, delta ? s->config.codec : CODEC_F32, floats);
    ps_set_use(s, g, USE_COPY);
    ps_send_floats(&s->port, &g->part, header,
                   (struct transfer_out){.to = node,
                                         .lane = PS_LANE_WORKER,
                                         .x = g->both.at,
                                         .n = floats,
                                         .codec = delta ? s->config.codec : CODEC_F32,
                                         .exact = delta ? s->shard.s.n : 0});
    return world_copied(s->world, (delta ? DELTA_PASSES : 1) * floats * sizeof(float));
}

/* The worker's copy is now what g->both has, or becomes it by that difference. Of two copies of one
 * order it may have received either: then the next is no difference. */
static void keep_copy(struct ps_server *s, struct ps_server_client *g, bool delta)
{
    const struct range all = vec_all(&g->copy);
    if (delta)
        vec_axpy(&g->copy, 1.0f, &g->both, all);
    else
        vec_copy(&g->copy, &g->both, all);
    g->copied = g->copied == s->version + 1 ? 0 : s->version + 1;
}

/* A difference that the codec can send, in g->both. */
static void subtract_copy(struct ps_server *s, struct ps_server_client *g)
{
    vec_axpy(&g->both, -1.0f, &g->copy, vec_all(&g->copy));
    codec_round(s->config.codec, g->both.at, g->copy.n);
}

/* Send this shard's state, as of `order`. */
static int send_state(struct ps_server *s, uint32_t node, const struct ps_message *order)
{
    struct ps_server_client *g = s->client[node];
    const struct shard_state state = {&s->shard.both, s->shard.optim.state, 0, s->done,
                                      order->node};
    struct ps_message header = {.flags = PS_WHOLE,
                                .node = order->node,
                                .number = s->shard.optim.updates,
                                .samples = s->sample_offset,
                                .t = order->t,
                                .ns = (int64_t)s->history};
    shard_export_state(&s->layout, &state, g->both.at);
    keep_copy(s, g, false);
    return send_copy(s, node, &header, shard_state_length(&s->layout, order->node));
}

/* ---- orders are carried out ---- */

#define MOVED_NEW 0.1f /* share of a push in the running mean */

/* Pushes are decided: apply them here, or drop them. */
static int carry_out_pushes(struct ps_server *s, const struct ps_message *order)
{
    const struct members *members = &order->members;
    bool applied = order->op == PS_APPLY;
    size_t count = 0;
    MEMBERS_EACH (p, members) {
        const struct ps_server_client *g = s->client[p];
        if (!g || g->use != USE_WAITS)
            return ERR_PROTOCOL; /* the clock decides only pushes that this shard has reported */
        s->together[count++] = (struct push){&g->both, g->samples};
    }
    double bytes = (double)(count * s->shard.range.len * sizeof(float));
    int rc = applied ? world_work(s->world, &(struct cost){s->world->costs.reduce * bytes}) : OK;
    if (rc != OK)
        return rc;
    if (applied)
        shard_apply(&s->shard, s->together, count, order->t);
    MEMBERS_EACH (p, members) {
        struct ps_server_client *g = s->client[p];
        if (applied && s->moved.n > 0) {
            vec_lerp(&s->moved, s->has_moved ? MOVED_NEW : 1.0f, &g->both, vec_all(&s->moved));
            s->has_moved = true;
        }
        if (applied && g->last.n > 0) {
            vec_copy(&g->last, &g->both, vec_all(&g->last));
            g->averaged = g->samples;
        }
        ps_set_use(s, g, USE_NONE);
        if (members_has(&s->known, p)) /* else it is lost meanwhile */
            s->done[p] = g->number;
    }
    s->history = hash_mix(hash_mix(s->history, applied), hash_bytes(members, sizeof *members));
    return OK;
}

/* These workers request states: none has a push under way, and each has given up its copies. */
static int carry_out_show(struct ps_server *s, const struct ps_message *order)
{
    int rc = OK;
    MEMBERS_EACH (p, &order->members) {
        struct ps_server_client *g = s->client[p];
        if (!g || !members_has(&s->known, p) || rc != OK)
            continue;
        if (g->use == USE_COPY) {
            transfer_cancel(&g->part);
            ps_set_use(s, g, USE_NONE);
        }
        rc = g->use == USE_NONE ? send_state(s, p, order) : ERR_PROTOCOL;
    }
    return rc;
}

static int carry_out(struct ps_server *s, const struct ps_message *order)
{
    int rc = order->op == PS_SHOW ? OK : carry_out_pushes(s, order);
    if (rc != OK)
        return rc;
    s->version++;
    s->sample_offset = order->samples;
    ps_observe(s, false);
    return order->op == PS_SHOW ? carry_out_show(s, order) : OK;
}

/* The clock's: send an order to all shards, and carry it out. */
static int send_order(struct ps_server *s, enum ps_op op, const struct members *members, double t)
{
    struct ps_message message = {.op = op,
                                 .number = s->version + 1,
                                 .samples = s->clock->progress.sample_offset,
                                 .t = t,
                                 .members = *members};
    int rc = OK;
    if (members_empty(members))
        return OK;
    MEMBERS_EACH (p, &s->known)
        message.node = p + 1;
    for (size_t i = 1; rc == OK && i < s->port.placement.shards; i++)
        rc = ps_send_shard(&s->port, i, &message);
    return rc == OK ? carry_out(s, &message) : rc;
}

/* Outliers are refused by their size, and what a worker owes may be large. */
static bool may_flush(const struct ps_server *s)
{
    return s->config.codec != CODEC_F32 && !s->config.keeps_lost && !ps_rejects(s);
}

/* Do workers push for the last time? One may be half as fast as the others. */
static bool is_ending(const struct ps_server *s)
{
    return may_flush(s) && ps_clock_ends_with(s->clock, 2 * s->config.push);
}

static bool has_flushed(const struct ps_server *s)
{
    return s->flush.on && members_within(&s->clock->consistency.in, &s->flushed);
}

void ps_end_flush(struct ps_server *s)
{
    if (s->flush.on)
        strategy_flush_end(&s->flush, world_now(s->world), s->f32_ns);
    s->requester = WORLD_ANY;
}

/* Send the copy that the worker requests. */
static int reply_fetch(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    bool whole = g->request == REQUEST_STATE;
    g->request = REQUEST_NONE;
    if (whole) {
        const struct members members = members_only(node);
        if (s->requester == node && has_flushed(s))
            ps_end_flush(s);
        return send_order(s, PS_SHOW, &members, ps_clock_value(s->clock));
    }
    bool delta = g->copy.n > 0 && g->from > 0 && g->from == g->copied;
    struct ps_message header = {.flags = delta ? PS_DELTA : 0};
    vec_copy(&g->both, &s->shard.both, vec_all(&s->shard.both));
    if (delta)
        subtract_copy(s, g);
    keep_copy(s, g, delta);
    return send_copy(s, node, &header, s->shard.both.n);
}

/* ---- turns ---- */

static bool push_is_due(const struct ps_server *s, uint32_t node)
{
    return s->client[node]->next != NULL;
}

static bool copy_is_due(const struct ps_server *s, uint32_t node)
{
    const struct ps_server_client *g = s->client[node];
    bool unfinished = g->request == REQUEST_STATE && g->final && ps_lacks_pushes(s);
    return !g->next && g->request != REQUEST_NONE && s->done[node] >= g->after &&
           s->version >= g->version && !unfinished;
}

/* Of those that are due, the worker that has waited longest. VIEW_MEMBERS_MAX: none */
static uint32_t next_in_turn(const struct ps_server *s,
                             bool (*is_due)(const struct ps_server *, uint32_t))
{
    uint32_t first = VIEW_MEMBERS_MAX;
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        const struct ps_server_client *g = s->client[p];
        if (g && g->use == USE_NONE && is_due(s, p) &&
            (first == VIEW_MEMBERS_MAX || g->since < s->client[first]->since))
            first = p;
    }
    return first;
}

/* Of several servers none makes a worker wait: its other parts would wait with that one. */
static bool has_turn(const struct ps_server *s, uint32_t node)
{
    const struct ps_server_client *g = s->client[node];
    int64_t now = world_now(s->world);
    return s->port.placement.shards > 1 || (g->next ? link_turns_free(&s->in, &g->in, now)
                                                    : link_turns_free(&s->out, &g->out, now));
}

static int take_pushes(struct ps_server *s, int64_t *deadline)
{
    uint32_t p;
    int rc = OK;
    while (rc == OK && (p = next_in_turn(s, push_is_due)) < VIEW_MEMBERS_MAX) {
        if (!has_turn(s, p)) {
            *deadline = s->in.free_at < *deadline ? s->in.free_at : *deadline;
            return OK;
        }
        rc = take_push(s, p);
        if (s->client[p]->use == USE_WAITS)
            *deadline = 0; /* it has no vector, and the clock may decide it at once */
    }
    return rc;
}

static int send_copies(struct ps_server *s, int64_t *deadline)
{
    uint32_t p;
    int rc = OK;
    while (rc == OK && (p = next_in_turn(s, copy_is_due)) < VIEW_MEMBERS_MAX) {
        if (!has_turn(s, p)) {
            *deadline = s->out.free_at < *deadline ? s->out.free_at : *deadline;
            return OK;
        }
        rc = reply_fetch(s, p);
    }
    return rc;
}

int ps_serve_workers(struct ps_server *s, int64_t *deadline)
{
    if (s->stage != SERVER_SERVES)
        return OK;
    int rc = take_pushes(s, deadline);
    return rc == OK ? send_copies(s, deadline) : rc;
}

/* ---- orders arrive ---- */

/* s̃ is the mean of the last s of each remaining worker. */
static void average_state(struct ps_server *s)
{
    size_t count = 0;
    if (s->shard.s.n == 0)
        return;
    MEMBERS_EACH (p, &s->known)
        if (s->client[p] && s->client[p]->averaged > 0)
            s->together[count++] = (struct push){&s->client[p]->last, s->client[p]->averaged};
    shard_average(&s->shard, s->together, count);
}

static int report_change(struct ps_server *s)
{
    if (!s->leader)
        return OK;
    s->leader->model.updates = s->shard.optim.updates;
    return s->leader->on_commit(s->leader, NULL);
}

static int after_decision(struct ps_server *s)
{
    average_state(s);
    return report_change(s);
}

int ps_on_order(struct ps_server *s, const struct ps_message *message)
{
    if (s->clock || s->stage != SERVER_SERVES || message->number <= s->version)
        return OK;
    if (message->number != s->version + 1)
        return ERR_PROTOCOL;
    s->ordered_in = message->view;
    int rc = carry_out(s, message);
    return rc == OK ? after_decision(s) : rc;
}

/* ---- the clock ---- */

int ps_send_oks(struct ps_server *s, const struct ps_decision *d, int64_t now)
{
    int rc = OK;
    struct ps_message message = {
        .op = PS_OK,
        .flags = (d->stop ? PS_STOP : 0u) | (d->diverged ? PS_LOST : 0u) |
                 (s->flush.on || is_ending(s) ? PS_FLUSH : 0u) | (has_flushed(s) ? PS_WHOLE : 0u),
        .node = d->by,
        .version = s->version,
    };
    MEMBERS_EACH (p, &d->ok) {
        if (!s->client[p] || rc != OK)
            continue;
        message.number = s->done[p];
        message.ns = ps_clock_waited(s->clock, p, now);
        rc = ps_send_worker(&s->port, p, &message);
    }
    return rc;
}

/* Tell the driver of dropped pushes. */
static int report_dropped(struct ps_server *s, const struct ps_decision *d)
{
    int rc = OK;
    if (!ps_rejects(s))
        return OK;
    MEMBERS_EACH (p, &d->applied)
        s->refused[p] = 0;
    MEMBERS_EACH (p, &d->dropped) {
        struct buf bytes = {0};
        buf_put_u32(&bytes, p);
        buf_put_u64(&bytes, s->done[p]);
        buf_put_u32(&bytes, ++s->refused[p]);
        buf_put_u8(&bytes, members_has(&s->outliers, p));
        members_remove(&s->outliers, p);
        int sent = wire_send_buf(s->world, WORLD_DRIVER, WIRE_REJECTED, 0, &bytes);
        buf_release(&bytes);
        rc = sent == ERR_NOMEM ? sent : rc;
    }
    return rc;
}

/* Has it taken longer than the time between checkpoints, and half of the workers could have flushed
 * twice? A worker is much slower than others. */
static bool is_overdue(const struct ps_server *s, int64_t now)
{
    const double usual = 30;
    double every = s->config.clock.job->checkpoint->every_seconds;
    return !has_flushed(s) && world_seconds(now - s->flush.begun) > (every > 0 ? every : usual) &&
           2 * members_count(&s->flushed_twice) >= members_count(&s->clock->consistency.in);
}

/* A checkpoint is due: until all that train have pushed what they owe, each pushes as f32, so that
 * none owes anything when the last of them has. If a worker makes the checkpoint, it fetches its
 * state before others round again. */
static void follow_flush(struct ps_server *s, const struct members *decided, int64_t now)
{
    if (!may_flush(s))
        return;
    bool due = s->leader ? s->leader->checkpoint_due(s->leader) : s->requester != WORLD_ANY;
    MEMBERS_EACH (p, decided)
        if (s->client[p]->flushes || s->client[p]->bad)
            members_add(members_has(&s->flushed, p) ? &s->flushed_twice : &s->flushed, p);
    if (s->flush.on && is_overdue(s, now)) {
        s->f32_ns = now - s->flush.begun; /* the next one rests for longer */
        ps_end_flush(s);
    } else if (due && !s->flush.on) {
        s->flushed = s->flushed_twice = (struct members){{0}};
        s->f32_ns = 0;
        if (!strategy_flush_begin(&s->flush, now))
            s->requester = WORLD_ANY;
    }
    if (s->leader)
        s->leader->owes = !due || (s->flush.on && !has_flushed(s));
}

int ps_decide(struct ps_server *s)
{
    struct ps_decision d;
    int64_t now = world_now(s->world);
    if (!s->clock || s->stage != SERVER_SERVES || !ps_clock_decide(s->clock, now, &d))
        return OK;
    int rc = send_order(s, PS_DROP, &d.dropped, d.t);
    if (rc == OK)
        rc = send_order(s, PS_APPLY, &d.applied, d.t);
    if (rc == OK)
        rc = report_dropped(s, &d);
    const struct members decided = members_union(&d.applied, &d.dropped);
    follow_flush(s, &decided, now);
    if (rc == OK) /* after both orders, since the sample offset is that of both */
        rc = after_decision(s);
    if (s->leader && has_flushed(s) && !s->leader->checkpoint_due(s->leader))
        ps_end_flush(s); /* only now, since its copy may have to wait for another to be sent */
    return rc == OK ? ps_send_oks(s, &d, now) : rc;
}
