/* The protocol is that of strategy/ps_server.h. A worker sends a part of each push to each shard:
 * header, grant, pieces. A shard that has it reports to the clock, on shard 0. The clock orders all
 * shards to apply pushes that all have, and tells workers that may continue. These request copies,
 * of the clock alone if they are to be states, which it orders likewise. */
#include "plan/server_round.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/fair_links.h"
#include "coll/link_turns.h"
#include "coll/transfer.h"
#include "plan/jitter.h"
#include "plan/mesh.h"
#include "plan/server_script.h"
#include "tensor/vec.h"

#include <math.h>

enum { NOTICE_BYTES = 72, ORDER_BYTES = 80, GRANT_BYTES = 4 };

/* Rounds that count: four states of `ps` at least, which has one in seven rounds. */
enum { COUNTED_LEAST = 28, COUNTED_MOST = 120, COUNTED_OF_ALL = 896 };

enum message_kind {
    PUSH_HEADER,
    PUSH_GRANT,
    PUSH_PIECE,
    COPY_HEADER,
    COPY_GRANT,
    COPY_PIECE,
    HAVE,
    APPLY,
    SHOW,
    MAY_GO, /* `number`: the order */
    FETCH,
};

/* A transfer between a worker and a shard. */
struct stream {
    double bytes, each; /* of all; of a piece but the last */
    uint32_t pieces, sent, arrived, granted;
};

enum part_use { USE_NONE, USE_ARRIVES, USE_WAITS, USE_COPY };

/* A worker as a shard sees it. */
struct part {
    enum part_use use;
    bool next;      /* the header of a push waits */
    bool requested; /* and so does a request; */
    uint64_t since; /* its place in their order */
    uint64_t done;  /* pushes that are applied */
    struct stream push, copy;
    struct link_peer in, out;
};

struct shard_model {
    size_t x, s;      /* floats */
    double leaves;    /* share of a step after which its push may */
    uint64_t version; /* orders that are carried out */
    struct link_turns in, out;
    uint64_t requests; /* headers and requests so far */
    double turn;       /* the time at which the next turn comes */
};

struct serving_worker {
    size_t action;
    bool acts;           /* it is in that action, which needs time */
    double began, until; /* COMPUTE */
    size_t open;         /* shards whose part of the push has not left */
    bool begun;          /* that push */
    bool undecided;      /* the last one */
    uint64_t pushes, copies, steps, rounds;
    uint64_t uncontained; /* pushes since the last whole state */
    bool whole;           /* the copy that it requests */
    bool has_state;       /* one of this round was */
    uint64_t wanted;      /* the oldest order that it may be of */
    size_t held;          /* parts of it that have arrived */
    size_t have;          /* shards that have its push */
    struct pace_count pace;
    double sent, received; /* bytes */
};

struct world_model {
    const struct round_config *config;
    const struct round_cluster *cluster;
    size_t workers, shards;
    struct script script;
    struct serving_worker *worker;
    struct shard_model *shard;
    struct part *part; /* of each shard, of each worker */
    struct mesh *mesh;
    struct members ready; /* workers whose pushes wait for the clock */
    struct members held;  /* in rounds: those that wait for others */
    double now;
};

static struct part *part_of(const struct world_model *w, size_t shard, size_t worker)
{
    return &w->part[shard * w->workers + worker];
}

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

static void send_message(struct world_model *w, enum message_kind kind, size_t shard, size_t worker,
                         uint64_t number, double bytes)
{
    const struct mesh_message m = message_of(w, kind, shard, worker, number, bytes);
    mesh_send(w->mesh, &m);
}

static void open_stream(const struct world_model *w, struct stream *s, double bytes, size_t floats)
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
    send_message(w, grant, shard, worker, may, GRANT_BYTES);
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
        send_message(w, piece, shard, worker, 0, bytes);
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
}

static void send_copy(struct world_model *w, size_t shard, size_t worker)
{
    const struct shard_model *s = &w->shard[shard];
    struct part *p = part_of(w, shard, worker);
    bool whole = w->worker[worker].whole;
    double bytes = whole ? server_state_bytes(w->config, s->x, s->s, w->workers)
                         : server_vector_bytes(w->config, s->x, s->s);
    size_t floats = whole ? (size_t)(bytes / sizeof(float)) : s->x + s->s;
    open_stream(w, &p->copy, bytes, floats);
    set_use(w, shard, worker, USE_COPY);
    send_message(w, COPY_HEADER, shard, worker, 0, NOTICE_BYTES);
}

