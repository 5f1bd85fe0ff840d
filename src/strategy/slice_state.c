/* The state of a slice, which a joiner receives from a peer: the member of another replica that
 * has the same slice. No commit rule is needed: in the view that has the joiner all members have
 * the same exchange behind them, and a peer that dies ends the view, in which case the next one
 * begins with another hand-over.
 *
 * A large state takes several turns, one a round, so that the other replicas train on. A joiner
 * takes part in the rounds in between without a share, and applies them: each element of its
 * vectors is as new as the last round, or has not been received yet. */
#include "base/bytes.h"
#include "base/minmax.h"
#include "strategy/slice_group.h"
#include "wire/wire_send.h"

/* How long a turn lasts, which the other replicas wait for: so long, or half of the round before
 * it. The first of a view is shorter, since the round behind it may be one that is repeated. */
#define TURN_LEAST (2 * WORLD_SECOND / 5)
#define TURN_FIRST (WORLD_SECOND / 20)

enum { PORTION_CHUNKS = 2 }; /* of each vector */

/* A joiner asks for the portion at a place, or its turn is over. */
#define TURN_OVER UINT64_MAX

static void encode_state(const struct slice_state *state, struct buf *out)
{
    progress_encode(&state->progress, out);
    buf_put_u64(out, state->models);
    buf_put_u32(out, state->due);
    buf_put_u8(out, state->ended);
    buf_put_u8(out, state->shown);
    model_scores_encode(&state->scores, out);
    buf_put_u64(out, state->updates);
    buf_put_u64(out, state->steps);
    buf_put_u8(out, state->lasts);
}

static int decode_state(const struct buf *bytes, struct slice_state *out)
{
    struct byte_reader in = {bytes->data, bytes->len, false};
    progress_decode(&in, &out->progress);
    out->models = read_u64(&in);
    out->due = read_u32(&in);
    out->ended = read_u8(&in) != 0;
    out->shown = read_u8(&in) != 0;
    model_scores_decode(&in, &out->scores);
    out->updates = read_u64(&in);
    out->steps = read_u64(&in);
    out->lasts = read_u8(&in) != 0;
    return byte_reader_done(&in) ? OK : ERR_PROTOCOL;
}

/* The learner's vectors in their order, the states of streams that were shown, and then the rule's;
 * false: there are no more. */
static bool nth_vector(const struct slice_group *g, size_t i, struct vec *out)
{
    const struct learner *l = g->m->learner;
    size_t states = l->optim.ops->states;
    if (i > states + 1 + (g->own != NULL))
        return false;
    *out = i == 0            ? l->both
           : i <= states     ? l->optim.state[i - 1]
           : i == states + 1 ? g->streams
                             : *g->own;
    return true;
}

/* A portion is a range of all vectors, since the update of an element needs the
 * same elements of the others. */
static struct vec part_at(const struct coll *c, const struct vec *v, uint64_t place)
{
    size_t from = min_size((size_t)place, v->n);
    return vec_part(v, from, min_size(v->n - from, PORTION_CHUNKS * c->chunk_floats));
}

static bool is_behind_all(const struct slice_group *g, uint64_t place)
{
    struct vec v;
    bool behind = true;
    for (size_t i = 0; nth_vector(g, i, &v); i++)
        behind &= place >= v.n;
    return behind;
}

/* ---- a turn ---- */

static int send_header(struct coll *c, size_t to, const struct slice_state *state)
{
    struct buf header = {0};
    encode_state(state, &header);
    int rc = header.failed ? ERR_NOMEM
                           : coll_send(c, to, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                                       header.data, header.len);
    buf_release(&header);
    return rc;
}

/* The peer's header is as long as this member's own would be. */
static int receive_header(struct coll *c, size_t from, struct slice_state *state)
{
    struct buf header = {0};
    encode_state(state, &header);
    int rc = header.failed ? ERR_NOMEM
                           : coll_recv(c, from, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                                       header.data, header.len);
    if (rc == OK)
        rc = decode_state(&header, state);
    buf_release(&header);
    return rc;
}

