#include "strategy/ps_order.h"

#include "base/fault.h"
#include "base/hash.h"

/* ---- states ---- */

static const uint8_t next_stages[SERVER_STAGES] = {
    [SERVER_EMPTY] = 1 << SERVER_LEVELS,
    [SERVER_LEVELS] = 1 << SERVER_SERVES | 1 << SERVER_EMPTY,
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

/* ---- pushes arrive ---- */

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

int ps_take_next(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    struct ps_message push;
    if (!g || !g->next || s->stage == SERVER_EMPTY || g->use != USE_NONE)
        return OK;
    struct message *m = g->next;
    g->next = NULL;
    /* A worker sends its pushes in order, and repeats them so: one that follows a missing one will
     * come again. */
    if (ps_message_decode(transfer_header_reader(m), &push) != OK || push.number != g->done + 1) {
        transfer_refuse(&s->sender.transfers, m);
        return OK;
    }
    g->samples = push.samples;
    g->number = push.number;
    g->bad = push.flags & PS_LOST;
    ps_set_use(g, g->bad ? USE_WAITS : USE_ARRIVES);
    const struct transfer_in in = {.x = g->both.at, .n = s->shard.range.len};
    if (!g->bad)
        transfer_accept(&g->push, &s->sender.transfers, m, &in);
    else
        transfer_refuse(&s->sender.transfers, m); /* it has no vector */
    return g->bad ? ps_have(s, node) : OK;
}

int ps_on_push(struct ps_server *s, struct message *m)
{
    struct ps_server_client *g = s->client[m->from];
    if (g->next)
        transfer_refuse(&s->sender.transfers, g->next); /* a second waiting one */
    g->next = m;
    return ps_take_next(s, m->from);
}

/* A push has ended. A part that is not finite is not applied, nor are the others of that push. */
int ps_on_push_ended(struct ps_server *s, struct ps_server_client *g)
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

/* ---- copies go out ---- */

static int send_part(struct ps_server *s, uint32_t node, struct ps_message *header, size_t floats)
{
    struct ps_server_client *g = s->client[node];
    const struct vec copy = {g->both.at, floats};
    header->op = PS_PART;
    header->shard = (uint32_t)s->config.index;
    header->version = s->version;
    ps_set_use(g, USE_COPY);
    ps_sender_send_vec(&s->sender, &g->part, node, PS_LANE_WORKER, header, &copy);
    return world_copied(s->world, floats * sizeof(float));
}

/* Send this shard's state, as of `order`. */
static int send_state(struct ps_server *s, uint32_t node, const struct ps_message *order)
{
    struct ps_server_client *g = s->client[node];
    uint32_t workers = 0;
    shard_export_state(&s->layout, &s->shard.both, s->shard.optim.state, 0, g->both.at);
    MEMBERS_EACH (p, &s->known) {
        while (workers < p)
            shard_put_push(&s->layout, g->both.at, workers++, 0);
        shard_put_push(&s->layout, g->both.at, workers++, s->client[p] ? s->client[p]->done : 0);
    }
    struct ps_message header = {.flags = PS_WHOLE,
                                .node = workers,
                                .view = order->view,
                                .number = s->shard.optim.updates,
                                .samples = s->sample_offset,
                                .t = order->t,
                                .ns = (int64_t)s->history};
    return send_part(s, node, &header, shard_state_length(&s->layout, workers));
}

/* ---- orders are carried out ---- */

/* Pushes are decided: apply them here, or drop them. */
static int carry_out_pushes(struct ps_server *s, const struct ps_message *order)
{
    const struct members *members = &order->members;
    bool applied = order->op == PS_APPLY;
    size_t count = 0;
    MEMBERS_EACH (p, members) {
        const struct ps_server_client *g = s->client[p];
        if (!g)
            continue;
        if (g->use != USE_WAITS)
            return ERR_PROTOCOL; /* the clock decides only pushes that this shard has reported */
        s->together[count++] = (struct push){&g->both, g->samples};
    }
    size_t bytes = count * s->shard.range.len * sizeof(float);
    int rc =
        applied ? world_work(s->world, &(struct cost){s->world->costs.reduce * (double)bytes}) : OK;
    if (rc != OK)
        return rc;
    if (applied)
        shard_apply(&s->shard, s->together, count, order->t);
    MEMBERS_EACH (p, members) {
        struct ps_server_client *g = s->client[p];
        if (!g)
            continue;
        if (applied && g->last.n > 0) {
            vec_copy(&g->last, &g->both, vec_all(&g->last));
            g->averaged = g->samples;
        }
        ps_set_use(g, USE_NONE);
        g->done = g->number;
    }
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
            ps_set_use(g, USE_NONE);
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
    if (order->op != PS_SHOW)
        s->history = hash_mix(hash_mix(s->history, order->op == PS_APPLY),
                              hash_bytes(&order->members, sizeof order->members));
    ps_observe(s, false);
    return order->op == PS_SHOW ? carry_out_show(s, order) : OK;
}

/* The clock's: send an order to all shards, and carry it out. */
static int send_order(struct ps_server *s, enum ps_op op, const struct members *members, double t)
{
    const struct ps_message message = {.op = op,
                                       .number = s->version + 1,
                                       .samples = s->clock->progress.sample_offset,
                                       .view = s->view,
                                       .t = t,
                                       .members = *members};
    int rc = OK;
    if (members_empty(members))
        return OK;
    for (size_t i = 1; rc == OK && i < s->config.placement.shards; i++)
        rc = ps_report_shard(s, i, &message);
    return rc == OK ? carry_out(s, &message) : rc;
}

/* Not before all shards follow the clock: then they may have to take a state first. */
int ps_reply(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    bool sees = g->done >= g->after && s->version >= g->version;
    if (g->request == REQUEST_NONE || !sees || s->stage != SERVER_SERVES || g->use != USE_NONE)
        return OK;
    bool whole = g->request == REQUEST_STATE;
    g->request = REQUEST_NONE;
    if (whole) {
        const struct members members = members_only(node);
        return send_order(s, PS_SHOW, &members, ps_clock_value(s->clock));
    }
    struct ps_message header = {.view = s->view};
    vec_copy(&g->both, &s->shard.both, vec_all(&s->shard.both));
    return send_part(s, node, &header, s->shard.both.n);
}

int ps_reply_all(struct ps_server *s)
{
    int rc = OK;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p])
            rc = ps_reply(s, p);
    return rc;
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

