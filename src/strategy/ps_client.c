/* A worker's calls to the parameter servers, each of which waits by turns (ps_client_turn.c). */
#include "strategy/ps_client.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "world/trace.h"

#include <string.h>

/* ---- setting up ---- */

/* Until a worker has fetched one, its state is that of order 0, with which it began: the initial
 * model and optimizer. A joiner began later. */
static int begin_state(struct ps_client *c)
{
    const struct member *m = c->m;
    const struct learner *l = m->learner;
    struct ps_state *state = &c->state;
    bool resumed = c->config.shard.rule == SHARD_GRADIENTS;
    int rc = vec_init_model(&state->both, &state->x, &state->s, m->arena, l->x.n, l->s.n);
    for (size_t i = 0; rc == OK && i < c->vectors; i++) {
        rc = vec_init(&state->vector[i], m->arena, l->x.n);
        if (rc == OK && resumed)
            vec_copy(&state->vector[i], &l->optim.state[i], vec_all(&state->vector[i]));
    }
    if (rc != OK)
        return rc;
    vec_copy(&state->both, &l->both, vec_all(&state->both));
    state->header = (struct ps_message){.number = resumed ? l->optim.updates : 0,
                                        .samples = m->start.sample_offset,
                                        .t = (double)m->start.steps};
    state->here = !m->join_state;
    /* Its x̃ and optimizer belong together: some pushes older than `global`. */
    c->m->model = (struct global_model){.x = &state->x,
                                        .s = &state->s,
                                        .state = state->vector,
                                        .states = c->vectors,
                                        .updates = state->header.number};
    return OK;
}

static int init_links(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    size_t shards = c->port.placement.shards;
    int rc = OK;
    c->link = arena_array(c->m->arena, shards, struct ps_link);
    for (size_t i = 0; c->link && rc == OK && i < shards; i++) {
        struct ps_link *link = &c->link[i];
        link->range = range_shard(l->both.n, shards, i);
        link->layout = shard_layout_of(&link->range, l->x.n, c->vectors);
        rc = vec_init(&link->landing, c->m->arena,
                      shard_state_length(&link->layout, VIEW_MEMBERS_MAX));
    }
    return c->link ? rc : ERR_NOMEM;
}

/* c->out becomes the memory of push `number`, which no state may need any more. */
static int take_push_memory(struct ps_client *c, uint64_t number)
{
    struct vec *vec = &c->push[number % c->kept].vec;
    int rc = vec->at ? OK : vec_init(vec, c->m->arena, c->m->learner->both.n);
    c->out = *vec;
    return rc;
}

static int take_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    bool lossy = c->config.codec != CODEC_F32, feedback = lossy && !c->config.keeps_lost;
    c->vectors = shard_states(&c->config.shard, &l->optim);
    c->states_apart = c->vectors > 0 || lossy;
    c->kept =
        c->states_apart ? PS_PUSHES_KEPT : min_size(c->config.pushes_a_fetch + 1, PS_PUSHES_KEPT);
    if (begin_state(c) != OK || init_links(c) != OK || take_push_memory(c, 1) != OK)
        return ERR_NOMEM;
    c->global = c->state.both;
    if (c->states_apart && vec_init(&c->global, c->m->arena, l->both.n) != OK)
        return ERR_NOMEM;
    vec_copy(&c->global, &l->both, vec_all(&c->global));
    c->m->owes = feedback && c->port.placement.on_workers;
    return vec_init(&c->residual, c->m->arena, feedback ? l->x.n : 0);
}

static int start_push_sender(struct ps_client *c)
{
    size_t shards = c->port.placement.shards;
    struct async_part *part = arena_array(c->m->arena, shards, struct async_part);
    if (!part)
        return ERR_NOMEM;
    return async_sender_start(&c->push_sender, c->m, part, shards, PS_LANE_PUSH, SIGNAL_PUSH,
                              SIGNAL_PUSHED);
}