static int send_number(struct coll *c, size_t to, uint64_t number)
{
    uint8_t bytes[8];
    bytes_put_le64(bytes, number);
    return coll_send(c, to, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE), bytes, sizeof bytes);
}

static int receive_number(struct coll *c, size_t from, uint64_t *number)
{
    uint8_t bytes[8];
    int rc = coll_recv(c, from, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE), bytes, sizeof bytes);
    *number = bytes_le64(bytes);
    return rc;
}

static int send_portion(struct slice_group *g, struct coll *c, size_t to, uint64_t place)
{
    struct vec v;
    int rc = OK;
    for (size_t i = 0; rc == OK && nth_vector(g, i, &v); i++) {
        struct vec part = part_at(c, &v, place);
        rc = coll_send_vector(c, to, WIRE_RESULT, part.at, part.n);
    }
    return rc;
}

static int receive_portion(struct slice_group *g, struct coll *c, size_t from)
{
    struct vec v;
    int rc = OK;
    for (size_t i = 0; rc == OK && nth_vector(g, i, &v); i++) {
        struct vec part = part_at(c, &v, g->received);
        rc = coll_recv_vector(c, from, WIRE_RESULT, part.at, part.n);
    }
    g->received += rc == OK ? PORTION_CHUNKS * c->chunk_floats : 0;
    return rc;
}

/* Give a joiner the portions that it asks for, until its turn is over. */
static int serve_turn(struct slice_group *g, struct coll *c, size_t to)
{
    int rc = send_header(c, to, &g->given);
    while (rc == OK) {
        uint64_t place;
        rc = receive_number(c, to, &place);
        if (rc != OK || place == TURN_OVER)
            return rc;
        if (is_behind_all(g, place)) {
            members_add(&g->complete, g->peers->node[to]);
            return OK;
        }
        rc = send_portion(g, c, to, place);
    }
    return rc;
}

/* Ask for portions until the time is over, or there are no more. */
static int take_portions(struct slice_group *g, struct coll *c, size_t from)
{
    for (bool any = false;; any = true) {
        bool all = is_behind_all(g, g->received);
        bool over = any && !all && world_now(g->m->world) >= g->until;
        int rc = send_number(c, from, over ? TURN_OVER : g->received);
        if (rc != OK || over)
            return rc;
        if (all) {
            members_add(&g->complete, g->m->world->self);
            return OK;
        }
        rc = receive_portion(g, c, from);
        if (rc != OK)
            return rc;
    }
}

static void take_state(struct slice_group *g, const struct slice_state *state)
{
    struct learner *l = g->m->learner;
    l->optim.updates = state->updates;
    l->steps = state->steps;
    g->m->progress = state->progress;
    g->m->scores = state->scores;
}

/* Joiners take the donors in turns. */
static size_t donor_of(const struct slice_group *g, size_t joiner)
{
    size_t turn = joiner % members_count(&g->donors), rank = 0;
    while (!members_has(&g->donors, g->peers->node[rank]) || turn-- > 0)
        rank++;
    return rank;
}

/* A joiner receives the header of its turn. */
static int begin_turn(struct slice_group *g, struct slice_state *state)
{
    size_t joiner = 0;
    for (size_t rank = 0; rank < g->peers->me; rank++)
        joiner += members_has(&g->view->fresh, g->peers->node[rank]);
    int rc = receive_header(&g->turn.c, donor_of(g, joiner), state);
    if (rc == OK)
        take_state(g, state);
    return rc;
}

/* Turns of the joiners that this member knows of: itself, or those to which it gives their state.
 * Have they all of it? */
