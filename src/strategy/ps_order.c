/* The order of a parameter server: the clock decides pushes for all shards, and each shard carries
 * out the decisions. */
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

void ps_observe(const struct ps_server *s, bool recovered)
{
    const struct group_observer *observer = s->group->observer;
    if (observer && observer->served)
        observer->served(observer->user, s, recovered);
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
        rc = g->use == USE_NONE ? ps_send_state(s, p, order) : ERR_PROTOCOL;
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

int ps_show_state(struct ps_server *s, uint32_t node)
{
    const struct members members = members_only(node);
    if (s->requester == node && has_flushed(s))
        ps_end_flush(s);
    return send_order(s, PS_SHOW, &members, ps_clock_value(s->clock));
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