/* The clock orders states for a worker. */
static void order_states(struct world_model *w, size_t worker)
{
    w->shard[0].version++;
    for (size_t i = 1; i < w->shards; i++)
        send_message(w, SHOW, i, worker, 0, ORDER_BYTES);
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

static void serve(struct world_model *w, size_t shard, size_t worker, enum part_use use)
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
        serve(w, shard, i, use);
    }
}

static void serve_workers(struct world_model *w)
{
    for (size_t i = 0; i < w->shards; i++) {
        w->shard[i].turn = INFINITY;
        serve_in_turn(w, i, USE_ARRIVES);
        serve_in_turn(w, i, USE_COPY);
    }
}

static void carry_out(struct world_model *w, size_t shard, const struct members *workers)
{
    w->shard[shard].version++;
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

/* All pushes that have arrived by now are decided together. In rounds they wait for each other. */
static void decide_pushes(struct world_model *w)
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
        send_message(w, MAY_GO, 0, i, w->shard[0].version, NOTICE_BYTES);
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
        send_message(w, HAVE, shard, worker, 0, NOTICE_BYTES);
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

static void on_message(struct world_model *w, const struct mesh_message *m)
{
    struct part *p = part_of(w, m->shard, m->worker);
    switch ((enum message_kind)m->kind) {
    case PUSH_HEADER:
        p->next = true;
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
        p->since = w->shard[m->shard].requests++;
        return;
    }
}

/* ---- a worker ---- */

/* Parts of the push from `from` on leave. */
static void push_parts(struct world_model *w, size_t worker, size_t from)
{
    struct serving_worker *me = &w->worker[worker];
    if (!me->begun) {
        me->begun = me->undecided = true;
        me->pushes++;
        me->uncontained++;
    }
    for (; me->open > from; me->open--) {
        size_t shard = me->open - 1;
        const struct shard_model *s = &w->shard[shard];
        open_stream(w, &part_of(w, shard, worker)->push, server_vector_bytes(w->config, s->x, s->s),
                    s->x + s->s);
        send_message(w, PUSH_HEADER, shard, worker, 0, NOTICE_BYTES);
    }
    if (me->open > 0)
        return;
    me->open = w->shards;
    me->begun = false;
}

/* The time at which the next part may leave, while the worker computes. Shard 0 leaves last. */
static double next_leaving(const struct world_model *w, const struct serving_worker *me)
{
    bool early = w->config->strategy == ROUND_PS && me->open > 1;
    double share = early ? w->shard[me->open - 1].leaves : 1;
    return share < 1 ? me->began + share * (me->until - me->began) : me->until;
}

static void request_copy(struct world_model *w, size_t worker)
{
    struct serving_worker *me = &w->worker[worker];
    me->held = 0;
    me->whole = server_copy_is_whole(w->config, ++me->copies, me->uncontained);
    me->uncontained = me->whole ? 0 : me->uncontained;
    me->has_state |= me->whole;
    for (size_t i = 0; i < (me->whole ? 1 : w->shards); i++)
        send_message(w, FETCH, i, worker, 0, NOTICE_BYTES);
}

static void begin_action(struct world_model *w, size_t worker)
{
    struct serving_worker *me = &w->worker[worker];
    const struct action *a = &w->script.at[me->action];
    me->acts = true;
    if (a->kind == COMPUTE) {
        me->began = w->now;
        me->until = w->now + jitter_steps(w->cluster, worker + 1, me->steps, a->steps);
        me->steps += a->steps;
    } else if (a->kind == PUSH) {
        push_parts(w, worker, 0);
    } else if (a->kind == COPY) {
        request_copy(w, worker);
    }
}

static bool is_over(struct world_model *w, size_t worker)
{
    struct serving_worker *me = &w->worker[worker];
    switch (w->script.at[me->action].kind) {
    case COMPUTE:
        while (next_leaving(w, me) < me->until && w->now >= next_leaving(w, me))
            push_parts(w, worker, me->open - 1);
        return w->now >= me->until;
    case PUSH: return true;
    case COPY: return me->held == w->shards;
    default: return !me->undecided;
    }
}

/* Take actions up to one that needs time. */
static void advance_worker(struct world_model *w, size_t worker, uint64_t filling)
{
    struct serving_worker *me = &w->worker[worker];
    for (;;) {
        if (!me->acts)
            begin_action(w, worker);
        if (!is_over(w, worker))
            return;
        me->acts = false;
        if (++me->action < w->script.count)
            continue;
        me->action = 0;
        const struct pace_mark mark = {++me->rounds, w->now, me->sent, me->received};
        pace_count_round(&me->pace, filling, me->has_state, &mark);
        me->has_state = false;
    }
}

/* ---- time ---- */

static double next_event(struct world_model *w)
{
    double next = mesh_next(w->mesh);
    for (size_t i = 0; i < w->shards; i++)
        next = min_double(next, w->shard[i].turn);
    for (size_t i = 0; i < w->workers; i++) {
        const struct serving_worker *me = &w->worker[i];
        if (w->script.at[me->action].kind == COMPUTE)
            next = min_double(next, next_leaving(w, me));
    }
    return next;
}

static uint64_t least_counted(const struct world_model *w)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < w->workers; i++)
        least = pace_counted(&w->worker[i].pace) < least ? pace_counted(&w->worker[i].pace) : least;
    return least;
}

