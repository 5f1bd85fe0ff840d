#include "coll/coll_run.h"

#include "base/fault.h"
#include "coll/coll_plan.h"
#include "tensor/vec.h"
#include "world/trace.h"

#include <stdatomic.h>
#include <string.h>

struct runner {
    struct coll *c;
    struct coll_plan *plan;
    float *x;
    struct coll_owed owed;
    struct ended ended;
    uint64_t busy;     /* a bit for each of the plan's ports */
    uint64_t posts;    /* handed to the world, which counts each when it has ended */
    size_t first;      /* step that is not finished */
    size_t waiting;    /* step of which a piece has not begun; at least `first` */
    int64_t idle_from; /* since when nothing could be done */
    struct trace_sends sends;
};

/* A range's floats; NULL for phantoms. */
static float *floats_at(const struct runner *r, size_t at)
{
    const struct coll_plan *plan = r->plan;
    if (plan->config.phantom)
        return NULL;
    return at < plan->schedule.n ? r->x + at : plan->scratch + (at - plan->schedule.n);
}

/* The work on a piece takes virtual time. */
static int take_time(const struct runner *r, double seconds_per_byte, size_t len)
{
    if (seconds_per_byte <= 0)
        return OK;
    const struct cost cost = {seconds_per_byte * (double)len * sizeof(float)};
    return world_work(r->c->group->world, &cost);
}

static void count_moved(struct runner *r, size_t bytes)
{
    r->plan->moved += bytes;
    atomic_fetch_add(&r->c->group->moved, bytes);
}

static void record_sent(struct runner *r, uint32_t peer)
{
    const struct trace_span span = {.row = (uint8_t)r->c->lane, .n = r->c->n};
    trace_sent(r->c->group->world, &r->sends, peer, span);
}

/* ---- beginning a piece ---- */

/* Ports of sends come first. */
_Static_assert(PLAN_SENDS + PLAN_RECVS == 64, "a bit for each port");
#define SEND_PORTS ((UINT64_C(1) << PLAN_SENDS) - 1)

static size_t lowest_bit(uint64_t bits)
{
    return (size_t)__builtin_ctzll(bits);
}

static uint64_t port_bit(const struct coll_plan *plan, const struct port *port)
{
    return UINT64_C(1) << (port - plan->ports);
}

static struct port *free_port(const struct runner *r, enum step_kind kind)
{
    uint64_t free = ~r->busy & (kind == STEP_SEND ? SEND_PORTS : ~SEND_PORTS);
    return free ? &r->plan->ports[lowest_bit(free)] : NULL;
}

static uint64_t tag_of(const struct runner *r, size_t step, size_t piece)
{
    const struct coll_plan *plan = r->plan;
    enum wire_kind kind = plan->schedule.step[step].final ? WIRE_BROADCAST : WIRE_REDUCE;
    return coll_tag(r->c, kind, plan->flow[step].first_piece + piece);
}

static void land_reduced(void *user, void *at, const void *bytes, size_t n)
{
    reduce_range(user, at, bytes, n / sizeof(float));
}

/* y ← the rank's own summand. */
static void put_own(const struct coll_plan *plan, float *y, size_t n)
{
    const struct coll_input *input = &plan->own.input;
    if (input->at)
        vec_host_product(y, input->weight, input->at + (y - plan->own.x), n);
    else
        memset(y, 0, n * sizeof *y);
}

static void land_first(void *user, void *at, const void *bytes, size_t n)
{
    const struct coll_plan *plan = user;
    put_own(plan, at, n / sizeof(float));
    reduce_range(&plan->config.reduction, at, bytes, n / sizeof(float));
}

static bool is_coded(const struct runner *r, const struct port *port)
{
    return port->stage && plan_codec(r->plan, port->step) != CODEC_F32;
}

/* A result that is sent in a lossy code is rounded on the sending rank, too, so that all ranks end
 * with the same bits. */
static void encode_piece(const struct runner *r, const struct step *step, struct port *port,
                         float *x)
{
    enum codec codec = r->plan->config.codec;
    size_t n = port->span.len;
    bool first = step->final && r->plan->flow[port->step].codes_first;
    float *owed = first ? r->owed.results : step->final ? NULL : r->owed.sums;
    if (owed && port->span.at < r->plan->schedule.n)
        codec_encode_feedback(codec, x, owed + port->span.at, n, port->stage);
    else
        codec_encode(codec, x, n, port->stage);
    if (step->final)
        codec_decode(codec, port->stage, n, x);
}

