/* The protocol is that of strategy/ps_server.h. A worker sends a part of each push to each shard:
 * header, grant, pieces. A shard that has it reports to the clock, on shard 0. The clock orders all
 * shards to apply pushes that all have, and tells workers that may continue. These request copies,
 * of the clock alone if they are to be states, which it orders likewise. */
#include "plan/server_model.h"

#include "base/minmax.h"
#include "coll/transfer.h"
#include "plan/round.h"

#include <math.h>

enum { ORDER_BYTES = 80, GRANT_BYTES = 4 };

/* ---- messages ---- */

/* The node of a shard's server. */
static uint32_t host_of(const struct world_model *w, size_t shard)
{
    return w->config->servers > 0 ? (uint32_t)shard + 1 : 0;
}

static struct mesh_message message_of(const struct world_model *w, enum message_kind kind,
                                      size_t shard, size_t worker, uint64_t number, double bytes)
{
    bool to_worker =
        kind == PUSH_GRANT || kind == COPY_HEADER || kind == COPY_PIECE || kind == MAY_GO;
    bool notice = kind >= HAVE, of_clock = kind == APPLY || kind == SHOW || kind == MAY_GO;
    uint32_t server = host_of(w, shard), client = (uint32_t)worker + 1;
    return (struct mesh_message){
        .from = of_clock                    ? host_of(w, 0)
                : kind == HAVE || to_worker ? server
                                            : client,
        .to = kind == HAVE ? host_of(w, 0)
              : to_worker  ? client
                           : server,
        .class = notice ? MESH_CONTROL : MESH_BULK,
        .bytes = bytes,
        .kind = kind,
        .worker = (uint32_t)worker,
        .shard = (uint32_t)shard,
        .number = number,
    };
}

void server_model_send(struct world_model *w, enum message_kind kind, size_t shard, size_t worker,
                       uint64_t number, double bytes)
{
    const struct mesh_message m = message_of(w, kind, shard, worker, number, bytes);
    mesh_send(w->mesh, &m);
}

void server_model_open(const struct world_model *w, struct stream *s, double bytes, size_t floats)
{
    size_t chunk = w->config->chunk, pieces = (floats + chunk - 1) / chunk;
    *s = (struct stream){.bytes = bytes, .pieces = pieces > 0 ? (uint32_t)pieces : 1};
    s->each = s->pieces > 1 ? bytes * (double)chunk / (double)floats : bytes;
}

/* A receiver grants the pieces that it can take in: so many at first, and more as some arrive. */
static void grant_pieces(struct world_model *w, struct stream *s, enum message_kind grant,
                         size_t shard, size_t worker)
{
    uint32_t most = s->arrived + TRANSFER_WINDOW, may = most < s->pieces ? most : s->pieces;
    bool due = s->granted == 0 || may - s->granted >= TRANSFER_WINDOW / 2 || may == s->pieces;
    if (may == s->granted || !due)
        return;
    s->granted = may;
    server_model_send(w, grant, shard, worker, may, GRANT_BYTES);
}

/* At the worker, and at the one that serves the shard. */
static void count_piece(struct world_model *w, size_t shard, size_t worker, bool pushed,
                        double bytes)
{
    uint32_t host = host_of(w, shard);
    struct serving_worker *client = &w->worker[worker];
    if (host == worker + 1)
        return;
    *(pushed ? &client->sent : &client->received) += bytes;
    if (host > 0)
        *(pushed ? &w->worker[host - 1].received : &w->worker[host - 1].sent) += bytes;
}

static void send_pieces(struct world_model *w, struct stream *s, enum message_kind piece,
                        size_t shard, size_t worker, uint64_t may)
{
    for (; s->sent < may; s->sent++) {
        bool last = s->sent + 1 == s->pieces;
        double bytes = last ? s->bytes - s->each * (s->pieces - 1) : s->each;
        server_model_send(w, piece, shard, worker, 0, bytes);
        count_piece(w, shard, worker, piece == PUSH_PIECE, bytes);
    }
}

/* ---- a shard ---- */

static int64_t now_ns(const struct world_model *w)
{
    return (int64_t)llround(w->now * 1e9);
}

