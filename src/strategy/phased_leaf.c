/* Leaves of `mpca` and `pace`. A leaf takes no part in the exchanges of the others, which therefore
 * do not wait for its network. Its lanes take turns to exchange with its proxy, each at the pace of
 * the link:
 *
 *     leaf                                   proxy, a member
 *       τ_s, x_s  ──────────────────────►      adds τ_s·x_s to its own contribution (Eq. 9);
 *                                              `pace`: x_s less the leaf's x̃*_s, as progress
 *       x̃*_s of that exchange  ◄─────────      when the exchange is complete
 *
 * So no tick waits for a leaf: its weight counts in the first tick that begins when its
 * contribution is there. When a round of all lanes is fast enough, the leaf reports that it keeps
 * pace (group/roster_leaf.c). */
#include "base/fault.h"
#include "strategy/phased.h"

#include <math.h>
#include <string.h>

/* A participant sends and receives the model twice a cycle. A leaf keeps pace if it could do so in
 * three: a link is slow below a third of the others' rate. */
#define ROUND_MAX 1.5 /* cycles that the model may take in one direction */

enum { CONTRIBUTION_HEADER = 12 };

static uint32_t proxy_address(const struct phased_node *node)
{
    return node->lanes; /* lanes have their own numbers */
}

/* ---- the leaf ---- */

static bool has_leaf_turn(const struct phased_lane *lane)
{
    return atomic_load(&lane->node->leaf_lane) == lane->exchange.lane &&
           !atomic_load(&lane->node->stopped);
}

static bool has_filled(const struct phased_lane *lane)
{
    return atomic_load(&lane->slot.state) == SLOT_READY;
}

/* The proxy may not have this view yet, or is occupied: try again after two typical steps. */
static int pause_turn(struct phased_lane *lane)
{
    struct phased_node *node = lane->node;
    int64_t pause = 2 * atomic_load(&node->typical_ns), least = WORLD_SECOND / 100;
    int rc = phased_await(lane, NULL, world_now(node->world) + (pause > least ? pause : least));
    return rc == ERR_TIMEOUT ? OK : rc;
}

/* The others have trained since this leaf's last x̃*. Its model would pull their average back, and
 * `pace` would take that for a motion of all and extrapolate it. */
static void leave_progress(struct phased_lane *lane)
{
    struct vec x = vec_part(&lane->slot.x, 0, lane->r.len),
               base = vec_part(exchange_result(&lane->exchange), 0, lane->r.len);
    vec_axpy(&x, -1, &base, vec_all(&x));
    lane->slot.progress = true;
}

static void send_contribution(struct phased_lane *lane, struct transfer *out)
{
    uint8_t header[CONTRIBUTION_HEADER];
    bytes_put_le32(header, lane->exchange.lane);
    bytes_put_le64(header + 4, lane->slot.tau);
    transfer_send(out, &lane->transfers,
                  &(struct transfer_out){
                      .to = view_proxy(group_view(lane->node->group), lane->node->world->self),
                      .lane = proxy_address(lane->node),
                      .x = lane->slot.x.at,
                      .n = lane->slot.x.n,
                      .header = header,
                      .header_len = sizeof header,
                  });
}

/* Send the contribution, and receive the result in its place. ERR_VIEW, ERR_STOP or ERR_PEER: not
 * this time; *sent: the proxy has the contribution, and counts it. */
static int exchange_vectors(struct phased_lane *lane, struct transfer *out, struct transfer *in,
                            bool *sent)
{
    struct transfers *ps = &lane->transfers;
    if (lane->node->settings.leaf_progress)
        leave_progress(lane);
    send_contribution(lane, out);
    int rc = transfer_finish(out, WORLD_FOREVER);
    *sent = rc == OK;
    struct message *header;
    if (rc == OK)
        rc = transfers_await(ps, out->peer, WORLD_FOREVER, &header);
    if (rc != OK)
        return rc;
    int64_t begun = world_now(lane->node->world);
    transfer_accept(in, ps, header,
                    &(struct transfer_in){.x = lane->slot.x.at, .n = lane->slot.x.n});
    rc = transfer_finish(in, WORLD_FOREVER);
    lane->node->leaf_received += world_now(lane->node->world) - begun;
    return rc;
}

/* The round is over with the last lane. Was it as fast as a participant's must be? The cycles of a
 * participant that is alone need no network, and say nothing about it. */
static int end_round(struct phased_lane *lane, int64_t cycle)
{
    struct phased_node *node = lane->node;
    uint32_t next = (lane->exchange.lane + 1) % node->lanes;
    const struct members participants = view_participants(group_view(node->group));
    double limit = members_count(&participants) > 1 ? ROUND_MAX * (double)cycle : INFINITY;
    bool fast = node->leaf_sent >= 0 && (double)node->leaf_sent <= limit &&
                (double)node->leaf_received <= limit;
    if (next == 0)
        node->leaf_sent = node->leaf_received = 0;
    atomic_store(&node->leaf_lane, next);
    world_raise(node->world, SIGNAL_PHASED);
    return next == 0 && fast ? group_keeps_pace(node->group) : OK;
}