int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_config *config)
{
    struct ps_placement placement;
    *c = (struct ps_client){.m = m, .config = *config, .successor = WORLD_ANY};
    m->own = c;
    int rc =
        ps_placement_init(&placement, m->group, config->servers, config->colocated, m->join_state);
    if (rc != OK)
        return rc;
    ps_server_configure(&c->config, &placement, &m->start, m->learner->epoch_records);
    ps_port_init(&c->port, m->group, PS_LANE_WORKER, &placement, strategy_chunk(m->job));
    c->port.epoch = placement.now->number - 1; /* in its first view it may be asked for its state */
    rc = take_memory(c);
    if (rc == OK)
        rc = start_push_sender(c);
    for (size_t i = 0; rc == OK && i < placement.shards; i++)
        if (ps_placement_host(&placement, i) == m->world->self)
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
    for (size_t i = 0; c->link && i < c->port.placement.shards; i++) {
        world_end_task(m->world, &c->link[i].serving);
        if (c->link[i].server)
            ps_server_release(c->link[i].server);
    }
    if (c->port.transfers.world)
        transfers_close(&c->port.transfers);
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

/* A worker that waits for others computes nothing, and is not expected to. A server may serve many
 * others first, for as long as their vectors take; its silence, or the driver's, ends the wait. */
static int wait_while(struct ps_client *c, bool (*holds)(const struct ps_client *),
                      int64_t patience)
{
    int rc = OK;
    bool busy = atomic_exchange(&c->m->group->work.busy, false);
    while (rc == OK && holds(c)) {
        /* The learner's x stays as it is meanwhile. */
        if (c->config.admits_in_waits && !c->ended)
            rc = c->m->on_step_boundary(c->m);
        if (rc == OK)
            rc = ps_take_turn(c, holds, patience);
    }
    atomic_store(&c->m->group->work.busy, busy);
    return rc;
}

/* ---- pushing ---- */

void ps_client_round(struct ps_client *c)
{
    for (size_t i = 0; i < c->port.placement.shards && c->config.codec != CODEC_F32; i++)
        codec_round(c->config.codec, c->out.at + c->link[i].range.from, c->link[i].layout.x);
}

/* As the transfer of the shard will send it: rounded, or with all that this worker owes. */
static void round_part(struct ps_client *c, const struct ps_link *link)
{
    struct vec out = {c->out.at + link->range.from, link->layout.x};
    struct vec owed = {c->residual.at + link->range.from, link->layout.x};
    if (!c->push[c->pushed % c->kept].flushes) {
        codec_round_feedback(c->config.codec, out.at, owed.at, out.n);
        return;
    }
    vec_axpy(&out, 1.0f, &owed, vec_all(&owed));
    vec_fill(&owed, vec_all(&owed), 0.0f);
}

/* The parts before shard `end` become what the servers will have. */
static void round_parts(struct ps_client *c, size_t end)
{
    for (size_t i = 0; c->residual.n > 0 && i < end; i++)
        round_part(c, &c->link[i]);
}

uint64_t ps_client_push_bytes(const struct ps_client *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->port.placement.shards; i++)
        bytes += ps_link_bytes(&c->link[i], ps_push_codec(c, &c->push[c->pushed % c->kept]));
    return bytes;
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
    int rc = wait_while(c, is_pushing, WORLD_FOREVER);
    return rc == OK ? atomic_load(&c->push_sender.status) : rc;
}

static void show_push(struct ps_client *c)
{
    const struct group_observer *observer = c->m->group->observer;
    if (observer && observer->contributes)
        observer->contributes(observer->user, c->m->world->self, &c->out);
}

/* The next push begins to be one. */
static void number_push(struct ps_client *c, uint64_t samples, bool lost)
{
    c->sending = ++c->pushed;
    struct ps_push *push = &c->push[c->pushed % c->kept];
    struct group *group = c->m->group;
    bool last = c->leaves || group_is_leaving(group) || atomic_load(&group->stop);
    bool may = c->residual.n > 0 && c->m->job->reject != PACELINE__JOB__REJECT__outliers;
    push->lost = lost;
    push->samples = samples;
    push->flushes = may && !lost && (last || c->ok.flags & PS_FLUSH);
}

/* c->out from `from` on becomes the gradient, and behind it s, as far as it was not yet. */
static void fill_push(struct ps_client *c, size_t from)
{
    const struct learner *l = c->m->learner;
    size_t n = l->dx.n, end = min_size(c->filled, n);
    if (c->filled > n)
        vec_export(&l->s, vec_all(&l->s), c->out.at + n);
    if (from < end)
        vec_export(&l->dx, (struct range){from, end - from}, c->out.at + from);
    c->filled = from;
}

void ps_client_push_from(struct ps_client *c, uint64_t samples, size_t from)
{
    size_t shard = c->port.placement.shards;
    size_t had = c->early ? atomic_load(&c->push_sender.from) : shard;
    while (shard > 1 && c->link[shard - 1].range.from >= from)
        shard--;
    if (shard >= had || (!c->early && !ps_may_open(c)))
        return;
    if (!c->early) {
        number_push(c, samples, false);
        ps_observe_client(c);
        ps_open_push(c);
        c->filled = c->out.n;
        c->early = true;
    }
    fill_push(c, c->link[shard].range.from);
    for (size_t i = shard; c->residual.n > 0 && i < had; i++)
        round_part(c, &c->link[i]);
    async_sender_send_from(&c->push_sender, shard);
}

