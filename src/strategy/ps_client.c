#include "strategy/ps_client_turn.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <string.h>

/* ---- setting up ---- */

/* Until a worker has fetched one, its state is that of order 0, with which it began: the initial
 * model and optimizer. A joiner began later. */
static int begin_state(struct ps_client *c)
{
    const struct member *m = c->m;
    const struct learner *l = m->learner;
    struct ps_state *state = &c->state;
    int rc = vec_init(&state->both, m->arena, l->both.n);
    for (size_t i = 0; rc == OK && i < c->vectors; i++)
        rc = vec_init(&state->vector[i], m->arena, l->x.n);
    if (rc != OK)
        return rc;
    vec_copy(&state->both, &l->both, vec_all(&state->both));
    bool resumed = c->config.shard.rule == SHARD_GRADIENTS;
    for (size_t i = 0; resumed && i < c->vectors; i++)
        vec_copy(&state->vector[i], &l->optim.state[i], vec_all(&state->vector[i]));
    for (size_t i = 0; i < c->config.placement.shards; i++)
        c->link[i].state_from = (struct ps_message){.number = resumed ? l->optim.updates : 0,
                                                    .samples = m->start.sample_offset,
                                                    .t = (double)m->start.steps};
    state->here = !m->join_state;
    c->state_x = vec_part(&state->both, 0, l->x.n);
    c->state_s = vec_part(&state->both, l->x.n, l->s.n);
    return OK;
}

/* Where the optimizer has no vectors, every copy is a state. */
static int take_state_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    struct arena *arena = c->m->arena;
    c->vectors = shard_states(&c->config.shard, &l->optim);
    c->kept =
        c->vectors > 0 ? PS_PUSHES_KEPT : min_size(c->config.pushes_a_fetch + 1, PS_PUSHES_KEPT);
    int rc = begin_state(c);
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++) {
        struct ps_link *link = &c->link[i];
        link->layout = shard_layout_of(&link->range, l->x.n, c->vectors);
        rc = vec_init(&link->landing, arena, shard_state_length(&link->layout, VIEW_MEMBERS_MAX));
    }
    c->global = c->state.both;
    if (rc == OK && c->vectors > 0)
        rc = vec_init(&c->global, arena, l->both.n);
    return rc;
}

/* c->out becomes the memory of push `number`, which no state may need any more. */
static int take_push_memory(struct ps_client *c, uint64_t number)
{
    const struct learner *l = c->m->learner;
    struct vec *vec = &c->push[number % c->kept].vec;
    int rc = vec->at ? OK : vec_init(vec, c->m->arena, l->x.n + l->s.n);
    c->out = *vec;
    return rc;
}

static int take_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    struct arena *arena = c->m->arena;
    size_t n = l->x.n + l->s.n, shards = c->config.placement.shards;
    c->link = arena_array(arena, shards, struct ps_link);
    if (!c->link)
        return ERR_NOMEM;
    for (size_t i = 0; i < shards; i++) {
        c->link[i].range = range_shard(n, shards, i);
        c->link[i].host = ps_placement_host(&c->config.placement, i);
    }
    if (take_state_memory(c) != OK || take_push_memory(c, 1) != OK)
        return ERR_NOMEM;
    c->x = vec_part(&c->global, 0, l->x.n);
    c->s = vec_part(&c->global, l->x.n, l->s.n);
    vec_copy(&c->global, &l->both, vec_all(&c->global));
    return OK;
}

static int start_push_sender(struct ps_client *c)
{
    size_t shards = c->config.placement.shards;
    struct async_part *part = arena_array(c->m->arena, shards, struct async_part);
    if (!part)
        return ERR_NOMEM;
    return async_sender_start(&c->push_sender, c->m, part, shards, PS_LANE_PUSH, SIGNAL_PUSH,
                              SIGNAL_PUSHED);
}

int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_config *config)
{
    *c = (struct ps_client){.m = m, .config = *config};
    ps_server_configure(&c->config, m->job, m->group, &m->start, m->learner->epoch_records,
                        m->join_state);
    c->view = c->config.placement.now->number;
    c->successor = WORLD_ANY;
    ps_sender_init(&c->sender, m->world, m->group, PS_LANE_WORKER);
    c->sender.transfers.chunk = c->config.chunk;
    m->own = c;
    int rc = take_memory(c);
    if (rc == OK)
        rc = start_push_sender(c);
    if (rc != OK)
        return rc;
    /* The state's, whose x̃ and optimizer belong together: some pushes older than `global`. */
    m->model = (struct global_model){.x = &c->state_x,
                                     .s = &c->state_s,
                                     .state = c->state.vector,
                                     .states = c->vectors,
                                     .updates = c->link[0].state_from.number};
    for (size_t i = 0; rc == OK && i < c->config.placement.shards; i++)
        if (c->link[i].host == m->world->self)
            rc = ps_client_serve(c, i, m->join_state != NULL);
    return rc;
}

void ps_client_close(struct member *m)
{
    struct ps_client *c = m->own;
    if (!c)
        return;
    world_end_task(m->world, &c->lingering);
    async_sender_stop(&c->push_sender);
    for (size_t i = 0; c->link && i < c->config.placement.shards; i++) {
        world_end_task(m->world, &c->link[i].serving);
        if (c->link[i].server)
            ps_server_release(c->link[i].server);
    }
    ps_sender_close(&c->sender);
}

/* ---- waiting ---- */