static int begin_send(struct runner *r, size_t step_number, size_t piece, struct port *port)
{
    const struct coll_plan *plan = r->plan;
    const struct step *step = &plan->schedule.step[step_number];
    float *x = floats_at(r, port->span.at);
    const void *from = x;
    int rc = take_time(r, plan->config.serialise, port->span.len);
    if (rc != OK)
        return rc;
    if (plan->own.x && plan->flow[step_number].first) {
        put_own(plan, x, port->span.len);
        rc = world_copied(r->c->group->world, port->span.len * sizeof *x);
        if (rc != OK)
            return rc;
    }
    if (is_coded(r, port) && x) {
        encode_piece(r, step, port, x);
        from = port->stage;
    }
    uint64_t tag = tag_of(r, step_number, piece);
    port->send = (struct send){
        .to = r->c->ranks->node[step->peer],
        .view = r->c->view->number,
        .tag = tag,
        .from = from,
        .len = codec_bytes(plan_codec(plan, step_number), port->span.len),
        .stripe = r->c->stripes > 1 ? (uint32_t)tag % r->c->stripes : 0,
        .ended = &r->ended,
    };
    count_moved(r, port->send.len);
    if (r->c->waits)
        r->c->waits->bytes += port->send.len;
    return world_post_send(r->c->group->world, &port->send);
}

static int begin_recv(struct runner *r, size_t step_number, size_t piece, struct port *port)
{
    struct coll_plan *plan = r->plan;
    const struct step *step = &plan->schedule.step[step_number];
    bool coded = is_coded(r, port), lands_reduced = step->kind == STEP_REDUCE && !coded;
    bool lands_first = lands_reduced && plan->own.x && plan->flow[step_number].first;
    float *x = floats_at(r, port->span.at);
    port->recv = (struct recv){
        .from = r->c->ranks->node[step->peer],
        .view = r->c->view->number,
        .tag = tag_of(r, step_number, piece),
        .into = x && coded ? port->stage : (void *)x,
        .len = codec_bytes(plan_codec(plan, step_number), port->span.len),
        .land = lands_first     ? land_first
                : lands_reduced ? land_reduced
                                : NULL,
        .user = lands_first     ? (void *)plan
                : lands_reduced ? &plan->config.reduction
                                : NULL,
        .ended = &r->ended,
    };
    return world_post_recv(r->c->group->world, &port->recv);
}

static int do_here(struct runner *r, const struct step *step, struct span span, size_t source)
{
    float *y = floats_at(r, span.at), *x = floats_at(r, source);
    if (step->kind == STEP_FOLD && y)
        reduce_range(&r->plan->config.reduction, y, x, span.len);
    else if (y)
        memcpy(y, x, span.len * sizeof *y);
    return step->kind == STEP_FOLD ? take_time(r, r->plan->config.reduce, span.len) : OK;
}

/* ERR_FULL: as many pieces are under way as may be. */
static int begin_piece(struct runner *r, size_t step_number, size_t piece)
{
    struct coll_plan *plan = r->plan;
    const struct step *step = &plan->schedule.step[step_number];
    struct flow *flow = &plan->flow[step_number];
    struct span span = plan_piece(plan, step->at, step->len, piece);
    if (step->kind == STEP_FOLD || step->kind == STEP_COPY) {
        flow->begun++, flow->done++;
        return do_here(r, step, span, plan_piece(plan, step->source, step->len, piece).at);
    }
    struct port *port = free_port(r, step->kind);
    if (!port)
        return ERR_FULL;
    port->step = step_number;
    port->span = span;
    int rc = step->kind == STEP_SEND ? begin_send(r, step_number, piece, port)
                                     : begin_recv(r, step_number, piece, port);
    if (rc != OK)
        return rc;
    if (step->kind == STEP_SEND)
        trace_sending(r->c->group->world, &r->sends, port->send.to, port->send.len);
    r->busy |= port_bit(plan, port);
    port->begun = world_now(r->c->group->world);
    port->piece = piece;
    r->posts++;
    flow->begun++;
    return OK;
}

/* Begin whatever may begin, in the order of the schedule. */
static int begin_all(struct runner *r, bool *progress)
{
    struct coll_plan *plan = r->plan;
    const struct schedule *s = &plan->schedule;
    size_t end = s->count - r->first < PLAN_ACTIVE ? s->count : r->first + PLAN_ACTIVE;
    while (r->waiting < end && plan->flow[r->waiting].begun == plan->flow[r->waiting].pieces)
        r->waiting++;
    for (size_t i = r->waiting; i < end; i++) {
        struct flow *flow = &plan->flow[i];
        while (flow->begun < flow->pieces && flow->begun - flow->done < PLAN_WINDOW &&
               plan_clear(plan, i)) {
            int rc = begin_piece(r, i, flow->begun);
            if (rc == ERR_FULL)
                break;
            if (rc != OK)
                return rc;
            *progress = true;
        }
    }
    return OK;
}

/* ---- ending one ---- */

/* Pieces of a step may end in any order; `done` counts those that ended without a gap from the
 * first. */
static void count_done(struct flow *flow, size_t piece)
{
    flow->ahead |= UINT64_C(1) << (piece - flow->done);
    while (flow->ahead & 1) {
        flow->ahead >>= 1;
        flow->done++;
    }
}

