/* Workers take the actions of their scripts (server_script.h) and meet the servers
 * (server_model.h), until enough rounds of each count. */
#include "plan/server_round.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/fair_links.h"
#include "plan/jitter.h"
#include "plan/server_model.h"
#include "tensor/vec.h"

#include <math.h>

/* Rounds that count: four states of `ps` at least, which has one in seven rounds. */
enum { COUNTED_LEAST = 28, COUNTED_MOST = 120, COUNTED_OF_ALL = 896 };

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
        server_model_open(w, &part_of(w, shard, worker)->push,
                          server_vector_bytes(w->config, s->x, s->s), s->x + s->s);
        server_model_send(w, PUSH_HEADER, shard, worker, 0, SERVER_NOTICE_BYTES);
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
        server_model_send(w, FETCH, i, worker, 0, SERVER_NOTICE_BYTES);
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
            server_model_receive(w, &m);
        server_model_decide(w);
        server_model_serve(w);
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