/* The lane is behind the exchange now, as if it had completed it. This node does not know ṽ: it
 * begins at 0. */
static int take_result(struct phased_lane *lane, const struct transfer *in)
{
    struct byte_reader bytes = transfer_reader(in);
    const void *header = byte_reader_take(&bytes, sizeof(struct phased_leaf_result));
    struct phased_leaf_result got;
    if (!byte_reader_done(&bytes))
        return ERR_PROTOCOL;
    memcpy(&got, header, sizeof got);
    if (got.exchange < lane->exchange.completed || got.exchange == PHASED_NONE)
        return ERR_PROTOCOL; /* E2: participants are not behind their former members */
    int rc = phased_withhold(lane);
    if (rc != OK)
        return rc;
    exchange_take_result(&lane->exchange, got.exchange, &lane->slot.x, &got.meta,
                         lane->transfers.view);
    phased_spare_held(lane);
    phased_settle(lane, lane->slot.tau, COUNTED);
    struct vec *heading = phased_heading(lane);
    vec_fill(heading, vec_all(heading), 0);
    lane->exchange.config.kept = *heading;
    lane->node->leaf_sent += lane->node->leaf_sent < 0 ? 0 : got.took;
    atomic_store(&lane->report_from, got.exchange);
    atomic_store(&lane->arrived, got.exchange);
    atomic_store(&lane->slot.state, SLOT_EMPTY);
    return end_round(lane, got.cycle);
}

/* transfer_finish and transfers_await end with the view, with the proxy and with this task. */
static int exchange_with_proxy(struct phased_lane *lane)
{
    struct transfer out = {0}, in = {0};
    bool sent = false;
    lane->transfers.view = group_view(lane->node->group)->number;
    if (!group_is_leaf(lane->node->group))
        return ERR_VIEW;
    if (!phased_renew(lane))
        return OK;
    if (!vec_finite(&lane->slot.x, vec_all(&lane->slot.x))) { /* the proxy would not add it */
        phased_settle(lane, lane->slot.tau, MAY_HAVE_COUNTED);
        atomic_store(&lane->slot.state, SLOT_EMPTY);
        return pause_turn(lane);
    }
    int rc = exchange_vectors(lane, &out, &in, &sent);
    transfer_cancel(&out);
    transfer_cancel(&in);
    if (rc == OK)
        return take_result(lane, &in);
    if (rc != ERR_VIEW && rc != ERR_STOP && rc != ERR_PEER)
        return rc;
    phased_settle(lane, lane->slot.tau, sent ? MAY_HAVE_COUNTED : NOT_COUNTED);
    if (sent || rc != ERR_STOP) /* a refusal says nothing about the link */
        lane->node->leaf_sent = -1;
    atomic_store(&lane->slot.state, SLOT_EMPTY);
    return pause_turn(lane);
}

int phased_leaf_turn(struct phased_lane *lane)
{
    int empty = SLOT_EMPTY;
    int rc = phased_await(lane, has_leaf_turn, WORLD_FOREVER);
    if (rc != OK)
        return rc;
    atomic_compare_exchange_strong(&lane->slot.state, &empty, SLOT_REQUESTED);
    rc = phased_await(lane, has_filled, WORLD_FOREVER);
    return rc == OK ? exchange_with_proxy(lane) : rc;
}

/* ---- the proxy: its lanes ---- */

/* One number, so that no lane takes the contribution of another one. */
static uint32_t state_of(enum phased_proxy_state state, uint32_t lane)
{
    return lane * PROXY_STATES + state;
}

static bool is_in(const struct phased_proxy *p, enum phased_proxy_state state)
{
    return atomic_load(&p->state) % PROXY_STATES == state;
}

uint64_t phased_proxy_add(struct phased_lane *lane, uint64_t own)
{
    struct phased_proxy *p = &lane->node->proxy;
    struct vec *input = &lane->exchange.input;
    uint32_t number = lane->exchange.lane, ready = state_of(PROXY_READY, number);
    if (!atomic_compare_exchange_strong(&p->state, &ready, state_of(PROXY_TAKEN, number)))
        return own;
    bool progress = lane->node->settings.leaf_progress;
    uint64_t of_leaf = lane->node->settings.equal ? 1 : p->tau;
    uint64_t tau = !progress ? of_leaf : own > 0 ? own : 1;
    float share = (float)((double)tau / (double)(own + tau));
    struct range moved = {0, progress ? lane->r.len : 0}, whole = {moved.len, input->n - moved.len};
    if (own == 0)
        vec_fill(input, vec_all(input), 0);
    vec_lerp(input, share, exchange_result(&lane->exchange), moved);
    vec_axpy(input, share, &p->x, moved);
    vec_lerp(input, share, &p->x, whole);
    return own + tau;
}