static int finish_recv(struct runner *r, struct port *port)
{
    struct coll_plan *plan = r->plan;
    const struct step *step = &plan->schedule.step[port->step];
    const struct recv *recv = &port->recv;
    float *x = floats_at(r, port->span.at);
    size_t n = port->span.len;
    count_moved(r, recv->len);
    if (recv->first_byte >= port->begun) /* no part of it waited for this receive */
        group_link_received(r->c->group, recv->from, recv->len,
                            world_now(r->c->group->world) - recv->first_byte);
    if (r->c->waits)
        coll_account(r->c, recv->from, recv->first_byte, recv->len, r->idle_from);
    r->idle_from = world_now(r->c->group->world); /* the time before was accounted for */
    if (is_coded(r, port) && x) {
        bool adds = step->kind == STEP_REDUCE;
        if (!codec_decode(plan->config.codec, port->stage, n, adds ? plan->decoded : x))
            return ERR_PROTOCOL;
        if (adds)
            reduce_range(&plan->config.reduction, x, plan->decoded, n);
    }
    double work = plan->config.serialise + (step->kind == STEP_REDUCE ? plan->config.reduce : 0);
    return take_time(r, work, n);
}

static int finish_all(struct runner *r, bool *progress)
{
    struct coll_plan *plan = r->plan;
    for (uint64_t busy = r->busy; busy; busy &= busy - 1) {
        struct port *port = &plan->ports[lowest_bit(busy)];
        bool sends = port_bit(plan, port) & SEND_PORTS;
        int status = sends ? atomic_load(&port->send.status) : atomic_load(&port->recv.status);
        if (status == POST_PENDING)
            continue;
        r->busy &= ~port_bit(plan, port);
        if (sends)
            record_sent(r, port->send.to);
        if (status == ERR_PEER)
            return coll_lost(r->c, coll_deadline(r->c));
        int rc = status == OK && !sends ? finish_recv(r, port) : status;
        if (rc != OK)
            return rc;
        count_done(&plan->flow[port->step], port->piece);
        *progress = true;
    }
    while (r->first < plan->schedule.count &&
           plan->flow[r->first].done == plan->flow[r->first].pieces)
        r->first++;
    return OK;
}

/* ---- all of it ---- */

static int wait_for_any(struct runner *r, uint64_t seen)
{
    const struct wait_for any = {.kind = WAIT_ENDED, .ended = &r->ended, .seen = seen};
    struct wake wake;
    r->idle_from = world_now(r->c->group->world);
    return coll_wait(r->c, &any, coll_deadline(r->c), &wake);
}

static int run_steps(struct runner *r)
{
    bool progress = true;
    while (r->first < r->plan->schedule.count) {
        uint64_t seen = atomic_load(&r->ended.times);
        bool begins = progress; /* after a wait nothing can, until a piece has ended */
        progress = false;
        int rc = begins ? begin_all(r, &progress) : OK;
        if (rc == OK)
            rc = finish_all(r, &progress);
        if (rc == OK && !progress)
            rc = wait_for_any(r, seen);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void withdraw_ports(struct runner *r)
{
    struct world *world = r->c->group->world;
    for (; r->busy; r->busy &= r->busy - 1) {
        struct port *port = &r->plan->ports[lowest_bit(r->busy)];
        if (port_bit(r->plan, port) & SEND_PORTS) {
            world_unsend(world, &port->send);
            record_sent(r, port->send.to);
        } else {
            world_unpost(world, &port->recv);
        }
    }
}

/* A post is counted a moment after its status is set: until the world has done so the count is not
 * ours to forget. */
static void await_count(const struct runner *r)
{
    struct world *world = r->c->group->world;
    for (uint64_t seen; (seen = atomic_load(&r->ended.times)) < r->posts;) {
        const struct wait_for any = {.kind = WAIT_ENDED, .ended = &r->ended, .seen = seen};
        struct wake wake;
        (void)world_wait(world, &any, 1, WORLD_FOREVER, &wake); /* cancelled: look again */
    }
}

int coll_run(struct coll *c, struct coll_plan *plan, float *x, struct coll_owed owed)
{
    PL_ASSERT(plan->schedule.ranks == c->ranks->count && plan->schedule.me == c->ranks->me);
    struct runner r = {.c = c, .plan = plan, .x = x, .owed = owed};
    for (size_t i = 0; i < plan->schedule.count; i++) {
        plan->flow[i].begun = plan->flow[i].done = plan->flow[i].ahead = 0;
        plan->flow[i].held = false;
    }
    r.idle_from = world_now(c->group->world);
    plan->moved = 0;
    atomic_fetch_add(&c->group->collectives, 1);
    int rc = run_steps(&r);
    if (rc != OK)
        withdraw_ports(&r);
    await_count(&r);
    atomic_fetch_sub(&c->group->collectives, 1);
    return rc;
}

int coll_reduce(struct coll *c, struct coll_plan *plan, float *x, struct coll_input input)
{
    PL_ASSERT(plan->config.codec == CODEC_F32 && plan->schedule.scratch == 0);
    plan->own.input = input;
    plan->own.x = x;
    if (plan->schedule.ranks == 1)
        put_own(plan, x, plan->schedule.n);
    int rc = coll_run(c, plan, x, (struct coll_owed){0});
    plan->own.x = NULL;
    return rc;
}