/* The parts of a lost push that were sent have delivered nothing: what they were beyond the
 * gradient is owed again. */
static void take_parts_back(struct ps_client *c)
{
    for (size_t i = atomic_load(&c->push_sender.from);
         c->residual.n > 0 && i < c->port.placement.shards; i++) {
        struct range r = {c->link[i].range.from, c->link[i].layout.x};
        vec_axpy(&c->residual, 1.0f, &c->out, r);
        vec_axpy(&c->residual, -1.0f, &c->m->learner->dx, r);
        if (!vec_finite(&c->residual, r))
            vec_fill(&c->residual, r, 0.0f);
    }
}

/* The rest of an open push. */
static int close_push(struct ps_client *c, bool lost)
{
    c->early = false;
    if (lost) {
        take_parts_back(c);
        ps_lose_push(c);
    } else {
        fill_push(c, 0);
        round_parts(c, atomic_load(&c->push_sender.from));
        show_push(c);
    }
    async_sender_send_from(&c->push_sender, 0);
    return take_push_memory(c, c->pushed + 1);
}

int ps_client_push(struct ps_client *c, uint64_t samples, bool lost)
{
    if (c->early)
        return close_push(c, lost);
    int rc = ps_client_flush(c);
    if (rc == OK && ps_is_full(c))
        rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    if (ps_is_full(c))
        return ERR_PROTOCOL; /* the servers have sent a state without them */
    number_push(c, samples, lost);
    if (!lost)
        show_push(c);
    if (!lost)
        round_parts(c, c->port.placement.shards);
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
    return rc == OK ? wait_while(c, is_lacking, WORLD_FOREVER) : rc;
}

/* The model was copied since then. */
static int charge_copy(const struct ps_client *c, int64_t begun)
{
    struct world *world = c->m->world;
    size_t bytes = c->m->learner->x.n * sizeof(float);
    int rc = world_copied(world, bytes);
    trace_copied(world, begun, TRACE_STEPS, c->m->progress.exchanges + 1, bytes);
    return rc;
}

int ps_client_take(struct ps_client *c)
{
    struct learner *l = c->m->learner;
    const struct vec s = vec_part(&c->global, l->x.n, l->s.n);
    int64_t begun = trace_now(c->m->world);
    vec_copy(&l->x, &c->global, vec_all(&l->x));
    if (!vec_finite(&l->s, vec_all(&l->s)))
        vec_copy(&l->s, &s, vec_all(&s));
    return charge_copy(c, begun);
}

/* ---- joining and leaving ---- */

int ps_client_join(struct ps_client *c)
{
    struct learner *l = c->m->learner;
    int rc = ps_client_fetch(c);
    if (rc != OK)
        return rc;
    int64_t begun = trace_now(c->m->world);
    vec_copy(&l->both, &c->global, vec_all(&l->both));
    return charge_copy(c, begun);
}

static bool is_reporting(const struct ps_client *c)
{
    return c->leaving.status == POST_PENDING;
}

static bool is_unkept(const struct ps_client *c)
{
    return c->successor != WORLD_ANY;
}

/* A shard that moves goes back to the newest state that a worker has: it must contain all that this
 * worker has pushed, whether a server leaves now or later. */
static int hand_over(struct ps_client *c)
{
    if (!c->port.placement.on_workers || !group_is_leaving(c->m->group))
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
    c->ended = true;
    if (rc == OK) {
        ps_report_leave(c);
        rc = wait_while(c, is_reporting, c->m->group->timing.piece);
    }
    if (rc == OK)
        rc = hand_over(c);
    return rc == OK ? world_spawn(c->m->world, "worker", serve_offers, c, &c->lingering) : rc;
}

size_t ps_client_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS])
{
    const struct ps_client *c = m->own;
    memcpy(word, c->port.placement.first.word, sizeof c->port.placement.first.word);
    return MEMBER_WORDS;
}

int ps_client_gather(struct member *m)
{
    struct ps_client *c = m->own;
    world_end_task(m->world, &c->lingering);
    /* A state under way may have been requested before the loop ended: it need not be final. */
    int rc = wait_while(c, is_lacking, WORLD_FOREVER);
    return rc == OK ? ps_client_fetch(c) : rc;
}

bool ps_client_last_model(struct member *m, uint64_t *version)
{
    struct ps_client *c = m->own;
    if (c)
        world_end_task(m->world, &c->lingering); /* a state arrives no more */
    *version = c ? c->state.version : 0;
    return c && c->state.here;
}