/* Until there is nothing to do for as long as that. */
static int take_turns(struct ps_client *c, int64_t patience)
{
    int rc = OK;
    while (rc == OK)
        rc = ps_take_turn(c, NULL, patience);
    return rc;
}

int ps_client_step(struct ps_client *c)
{
    int rc = take_turns(c, 0);
    return rc == ERR_TIMEOUT ? OK : rc;
}

/* A worker that waits for others computes nothing, and is not expected to. */
static int wait_while(struct ps_client *c, bool (*holds)(const struct ps_client *),
                      int64_t patience)
{
    int rc = OK;
    bool busy = atomic_exchange(&c->m->group->work.busy, false);
    while (rc == OK && holds(c)) {
        /* The learner's x stays as it is meanwhile. */
        if (c->config.admits_in_waits && c->stage != CLIENT_ENDED)
            rc = c->m->on_step_boundary(c->m);
        if (rc == OK)
            rc = ps_take_turn(c, holds, patience);
    }
    atomic_store(&c->m->group->work.busy, busy);
    return rc;
}

/* ---- pushing ---- */

/* Is there no room for another push that no state contains? */
static bool is_full(const struct ps_client *c)
{
    return c->pushed + 1 - c->state.push[c->m->world->self] >= c->kept;
}

static bool is_undecided(const struct ps_client *c)
{
    return c->ok.number < c->pushed;
}

static bool is_pushing(const struct ps_client *c)
{
    return async_sender_busy(&c->push_sender) || is_undecided(c) || !ps_holds_all(c);
}

int ps_client_flush(struct ps_client *c)
{
    int rc = wait_while(c, is_pushing, c->m->group->timing.piece);
    return rc == OK ? atomic_load(&c->push_sender.status) : rc;
}

int ps_client_push(struct ps_client *c, uint64_t samples, bool lost)
{
    int rc = ps_client_flush(c);
    if (rc == OK && is_full(c))
        rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    if (is_full(c))
        return ERR_PROTOCOL; /* the servers have sent a state without them */
    c->sending = ++c->pushed;
    c->push[c->pushed % c->kept].lost = lost;
    c->push[c->pushed % c->kept].samples = samples;
    ps_observe_client(c);
    ps_send_push(c);
    return take_push_memory(c, c->pushed + 1);
}

/* No deadline: heartbeats detect the death of the workers that the consistency waits for. */
int ps_client_await_ok(struct ps_client *c)
{
    int rc = wait_while(c, is_undecided, WORLD_FOREVER);
    return rc == OK && c->ok.flags & PS_LOST ? ERR_DIVERGED : rc;
}

/* ---- fetching ---- */

static bool is_lacking(const struct ps_client *c)
{
    return !ps_holds_all(c);
}

int ps_client_fetch(struct ps_client *c)
{
    /* A state, for a worker that leaves. */
    bool under_way = c->whole && !ps_holds_all(c);
    int rc = under_way ? OK : ps_request_copies(c);
    return rc == OK ? wait_while(c, is_lacking, c->m->group->timing.piece) : rc;
}

int ps_client_take(struct ps_client *c)
{
    struct learner *l = c->m->learner;
    vec_copy(&l->x, &c->x, vec_all(&c->x));
    if (!vec_finite(&l->s, vec_all(&l->s)))
        vec_copy(&l->s, &c->s, vec_all(&c->s));
    return world_copied(c->m->world, c->x.n * sizeof(float));
}

/* ---- joining and leaving ---- */

static const uint8_t next_stages[CLIENT_STAGES] = {
    [CLIENT_TRAINING] = 1 << CLIENT_ENDED,
};

static void enter_stage(struct ps_client *c, enum ps_client_stage stage)
{
    PL_ASSERT(next_stages[c->stage] & 1 << stage);
    c->stage = stage;
}

int ps_client_join(struct ps_client *c)
{
    int rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    vec_copy(&c->m->learner->s, &c->s, vec_all(&c->s));
    return ps_client_take(c);
}

static bool is_reporting(const struct ps_client *c)
{
    return ps_sender_busy(&c->sender);
}

static bool is_unkept(const struct ps_client *c)
{
    return c->successor != WORLD_ANY;
}

/* The shards here move, and go back to the newest state that a worker has: it must contain all that
 * this worker has pushed. */
static int hand_over(struct ps_client *c)
{
    bool serves = false;
    for (size_t i = 0; i < c->config.placement.shards; i++)
        serves |= c->link[i].server != NULL;
    if (!serves || !group_is_leaving(c->m->group))
        return OK;
    int rc = ps_ask_successor(c);
    return rc == OK ? wait_while(c, is_unkept, WORLD_FOREVER) : rc;
}

static int serve_offers(void *arg)
{
    return take_turns(arg, WORLD_FOREVER);
}

int ps_client_leave(struct ps_client *c)
{
    int rc = wait_while(c, is_undecided, WORLD_FOREVER);
    enter_stage(c, CLIENT_ENDED);
    if (rc == OK)
        rc = ps_report_leave(c);
    if (rc == OK)
        rc = wait_while(c, is_reporting, c->m->group->timing.piece);
    if (rc == OK)
        rc = hand_over(c);
    return rc == OK ? world_spawn(c->m->world, "worker", serve_offers, c, &c->lingering) : rc;
}

size_t ps_client_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct ps_client *c = m->own;
    memcpy(word, c->config.placement.first.word, sizeof c->config.placement.first.word);
    return MEMBER_WORDS;
}

int ps_client_gather(struct member *m)
{
    struct ps_client *c = m->own;
    world_end_task(m->world, &c->lingering);
    return ps_client_fetch(c);
}
