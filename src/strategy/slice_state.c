/* The state of a slice, which a joiner receives from a peer: the member of another replica that
 * has the same slice. No commit rule is needed: in the view that has the joiner all members have
 * the same exchange behind them, and a peer that dies ends the view, in which case the next one
 * begins with another hand-over. */
#include "base/fault.h"
#include "base/minmax.h"
#include "strategy/slice_group.h"
#include "wire/wire_send.h"

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

static int send_state(struct coll *c, size_t to, const struct slice_group *g,
                      const struct slice_state *state)
{
    struct buf header = {0};
    struct vec v;
    encode_state(state, &header);
    int rc = header.failed ? ERR_NOMEM
                           : coll_send(c, to, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                                       header.data, header.len);
    buf_release(&header);
    for (size_t i = 0; rc == OK && nth_vector(g, i, &v); i++)
        rc = coll_send_vector(c, to, WIRE_RESULT, v.at, v.n);
    return rc;
}

/* The peer's header is as long as this member's own would be. */
static int receive_state(struct coll *c, size_t from, const struct slice_group *g,
                         struct slice_state *state)
{
    struct buf header = {0};
    struct vec v;
    encode_state(state, &header);
    int rc = header.failed ? ERR_NOMEM
                           : coll_recv(c, from, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                                       header.data, header.len);
    if (rc == OK)
        rc = decode_state(&header, state);
    buf_release(&header);
    for (size_t i = 0; rc == OK && nth_vector(g, i, &v); i++)
        rc = coll_recv_vector(c, from, WIRE_RESULT, v.at, v.n);
    return rc;
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

static int exchange_states(struct slice_group *g, struct coll *c, struct slice_state *state)
{
    size_t joiner = 0;
    int rc = OK;
    for (size_t rank = 0; rc == OK && rank < g->peers->count; rank++) {
        if (!members_has(&g->view->fresh, g->peers->node[rank]))
            continue;
        size_t donor = donor_of(g, joiner++);
        if (rank == g->peers->me)
            rc = receive_state(c, donor, g, state);
        else if (donor == g->peers->me)
            rc = send_state(c, rank, g, state);
    }
    return rc;
}

int slice_group_hand_over(struct slice_group *g, struct slice_state *state)
{
    struct coll_waits waits = {0};
    if (g->handed || members_empty(&g->view->fresh))
        return OK;
    if (members_empty(&g->donors))
        return slice_group_await_end(g);
    struct coll c = slice_group_coll(g, g->peers, PEER_LANE, 0, &waits);
    size_t longest = max_size(g->m->learner->both.n, g->streams.n);
    while (longest / c.chunk_floats + 1 >= WIRE_HEADER_PIECE)
        c.chunk_floats *= 2; /* pieces have numbers of sixteen bits */
    atomic_store(&g->m->group->work.busy, false);
    int rc = exchange_states(g, &c, state);
    atomic_store(&g->m->group->work.busy, true);
    if (rc == OK && slice_group_is_fresh(g)) {
        take_state(g, state);
        rc = group_joined(g->m->group, g->view);
    }
    g->handed = rc == OK;
    return rc;
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