/* Until enough rounds of the slowest worker count: fewer where there are many workers, whose
 * messages are many. A few unequal workers may need many rounds until they meet in the same way
 * again. Workers that serve each other never do: their rounds vary, and so does the mean of a dozen
 * of them, by a tenth. */
static int run_rounds(struct world_model *w)
{
    uint64_t rounds = COUNTED_OF_ALL / w->workers;
    rounds = rounds < COUNTED_LEAST ? COUNTED_LEAST : rounds > COUNTED_MOST ? COUNTED_MOST : rounds;
    while (least_counted(w) < rounds) {
        struct mesh_message m;
        for (size_t i = 0; i < w->workers; i++)
            advance_worker(w, i, rounds / 2);
        double next = next_event(w);
        if (mesh_failed(w->mesh))
            return ERR_NOMEM;
        PL_ASSERT(isfinite(next));
        mesh_advance(w->mesh, next);
        w->now = next;
        while (mesh_take(w->mesh, &m))
            on_message(w, &m);
        decide_pushes(w);
        serve_workers(w);
    }
    return OK;
}

/* ---- the model ---- */

static int make_world(struct world_model *w, const struct round_model *model, struct arena *arena)
{
    w->worker = arena_array(arena, w->workers, struct serving_worker);
    w->shard = arena_array(arena, w->shards, struct shard_model);
    w->part = arena_array(arena, w->workers * w->shards, struct part);
    w->mesh = mesh_new(&w->cluster->links);
    if (!w->worker || !w->shard || !w->part || !w->mesh)
        return ERR_NOMEM;
    for (size_t i = 0; i < w->shards; i++) {
        struct range r = range_shard(model->x + model->s, w->shards, i);
        size_t end = r.from + r.len, x = r.from < model->x ? model->x - r.from : 0;
        x = end <= model->x ? r.len : x;
        w->shard[i] = (struct shard_model){.x = x,
                                           .s = r.len - x,
                                           .turn = INFINITY,
                                           .leaves = w->config->leaves ? w->config->leaves[i] : 1};
    }
    for (size_t i = 0; i < w->workers; i++)
        w->worker[i].open = w->shards;
    server_script_write(&w->script, w->config);
    return OK;
}

int server_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_node *node)
{
    struct arena arena;
    struct world_model w = {.config = config,
                            .cluster = cluster,
                            .workers = cluster->workers,
                            .shards = config->servers > 0 ? config->servers : 1};
    PL_ASSERT(w.shards <= w.workers && w.workers < FAIR_LINKS_MAX);
    arena_init(&arena);
    int rc = make_world(&w, model, &arena);
    if (rc == OK)
        rc = run_rounds(&w);
    for (size_t i = 0; rc == OK && i < w.workers; i++) {
        const struct serving_worker *me = &w.worker[i];
        const struct pace_mark *first = &me->pace.first, *last = &me->pace.last;
        double rounds = (double)pace_counted(&me->pace);
        node[i + 1].pace = pace_of(&me->pace);
        node[i + 1].sent = (uint64_t)((last->sent - first->sent) / rounds);
        node[i + 1].received = (uint64_t)((last->received - first->received) / rounds);
        if (config->servers > 0)
            continue;
        node[0].received += node[i + 1].sent;
        node[0].sent += node[i + 1].received;
    }
    mesh_free(w.mesh);
    arena_release(&arena);
    return rc;
}
