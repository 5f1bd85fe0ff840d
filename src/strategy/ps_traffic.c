/* The traffic of a parameter server: pushes arrive, copies go out, of each worker in its turn. */
#include "base/fault.h"
#include "strategy/ps_server.h"

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

int ps_send_state(struct ps_server *s, uint32_t node, const struct ps_message *order)
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

/* Send the copy that the worker requests. */
static int reply_fetch(struct ps_server *s, uint32_t node)
{
    struct ps_server_client *g = s->client[node];
    bool whole = g->request == REQUEST_STATE;
    g->request = REQUEST_NONE;
    if (whole)
        return ps_show_state(s, node);
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