static int exchange_portions(struct slice_group *g)
{
    struct coll *c = &g->turn.c;
    size_t joiner = 0;
    int rc = OK;
    g->handed = true;
    for (size_t rank = 0; rc == OK && rank < g->peers->count; rank++) {
        uint32_t node = g->peers->node[rank];
        if (!members_has(&g->view->fresh, node))
            continue;
        size_t donor = donor_of(g, joiner++);
        if ((rank != g->peers->me && donor != g->peers->me) || members_has(&g->complete, node))
            continue;
        rc = rank == g->peers->me ? take_portions(g, c, donor) : serve_turn(g, c, rank);
        g->handed &= members_has(&g->complete, node);
    }
    g->handed &= rc == OK;
    g->turn_ended = world_now(g->m->world);
    return rc;
}

static int run_turn(void *user)
{
    struct slice_group *g = user;
    g->turn.status = exchange_portions(g);
    return OK;
}

int slice_group_open_turns(struct slice_group *g)
{
    const struct async_work work = {
        .run = run_turn,
        .user = g,
        .go = SIGNAL_SLICE_TURN,
        .done = SIGNAL_SLICE_MET,
    };
    return async_task_start(&g->turns, g->m, &work);
}

int slice_group_hand_over(struct slice_group *g, struct slice_state *state)
{
    if (g->handed || members_empty(&g->view->fresh))
        return OK;
    if (members_empty(&g->donors))
        return slice_group_await_end(g);
    g->turn = (struct slice_run){.c = slice_group_coll(g, g->peers, PEER_LANE, 0, &g->turn.waits)};
    int64_t begun = world_now(g->m->world), round = begun - g->turn_ended;
    int64_t turn = g->turn_ended == 0       ? TURN_FIRST
                   : round / 2 > TURN_LEAST ? round / 2
                                            : TURN_LEAST;
    atomic_store(&g->m->group->work.busy, false);
    int rc = slice_group_is_fresh(g) ? begin_turn(g, state) : OK;
    atomic_store(&g->m->group->work.busy, true);
    if (rc != OK)
        return rc;
    g->until = state->ended ? WORLD_FOREVER : begun + turn; /* at the donor, as its header says */
    g->given = *state;
    async_task_begin(&g->turns);
    return state->lasts ? OK : slice_group_end_turn(g);
}

bool slice_group_in_turn(const struct slice_group *g)
{
    return async_task_busy(&g->turns);
}

int slice_group_end_turn(struct slice_group *g)
{
    if (!slice_group_in_turn(g))
        return OK;
    int rc = async_task_wait(&g->turns, WORLD_FOREVER);
    if (rc == OK)
        rc = g->turn.status;
    return rc == OK && g->handed && slice_group_is_fresh(g) ? group_joined(g->m->group, g->view)
                                                            : rc;
}

bool slice_group_lacks_state(const struct slice_group *g)
{
    return slice_group_is_fresh(g) && !g->handed;
}

/* ---- the states of streams ---- */

int slice_group_open_streams(struct slice_group *g)
{
    struct member *m = g->m;
    const struct carried_state *c = &m->learner->carried;
    int rc = vec_init(&g->streams, m->arena, carried_state_floats(c->streams, c->row));
    if (rc != OK)
        return rc;
    carried_table_clear(g->streams.at, c->streams, c->row);
    m->model.carried_table = &g->streams;
    return OK;
}

int slice_group_collect_streams(struct slice_group *g, const struct carried_selection *only)
{
    const struct carried_state *c = &g->m->learner->carried;
    float *table = g->streams.at;
    carried_state_export(c, only, table);
    for (size_t i = 0; i < c->streams; i++)
        net_keep_own_carried(g->m->learner->ws->train, table + i * c->row, c->is_own[i]);
    carried_table_begin_sum(table, c->streams, c->row, g->slice.index == 0);
    int rc = slice_group_add_up(g, &g->streams);
    if (rc == OK)
        carried_table_end_sum(table, c->streams, c->row);
    else
        carried_table_clear(table, c->streams, c->row);
    return rc;
}
