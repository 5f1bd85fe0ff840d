#include "coll/cost_timeline.h"

#include "base/array.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/coll_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = COST_TIMELINE_RANKS_MAX, OVERHEAD_BYTES = 40 };

enum message_state { QUEUED, FLOWING, FLYING, ARRIVED, TAKEN };

/* A piece on its way. */
struct moving_piece {
    uint32_t from, to, number;
    bool final;
    size_t step, piece; /* the sender's */
    enum message_state state;
    double left, rate; /* bytes; 0: not known yet */
    double until;      /* FLYING */
};

/* A receive that a rank has begun. */
struct posted_piece {
    uint32_t from, number;
    bool final;
    size_t step, piece;
};

struct rank_run {
    struct coll_plan plan;
    size_t first; /* step that is not finished */
    size_t sends; /* under way */
    size_t posted;
    struct posted_piece recv[PLAN_RECVS];
};

struct timeline {
    const struct cost_links *links;
    struct rank_run rank[RANKS_MAX];
    struct moving_piece *message; /* in the order in which they began */
    size_t messages, room;
    bool failed; /* out of memory */
    bool busy[RANKS_MAX][RANKS_MAX]; /* is a piece flowing from one rank to the other? */
    double now;
};

/* ---- pieces of a rank, as in coll_run.c ---- */

static void count_done(struct flow *flow, size_t piece)
{
    flow->ahead |= UINT64_C(1) << (piece - flow->done);
    while (flow->ahead & 1) {
        flow->ahead >>= 1;
        flow->done++;
    }
}

static void begin_send(struct timeline *t, uint32_t me, size_t number, size_t piece)
{
    struct rank_run *r = &t->rank[me];
    const struct step *step = &r->plan.schedule.step[number];
    size_t len = plan_piece(&r->plan, step->at, step->len, piece).len;
    t->failed |= !array_grow(&t->message, t->messages, &t->room, sizeof *t->message);
    if (t->failed)
        return;
    r->sends++;
    t->message[t->messages++] = (struct moving_piece){
        .from = me,
        .to = step->peer,
        .number = r->plan.flow[number].first_piece + (uint32_t)piece,
        .final = step->final,
        .step = number,
        .piece = piece,
        .left = (double)len * sizeof(float) + OVERHEAD_BYTES,
    };
}

static void begin_recv(struct rank_run *r, size_t number, size_t piece)
{
    const struct step *step = &r->plan.schedule.step[number];
    r->recv[r->posted++] = (struct posted_piece){
        .from = step->peer,
        .number = r->plan.flow[number].first_piece + (uint32_t)piece,
        .final = step->final,
        .step = number,
        .piece = piece,
    };
}

/* False: as many pieces are under way as may be. */
static bool begin_piece(struct timeline *t, uint32_t me, size_t number)
{
    struct rank_run *r = &t->rank[me];
    struct flow *flow = &r->plan.flow[number];
    enum step_kind kind = r->plan.schedule.step[number].kind;
    if (kind == STEP_FOLD || kind == STEP_COPY) {
        flow->begun++, flow->done++;
        return true;
    }
    if (kind == STEP_SEND ? r->sends == PLAN_SENDS : r->posted == PLAN_RECVS)
        return false;
    if (kind == STEP_SEND)
        begin_send(t, me, number, flow->begun);
    else
        begin_recv(r, number, flow->begun);
    flow->begun++;
    return true;
}

static bool begin_all(struct timeline *t, uint32_t me)
{
    struct rank_run *r = &t->rank[me];
    size_t count = r->plan.schedule.count;
    size_t end = count - r->first < PLAN_ACTIVE ? count : r->first + PLAN_ACTIVE;
    bool progress = false;
    for (size_t i = r->first; i < end; i++) {
        struct flow *flow = &r->plan.flow[i];
        while (flow->begun < flow->pieces && flow->begun - flow->done < PLAN_WINDOW &&
               plan_clear(&r->plan, i, flow->begun) && begin_piece(t, me, i))
            progress = true;
    }
    return progress;
}

static struct moving_piece *find_arrived(struct timeline *t, uint32_t me,
                                         const struct posted_piece *p)
{
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        if (m->state == ARRIVED && m->to == me && m->from == p->from && m->final == p->final &&
            m->number == p->number)
            return m;
    }
    return NULL;
}

static bool take_arrived(struct timeline *t, uint32_t me)
{
    struct rank_run *r = &t->rank[me];
    bool progress = false;
    for (size_t i = 0; i < r->posted;) {
        const struct posted_piece p = r->recv[i];
        struct moving_piece *m = find_arrived(t, me, &p);
        if (!m) {
            i++;
            continue;
        }
        m->state = TAKEN;
        r->recv[i] = r->recv[--r->posted];
        count_done(&r->plan.flow[p.step], p.piece);
        progress = true;
    }
    while (r->first < r->plan.schedule.count &&
           r->plan.flow[r->first].done == r->plan.flow[r->first].pieces)
        r->first++;
    return progress;
}

