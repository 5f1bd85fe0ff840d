/* Actions of a server when pushes are decided; and the clock, which decides them for all
 * servers. */
#include "base/hash.h"
#include "strategy/ps_server_internal.h"

/* Pushes are decided: apply them here, or drop them. */
static int carry_out(struct ps_server *s, const struct ps_message *order)
{
    const struct members *members = &order->members;
    bool applied = order->op == PS_APPLY;
    size_t count = 0;
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_server_client *g = members_has(members, p) ? s->client[p] : NULL;
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
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_server_client *g = members_has(members, p) ? s->client[p] : NULL;
        if (g && applied && g->last.n > 0) {
            vec_copy(&g->last, &g->both, vec_all(&g->last));
            g->averaged = g->samples;
        }
        if (!g)
            continue;
        ps_set_use(g, USE_NONE);
        g->done = g->number;
    }
    s->version++;
    s->sample_offset = order->samples;
    s->orders[s->version % s->orders_kept] = *order;
    s->history = hash_mix(hash_mix(s->history, applied), hash_bytes(members, sizeof *members));
    ps_observe(s, false);
    return OK;
}

/* s̃ is the mean of the last s of each remaining worker. */
static void average_state(struct ps_server *s)
{
    size_t count = 0;
    if (s->shard.s.n == 0)
        return;
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++)
        if (s->client[p] && s->client[p]->averaged > 0 && members_has(&s->known, p))
            s->together[count++] = (struct push){&s->client[p]->last, s->client[p]->averaged};
    shard_average(&s->shard, s->together, count);
}

/* A decision has been applied: the server receives the pushes that waited for it, and sends
 * copies. */
static int go_on(struct ps_server *s, const struct members *members)
{
    int rc = OK;
    average_state(s);
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++) {
        if (members_has(members, p))
            rc = ps_take_next(s, p);
    }
    if (rc == OK)
        rc = ps_reply_all(s);
    return rc == OK ? ps_changed(s) : rc;
}

int ps_on_order(struct ps_server *s, const struct ps_message *message)
{
    if (s->clock || s->stage < SERVER_LEVELS || message->number <= s->version)
        return OK; /* from a lost clock, or known */
    if (message->number != s->version + 1)
        return ERR_PROTOCOL;
    int rc = carry_out(s, message);
    if (rc == OK)
        rc = go_on(s, &message->members);
    return rc == OK && s->stage == SERVER_LEVELS ? ps_report_state(s) : rc;
}

/* ---- the clock ---- */

static int send_order(struct ps_server *s, enum ps_op op, const struct members *members, double t)
{
    const struct ps_message message = {.op = op,
                                       .number = s->version + 1,
                                       .samples = s->clock->progress.sample_offset,
                                       .t = t,
                                       .members = *members};
    if (members_empty(members))
        return OK;
    for (size_t i = 1; i < s->config.placement.shards; i++) {
        int rc = ps_report_shard(s, i, &message);
        if (rc != OK)
            return rc;
    }
    return carry_out(s, &message);
}

int ps_send_oks(struct ps_server *s, const struct ps_decision *d, int64_t now)
{
    int rc = OK;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++) {
        const struct ps_server_client *g = members_has(&d->ok, p) ? s->client[p] : NULL;
        if (!g)
            continue;
        const struct ps_message message = {
            .op = PS_OK,
            .flags = (d->stop ? PS_STOP : 0u) | (d->diverged ? PS_LOST : 0u),
            .node = d->by,
            .number = g->done,
            .version = s->version,
            .ns = ps_clock_waited(s->clock, p, now),
        };
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