static void set_use(struct world_model *w, size_t shard, size_t worker, enum part_use use)
{
    struct shard_model *s = &w->shard[shard];
    struct part *p = part_of(w, shard, worker);
    if (p->use == USE_ARRIVES)
        link_turns_end(&s->in, &p->in, p->push.bytes, now_ns(w));
    if (p->use == USE_COPY)
        link_turns_end(&s->out, &p->out, p->copy.bytes, now_ns(w));
    if (use == USE_ARRIVES)
        link_turns_begin(&s->in, &p->in, p->push.bytes, now_ns(w));
    if (use == USE_COPY)
        link_turns_begin(&s->out, &p->out, p->copy.bytes, now_ns(w));
    p->use = use;
    s->changed = true;
}

static void send_copy(struct world_model *w, size_t shard, size_t worker)
{
    const struct shard_model *s = &w->shard[shard];
    struct part *p = part_of(w, shard, worker);
    bool whole = w->worker[worker].whole;
    double bytes = whole ? server_state_bytes(w->config, s->x, s->s, w->workers)
                         : server_vector_bytes(w->config, s->x, s->s);
    size_t floats = whole ? (size_t)(bytes / sizeof(float)) : s->x + s->s;
    server_model_open(w, &p->copy, bytes, floats);
    set_use(w, shard, worker, USE_COPY);
    server_model_send(w, COPY_HEADER, shard, worker, 0, SERVER_NOTICE_BYTES);
}

/* The clock orders states for a worker. */
static void order_states(struct world_model *w, size_t worker)
{
    w->shard[0].version++;
    for (size_t i = 1; i < w->shards; i++)
        server_model_send(w, SHOW, i, worker, 0, ORDER_BYTES);
    send_copy(w, 0, worker);
}

static bool is_due(const struct world_model *w, size_t shard, size_t worker, enum part_use use)
{
    const struct part *p = part_of(w, shard, worker);
    const struct serving_worker *client = &w->worker[worker];
    if (p->use != USE_NONE || p->next)
        return p->use == USE_NONE && use == USE_ARRIVES;
    return use == USE_COPY && p->requested && p->done >= client->pushes &&
           w->shard[shard].version >= client->wanted;
}

static void serve_vector(struct world_model *w, size_t shard, size_t worker, enum part_use use)
{
    struct part *p = part_of(w, shard, worker);
    if (use == USE_ARRIVES) {
        p->next = false;
        set_use(w, shard, worker, USE_ARRIVES);
        grant_pieces(w, &p->push, PUSH_GRANT, shard, worker);
        return;
    }
    p->requested = false;
    if (w->worker[worker].whole)
        order_states(w, worker);
    else
        send_copy(w, shard, worker);
}

/* Of those that are due, the worker that has waited longest. */
static size_t next_in_turn(const struct world_model *w, size_t shard, enum part_use use)
{
    size_t first = w->workers;
    for (size_t i = 0; i < w->workers; i++) {
        const struct part *p = part_of(w, shard, i);
        if (is_due(w, shard, i, use) &&
            (first == w->workers || p->since < part_of(w, shard, first)->since))
            first = i;
    }
    return first;
}

/* As ps_serve_workers. With one server, vectors pass one after another. */
static void serve_in_turn(struct world_model *w, size_t shard, enum part_use use)
{
    struct shard_model *s = &w->shard[shard];
    const struct link_turns *turns = use == USE_ARRIVES ? &s->in : &s->out;
    size_t i;
    while ((i = next_in_turn(w, shard, use)) < w->workers) {
        const struct part *p = part_of(w, shard, i);
        if (w->shards == 1 &&
            !link_turns_free(turns, use == USE_ARRIVES ? &p->in : &p->out, now_ns(w))) {
            s->turn = min_double(s->turn, 1e-9 * (double)turns->free_at);
            return;
        }
        serve_vector(w, shard, i, use);
    }
}

void server_model_serve(struct world_model *w)
{
    for (size_t i = 0; i < w->shards; i++) {
        struct shard_model *s = &w->shard[i];
        if (!s->changed && w->now < s->turn)
            continue;
        s->changed = false;
        s->turn = INFINITY;
        serve_in_turn(w, i, USE_ARRIVES);
        serve_in_turn(w, i, USE_COPY);
    }
}