/* All that can be done now. False: nothing is left to do. */
static bool advance_ranks(struct timeline *t)
{
    bool left = false;
    for (bool progress = true; progress;) {
        progress = left = false;
        for (uint32_t r = 0; r < t->links->ranks; r++) {
            progress |= begin_all(t, r);
            progress |= take_arrived(t, r);
            left |= t->rank[r].first < t->rank[r].plan.schedule.count;
        }
    }
    return left;
}

/* ---- links ---- */

static void drop_taken(struct timeline *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->messages; i++)
        if (t->message[i].state != TAKEN)
            t->message[kept++] = t->message[i];
    t->messages = kept;
}

static void start_lanes(struct timeline *t)
{
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        if (m->state != QUEUED || t->busy[m->from][m->to])
            continue;
        m->state = FLOWING;
        t->busy[m->from][m->to] = true;
    }
}

/* One direction of a rank's link, while rates are shared out. */
struct shared_link {
    double rest;
    size_t open; /* pieces without a rate */
};

static double part_of(const struct shared_link *l)
{
    return l->open > 0 ? l->rest / (double)l->open : INFINITY;
}

static void settle_rate(struct shared_link *up, struct shared_link *down, struct moving_piece *m,
                        double rate)
{
    m->rate = rate;
    up[m->from].rest = max_double(0, up[m->from].rest - rate);
    down[m->to].rest = max_double(0, down[m->to].rest - rate);
    up[m->from].open--;
    down[m->to].open--;
}

/* Water-filling: the pieces on the tightest link get equal parts of it, and so on. */
static void share_links(struct timeline *t)
{
    struct shared_link up[RANKS_MAX], down[RANKS_MAX];
    size_t ranks = t->links->ranks;
    for (size_t r = 0; r < ranks; r++) {
        up[r] = (struct shared_link){t->links->send_rate[r], 0};
        down[r] = (struct shared_link){t->links->recv_rate[r], 0};
    }
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        m->rate = 0;
        up[m->from].open += m->state == FLOWING;
        down[m->to].open += m->state == FLOWING;
    }
    for (;;) {
        double least = INFINITY;
        for (size_t r = 0; r < ranks; r++)
            least = min_double(least, min_double(part_of(&up[r]), part_of(&down[r])));
        if (!isfinite(least))
            return;
        for (size_t i = 0; i < t->messages; i++) {
            struct moving_piece *m = &t->message[i];
            bool open = m->state == FLOWING && m->rate == 0;
            if (open && min_double(part_of(&up[m->from]), part_of(&down[m->to])) <= least)
                settle_rate(up, down, m, least);
        }
    }
}

/* ---- time ---- */

static double next_event(const struct timeline *t)
{
    double next = INFINITY;
    for (size_t i = 0; i < t->messages; i++) {
        const struct moving_piece *m = &t->message[i];
        if (m->state == FLOWING)
            next = min_double(next, t->now + m->left / m->rate);
        else if (m->state == FLYING)
            next = min_double(next, m->until);
    }
    return next;
}

/* Bytes that take less than a nanosecond are none. */
static void move_pieces(struct timeline *t, double until)
{
    double passed = until - t->now;
    t->now = until;
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        if (m->state == FLYING && until >= m->until)
            m->state = ARRIVED;
        if (m->state != FLOWING)
            continue;
        m->left -= m->rate * passed;
        if (m->left > m->rate * 1e-9)
            continue;
        struct rank_run *sender = &t->rank[m->from];
        m->state = FLYING;
        m->until = until + t->links->latency;
        t->busy[m->from][m->to] = false;
        sender->sends--;
        count_done(&sender->plan.flow[m->step], m->piece);
    }
}

static int open_rank(struct rank_run *r, enum coll_algorithm algorithm, size_t ranks, size_t me,
                     size_t n, size_t chunk, const size_t *cut)
{
    const struct coll_config config = {.chunk = chunk, .codec = CODEC_F32, .phantom = true};
    struct schedule s;
    int rc = schedule_allreduce(&s, algorithm, ranks, me, n, cut);
    if (rc == OK)
        rc = coll_plan_make(&r->plan, &s, &config);
    schedule_release(&s);
    return rc;
}

double cost_timeline(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                     size_t chunk, const size_t *cut)
{
    struct timeline *t = calloc(1, sizeof *t);
    int rc = t ? OK : ERR_NOMEM;
    PL_ASSERT(links->ranks <= RANKS_MAX);
    if (t)
        t->links = links;
    for (size_t r = 0; rc == OK && r < links->ranks; r++)
        rc = open_rank(&t->rank[r], algorithm, links->ranks, r, n, chunk, cut);
    while (rc == OK && advance_ranks(t)) {
        if (t->failed)
            rc = ERR_NOMEM;
        drop_taken(t);
        start_lanes(t);
        share_links(t);
        double next = next_event(t);
        PL_ASSERT(rc != OK || isfinite(next)); /* else ranks wait for one another */
        move_pieces(t, next);
    }
    double seconds = rc == OK ? t->now : INFINITY;
    for (size_t r = 0; t && r < links->ranks; r++)
        coll_plan_release(&t->rank[r].plan);
    if (t)
        free(t->message);
    free(t);
    return seconds;
}