/* A decision has been applied: the server receives the pushes that waited for it, and sends
 * copies. */
static int go_on(struct ps_server *s, const struct members *members)
{
    int rc = OK;
    average_state(s);
    MEMBERS_EACH (p, members)
        rc = rc == OK ? ps_take_next(s, p) : rc;
    if (rc == OK)
        rc = ps_reply_all(s);
    return rc == OK ? report_change(s) : rc;
}

int ps_on_order(struct ps_server *s, const struct ps_message *message)
{
    if (s->clock || s->stage == SERVER_EMPTY || message->number <= s->version)
        return OK;
    if (message->number != s->version + 1)
        return ERR_PROTOCOL;
    int rc = carry_out(s, message);
    return rc == OK ? go_on(s, &message->members) : rc;
}

/* ---- the clock ---- */

int ps_send_oks(struct ps_server *s, const struct ps_decision *d, int64_t now)
{
    int rc = OK;
    struct ps_message message = {
        .op = PS_OK,
        .flags = (d->stop ? PS_STOP : 0u) | (d->diverged ? PS_LOST : 0u),
        .node = d->by,
        .version = s->version,
    };
    MEMBERS_EACH (p, &d->ok) {
        if (!s->client[p] || rc != OK)
            continue;
        message.number = s->client[p]->done;
        message.ns = ps_clock_waited(s->clock, p, now);
        rc = ps_sender_send(&s->sender, p, PS_LANE_WORKER, &message);
    }
    return rc;
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
    const struct members decided = members_union(&d.dropped, &d.applied);
    if (rc == OK) /* after both orders, since the sample offset is that of both */
        rc = go_on(s, &decided);
    return rc == OK ? ps_send_oks(s, &d, now) : rc;
}