static void carry_out(struct world_model *w, size_t shard, const struct members *workers)
{
    w->shard[shard].version++;
    w->shard[shard].changed = true;
    MEMBERS_EACH (i, workers) {
        set_use(w, shard, i, USE_NONE);
        part_of(w, shard, i)->done++;
    }
}

/* ---- the clock ---- */

static void count_have(struct world_model *w, size_t worker)
{
    if (++w->worker[worker].have < w->shards)
        return;
    w->worker[worker].have = 0;
    members_add(&w->ready, (uint32_t)worker);
}

static void ask_gate(const struct world_model *w, size_t worker, struct members *ok)
{
    if (w->config->gate)
        w->config->gate(w->config->gate_user, (uint32_t)worker, (int64_t)(w->now * 1e9), ok);
    else
        members_add(ok, (uint32_t)worker);
}

static void order_pushes(struct world_model *w, const struct members *workers)
{
    for (size_t i = 1; i < w->shards; i++) {
        struct mesh_message m = message_of(w, APPLY, i, 0, 0, ORDER_BYTES);
        m.members = *workers;
        mesh_send(w->mesh, &m);
    }
    carry_out(w, 0, workers);
}

void server_model_decide(struct world_model *w)
{
    struct members ok = {0};
    MEMBERS_EACH (i, &w->ready) {
        struct members now = {0};
        ask_gate(w, i, &now);
        ok = members_union(&ok, &now);
    }
    w->held = members_union(&w->held, &w->ready);
    w->ready = (struct members){0};
    if (members_empty(&w->held) || (w->config->in_rounds && members_empty(&ok)))
        return;
    order_pushes(w, &w->held);
    w->held = (struct members){0};
    MEMBERS_EACH (i, &ok)
        server_model_send(w, MAY_GO, 0, i, w->shard[0].version, SERVER_NOTICE_BYTES);
}

/* ---- arrivals ---- */

static void on_push_piece(struct world_model *w, size_t shard, size_t worker)
{
    struct part *p = part_of(w, shard, worker);
    if (++p->push.arrived < p->push.pieces) {
        grant_pieces(w, &p->push, PUSH_GRANT, shard, worker);
        return;
    }
    set_use(w, shard, worker, USE_WAITS);
    if (shard == 0)
        count_have(w, worker);
    else
        server_model_send(w, HAVE, shard, worker, 0, SERVER_NOTICE_BYTES);
}

static void on_copy_piece(struct world_model *w, size_t shard, size_t worker)
{
    struct part *p = part_of(w, shard, worker);
    if (++p->copy.arrived < p->copy.pieces) {
        grant_pieces(w, &p->copy, COPY_GRANT, shard, worker);
        return;
    }
    w->worker[worker].held++;
    set_use(w, shard, worker, USE_NONE);
}

void server_model_receive(struct world_model *w, const struct mesh_message *m)
{
    struct part *p = part_of(w, m->shard, m->worker);
    switch ((enum message_kind)m->kind) {
    case PUSH_HEADER:
        p->next = true;
        w->shard[m->shard].changed = true;
        p->since = w->shard[m->shard].requests++;
        return;
    case PUSH_GRANT: send_pieces(w, &p->push, PUSH_PIECE, m->shard, m->worker, m->number); return;
    case PUSH_PIECE: on_push_piece(w, m->shard, m->worker); return;
    case COPY_HEADER: grant_pieces(w, &p->copy, COPY_GRANT, m->shard, m->worker); return;
    case COPY_GRANT: send_pieces(w, &p->copy, COPY_PIECE, m->shard, m->worker, m->number); return;
    case COPY_PIECE: on_copy_piece(w, m->shard, m->worker); return;
    case HAVE: count_have(w, m->worker); return;
    case APPLY: carry_out(w, m->shard, &m->members); return;
    case SHOW:
        w->shard[m->shard].version++;
        send_copy(w, m->shard, m->worker);
        return;
    case MAY_GO:
        w->worker[m->worker].undecided = false;
        w->worker[m->worker].wanted = m->number;
        return;
    case FETCH:
        p->requested = true;
        w->shard[m->shard].changed = true;
        if (!p->next)
            p->since = w->shard[m->shard].requests++;
        return;
    }
}