void phased_proxy_close(struct phased_lane *lane, enum phased_count count)
{
    static const enum phased_proxy_state next[] = {
        [NOT_COUNTED] = PROXY_READY, [COUNTED] = PROXY_DONE, [MAY_HAVE_COUNTED] = PROXY_EMPTY};
    struct phased_proxy *p = &lane->node->proxy;
    uint32_t number = lane->exchange.lane;
    if (atomic_load(&p->state) != state_of(PROXY_TAKEN, number))
        return;
    if (count == COUNTED) {
        const struct vec *result = exchange_result(&lane->exchange);
        vec_copy(&p->x, result, vec_all(result));
        p->result.exchange = lane->exchange.completed;
        p->result.meta = *exchange_result_meta(&lane->exchange);
    }
    atomic_store(&p->state, state_of(next[count], number));
    world_raise(lane->node->world, SIGNAL_PHASED);
}

/* ---- the proxy: its task ---- */

static bool serves_leaf(const struct phased_node *node, uint32_t leaf)
{
    const struct view *view = group_view(node->group);
    return members_has(&view->leaves, leaf) && !group_is_leaf(node->group) &&
           view_proxy(view, leaf) == node->world->self;
}

static void on_contribution(struct phased_node *node, struct message *header)
{
    struct phased_proxy *p = &node->proxy;
    struct byte_reader in = transfer_header_reader(header);
    uint32_t lane = read_u32(&in);
    uint64_t tau = read_u64(&in);
    size_t n = transfer_header_floats(header);
    if (!byte_reader_done(&in) || lane >= node->lanes || n != node->lane[lane].exchange.n_floats ||
        tau == 0 || tau > UINT32_MAX || !serves_leaf(node, header->from) || p->in.all ||
        !is_in(p, PROXY_EMPTY)) {
        transfer_refuse(&p->transfers, header);
        return;
    }
    p->lane = lane;
    p->tau = tau;
    p->leaf = header->from;
    p->begun = world_now(node->world);
    p->view = p->transfers.view;
    p->x.n = n;
    transfer_accept(&p->in, &p->transfers, header, &(struct transfer_in){.x = p->x.at, .n = n});
}

/* One that is not finite would spoil this worker's own, too. */
static void on_received(struct phased_node *node)
{
    struct phased_proxy *p = &node->proxy;
    p->result.took = world_now(node->world) - p->begun;
    if (p->in.status == OK && vec_finite(&p->x, vec_all(&p->x)))
        atomic_store(&p->state, state_of(PROXY_READY, p->lane));
}

static void send_result(struct phased_node *node)
{
    struct phased_proxy *p = &node->proxy;
    if (p->view != p->transfers.view || !serves_leaf(node, p->leaf)) {
        atomic_store(&p->state, PROXY_EMPTY);
        return;
    }
    p->result.cycle = atomic_load(&node->tick_ns) * node->lanes;
    transfer_send(&p->out, &p->transfers,
                  &(struct transfer_out){.to = p->leaf,
                                         .lane = p->lane,
                                         .x = p->x.at,
                                         .n = p->x.n,
                                         .header = &p->result,
                                         .header_len = sizeof p->result});
}

/* Follow a new view, and the lanes. A leaf is no proxy: its lanes add nothing any more. */
static void look_around(struct phased_node *node)
{
    struct phased_proxy *p = &node->proxy;
    uint32_t ready = state_of(PROXY_READY, p->lane);
    p->transfers.view = group_view(node->group)->number;
    if (group_is_leaf(node->group))
        atomic_compare_exchange_strong(&p->state, &ready, PROXY_EMPTY);
    if (is_in(p, PROXY_DONE) && !p->out.all)
        send_result(node);
}

static int proxy_main(void *arg)
{
    struct phased_node *node = arg;
    struct phased_proxy *p = &node->proxy;
    int rc = OK;
    while (rc == OK && !atomic_load(&node->group->end.over)) {
        const struct wait_for set[] = {
            wait_signal(node->world, SIGNAL_PHASED),
            wait_signal(node->world, SIGNAL_GROUP),
        };
        struct transfer_wake got;
        look_around(node);
        rc = transfers_next(&p->transfers, set, 2, WORLD_FOREVER, &got);
        if (rc != OK)
            break;
        if (got.header)
            on_contribution(node, got.header);
        if (got.ended == &p->in)
            on_received(node);
        if (got.ended == &p->out)
            atomic_store(&p->state, PROXY_EMPTY);
    }
    transfers_close(&p->transfers);
    atomic_store(&p->status, rc == ERR_CANCELLED ? OK : rc);
    return rc;
}

int phased_proxy_start(struct phased_node *node)
{
    transfers_init(&node->proxy.transfers, node->world, node->group, proxy_address(node));
    return world_spawn(node->world, "leaf proxy", proxy_main, node, &node->proxy.task);
}
