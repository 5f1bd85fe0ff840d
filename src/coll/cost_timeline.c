#include "coll/cost_timeline.h"

#include "base/array.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/coll_plan.h"
#include "coll/fair_links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)COST_TIMELINE_RANKS_MAX <= (int)FAIR_LINKS_MAX, "their rates are shared out");

enum { RANKS_MAX = COST_TIMELINE_RANKS_MAX, OVERHEAD_BYTES = 40, TASKS_AHEAD = 16 };

enum message_state { QUEUED, FLOWING, FLYING, ARRIVED, TAKEN };

/* A piece on its way. */
struct moving_piece {
    struct fair_flow flow;
    uint32_t number;
    size_t task;
    bool final;
    size_t step, piece; /* the sender's */
    enum message_state state;
    double left;  /* bytes */
    double until; /* FLYING */
};

/* A receive that a rank has begun. */
struct posted_piece {
    uint32_t from, number;
    bool final;
    size_t step, piece;
};

/* A rank in one of the collectives. */
struct rank_run {
    struct coll_plan plan;
    size_t first;   /* step that is not finished */
    size_t sends;   /* under way */
    size_t arrived; /* pieces that it has not taken */
    size_t posted;
    struct posted_piece recv[PLAN_RECVS];
    bool begun, over;
    bool changed;  /* since all that it could do was done */
    double end;    /* once it is over */
    double begin;  /* as it was known when so many runs were over, */
    uint64_t seen; /* plus 1 */
};

struct timeline {
    const struct cost_links *links;
    const struct cost_tasks *tasks;
    size_t first;                 /* task that is not over on all ranks */
    uint64_t over;                /* runs that are over */
    struct rank_run *run;         /* of each task, of each rank */
    struct moving_piece *message; /* in the order in which they began */
    size_t messages, room;
    bool failed;                     /* out of memory */
    bool busy[RANKS_MAX][RANKS_MAX]; /* is a piece flowing from one rank to the other? */
    double now;
};

static struct rank_run *run_of(const struct timeline *t, size_t task, size_t rank)
{
    return &t->run[task * t->links->ranks + rank];
}

/* ---- pieces of a rank, as in coll_run.c ---- */

static void count_done(struct flow *flow, size_t piece)
{
    flow->ahead |= UINT64_C(1) << (piece - flow->done);
    while (flow->ahead & 1) {
        flow->ahead >>= 1;
        flow->done++;
    }
}

static void begin_send(struct timeline *t, size_t task, uint32_t me, size_t number, size_t piece)
{
    struct rank_run *r = run_of(t, task, me);
    const struct step *step = &r->plan.schedule.step[number];
    size_t len = plan_piece(&r->plan, step->at, step->len, piece).len;
    t->failed |= !array_grow(&t->message, t->messages, &t->room, sizeof *t->message);
    if (t->failed)
        return;
    r->sends++;
    t->message[t->messages++] = (struct moving_piece){
        .task = task,
        .flow = {.from = me, .to = step->peer},
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
static bool begin_piece(struct timeline *t, size_t task, uint32_t me, size_t number)
{
    struct rank_run *r = run_of(t, task, me);
    struct flow *flow = &r->plan.flow[number];
    enum step_kind kind = r->plan.schedule.step[number].kind;
    if (kind == STEP_FOLD || kind == STEP_COPY) {
        flow->begun++, flow->done++;
        return true;
    }
    if (kind == STEP_SEND ? r->sends == PLAN_SENDS : r->posted == PLAN_RECVS)
        return false;
    if (kind == STEP_SEND)
        begin_send(t, task, me, number, flow->begun);
    else
        begin_recv(r, number, flow->begun);
    flow->begun++;
    return true;
}

static bool begin_all(struct timeline *t, size_t task, uint32_t me)
{
    struct rank_run *r = run_of(t, task, me);
    size_t count = r->plan.schedule.count;
    size_t end = count - r->first < PLAN_ACTIVE ? count : r->first + PLAN_ACTIVE;
    bool progress = false;
    for (size_t i = r->first; i < end; i++) {
        struct flow *flow = &r->plan.flow[i];
        while (flow->begun < flow->pieces && flow->begun - flow->done < PLAN_WINDOW &&
               plan_clear(&r->plan, i) && begin_piece(t, task, me, i))
            progress = true;
    }
    return progress;
}

/* The receive of a piece that has arrived; `posted`: it has not begun. */
static size_t find_receive(const struct rank_run *r, const struct moving_piece *m)
{
    size_t i = 0;
    while (i < r->posted && !(r->recv[i].from == m->flow.from && r->recv[i].final == m->final &&
                              r->recv[i].number == m->number))
        i++;
    return i;
}

static bool take_arrived(struct timeline *t, size_t task, uint32_t me)
{
    struct rank_run *r = run_of(t, task, me);
    bool progress = false;
    for (size_t k = 0; r->arrived > 0 && k < t->messages; k++) {
        struct moving_piece *m = &t->message[k];
        if (m->state != ARRIVED || m->flow.to != me || m->task != task)
            continue;
        size_t i = find_receive(r, m);
        if (i == r->posted)
            continue;
        const struct posted_piece p = r->recv[i];
        m->state = TAKEN;
        r->arrived--;
        r->recv[i] = r->recv[--r->posted];
        count_done(&r->plan.flow[p.step], p.piece);
        progress = true;
    }
    while (r->first < r->plan.schedule.count &&
           r->plan.flow[r->first].done == r->plan.flow[r->first].pieces)
        r->first++;
    return progress;
}

/* The time from which on the rank may be in the task, which changes when a run is over. */
static double begin_of(const struct timeline *t, size_t task, size_t rank)
{
    struct rank_run *r = run_of(t, task, rank);
    if (!t->tasks->begin)
        return 0;
    if (r->seen != t->over + 1)
        r->begin = t->tasks->begin(t->tasks->user, t, task, rank);
    r->seen = t->over + 1;
    return r->begin;
}

/* A rank enters a task when it may; it is then in it until its steps are done. */
static bool advance_run(struct timeline *t, size_t task, uint32_t me)
{
    struct rank_run *r = run_of(t, task, me);
    if (r->over || (r->begun && !r->changed))
        return false;
    if (!r->begun && begin_of(t, task, me) > t->now)
        return false;
    r->begun = true;
    bool progress = begin_all(t, task, me);
    progress |= take_arrived(t, task, me);
    r->changed = progress;
    if (r->first < r->plan.schedule.count)
        return progress;
    r->over = true;
    t->over++;
    r->end = t->now;
    return true;
}

/* Tasks are entered in order, a few at once. */
static size_t last_task(const struct timeline *t)
{
    size_t last = t->first + (t->tasks->ahead > 0 ? t->tasks->ahead : TASKS_AHEAD);
    return last < t->tasks->count ? last : t->tasks->count;
}

static bool is_over(const struct timeline *t, size_t task)
{
    for (size_t r = 0; r < t->links->ranks; r++)
        if (!run_of(t, task, r)->over)
            return false;
    return true;
}

/* All that can be done now. False: nothing is left to do. */
static bool advance_ranks(struct timeline *t)
{
    bool left = false;
    for (bool progress = true; progress;) {
        progress = left = false;
        for (size_t task = t->first; task < last_task(t); task++)
            for (uint32_t r = 0; r < t->links->ranks; r++) {
                progress |= advance_run(t, task, r);
                left |= !run_of(t, task, r)->over;
            }
        while (t->first < t->tasks->count && is_over(t, t->first))
            t->first++;
    }
    return left || t->first < t->tasks->count;
}

double cost_task_begin(const struct timeline *t, size_t task, size_t rank)
{
    const struct rank_run *r = run_of(t, task, rank);
    return r->begun ? r->begin : INFINITY;
}

double cost_task_end(const struct timeline *t, size_t task, size_t rank)
{
    const struct rank_run *r = run_of(t, task, rank);
    return r->over ? r->end : INFINITY;
}

/* ---- links ---- */

static void drop_taken(struct timeline *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->messages; i++)
        if (t->message[i].state != TAKEN) {
            if (kept < i)
                t->message[kept] = t->message[i];
            kept++;
        }
    t->messages = kept;
}

static void start_lanes(struct timeline *t)
{
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        if (m->state != QUEUED || t->busy[m->flow.from][m->flow.to])
            continue;
        m->state = FLOWING;
        t->busy[m->flow.from][m->flow.to] = true;
    }
}

/* At most one piece flows between two ranks. */
static void share_links(struct timeline *t)
{
    struct fair_flow *flowing[RANKS_MAX * RANKS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < t->messages; i++)
        if (t->message[i].state == FLOWING)
            flowing[count++] = &t->message[i].flow;
    fair_links_share(t->links, flowing, count);
}

/* ---- time ---- */

static double next_event(const struct timeline *t)
{
    double next = INFINITY;
    for (size_t task = t->first; t->tasks->begin && task < last_task(t); task++)
        for (size_t r = 0; r < t->links->ranks; r++)
            if (!run_of(t, task, r)->begun) {
                double begin = begin_of(t, task, r);
                next = begin > t->now ? min_double(next, begin) : next;
            }
    for (size_t i = 0; i < t->messages; i++) {
        const struct moving_piece *m = &t->message[i];
        if (m->state == FLOWING)
            next = min_double(next, t->now + m->left / m->flow.rate);
        else if (m->state == FLYING)
            next = min_double(next, m->until);
    }
    return next;
}

static void arrive_piece(struct timeline *t, struct moving_piece *m)
{
    struct rank_run *receiver = run_of(t, m->task, m->flow.to);
    m->state = ARRIVED;
    receiver->arrived++;
    receiver->changed = true;
}

/* Bytes that take less than a nanosecond are none. */
static void move_pieces(struct timeline *t, double until)
{
    double passed = until - t->now;
    t->now = until;
    for (size_t i = 0; i < t->messages; i++) {
        struct moving_piece *m = &t->message[i];
        if (m->state == FLYING && until >= m->until)
            arrive_piece(t, m);
        if (m->state != FLOWING)
            continue;
        m->left -= m->flow.rate * passed;
        if (m->left > m->flow.rate * 1e-9)
            continue;
        struct rank_run *sender = run_of(t, m->task, m->flow.from);
        m->state = FLYING;
        m->until = until + t->links->latency;
        t->busy[m->flow.from][m->flow.to] = false;
        sender->sends--;
        sender->changed = true;
        count_done(&sender->plan.flow[m->step], m->piece);
    }
}

static int open_run(struct timeline *t, size_t task, size_t rank)
{
    const struct coll_config config = {
        .chunk = t->tasks->chunk, .codec = CODEC_F32, .phantom = true};
    struct schedule s;
    int rc = t->tasks->schedule(t->tasks->user, &s, task, t->links->ranks, rank);
    if (rc == OK)
        rc = coll_plan_make(&run_of(t, task, rank)->plan, &s, &config);
    schedule_release(&s);
    return rc;
}

static int run_timeline(struct timeline *t)
{
    while (advance_ranks(t)) {
        if (t->failed)
            return ERR_NOMEM;
        drop_taken(t);
        start_lanes(t);
        share_links(t);
        double next = next_event(t);
        PL_ASSERT(isfinite(next)); /* else ranks wait for one another */
        move_pieces(t, next);
    }
    return OK;
}

static double last_end(const struct timeline *t, size_t task)
{
    double last = 0;
    for (size_t r = 0; r < t->links->ranks; r++)
        last = max_double(last, run_of(t, task, r)->end);
    return last;
}

int cost_timeline_tasks(const struct cost_tasks *tasks, const struct cost_links *links, double *end)
{
    size_t runs = tasks->count * links->ranks;
    struct timeline *t = calloc(1, sizeof *t);
    struct rank_run *run = calloc(runs, sizeof *run);
    int rc = t && run ? OK : ERR_NOMEM;
    PL_ASSERT(links->ranks > 0 && links->ranks <= RANKS_MAX && tasks->count > 0);
    if (t)
        *t = (struct timeline){.links = links, .tasks = tasks, .run = run};
    for (size_t i = 0; rc == OK && i < runs; i++)
        rc = open_run(t, i / links->ranks, i % links->ranks);
    if (rc == OK)
        rc = run_timeline(t);
    for (size_t task = 0; rc == OK && task < tasks->count; task++)
        end[task] = last_end(t, task);
    for (size_t i = 0; run && i < runs; i++)
        coll_plan_release(&run[i].plan);
    if (t)
        free(t->message);
    free(run), free(t);
    return rc;
}

/* ---- an all-reduce ---- */

struct allreduce {
    enum coll_algorithm algorithm;
    size_t n;
    const size_t *cut;
};

static int make_allreduce(void *user, struct schedule *out, size_t task, size_t ranks, size_t me)
{
    const struct allreduce *a = user;
    PL_ASSERT(task == 0);
    return schedule_allreduce(out, a->algorithm, ranks, me, a->n, a->cut);
}

double cost_timeline(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                     size_t chunk, const size_t *cut)
{
    struct allreduce a = {algorithm, n, cut};
    const struct cost_tasks tasks = {
        .count = 1, .chunk = chunk, .schedule = make_allreduce, .user = &a};
    double end;
    return cost_timeline_tasks(&tasks, links, &end) == OK ? end : INFINITY;
}

/* ---- a pipeline of shards ---- */

/* The stages of a shard, a task each. */
enum half { COLLECT_META, REDUCE, SEND_META, DISTRIBUTE, HALVES };
enum { SHARDS_FILLING = 20 };

static void make_meta(struct schedule *out, bool up, size_t ranks, size_t me, size_t floats)
{
    schedule_begin(out, ranks, me, floats);
    if (up)
        schedule_tree_reduce(out, 0);
    else
        schedule_tree_broadcast(out, 0);
}

static int make_stage(void *user, struct schedule *out, size_t task, size_t ranks, size_t me)
{
    const struct cost_pipeline *p = user;
    enum half half = (enum half)(task % HALVES);
    if (half == COLLECT_META || half == SEND_META) {
        make_meta(out, half == COLLECT_META, ranks, me, p->meta);
        return schedule_end(out);
    }
    size_t n = p->n[task / HALVES % p->shards];
    if (p->at_root)
        return half == REDUCE ? schedule_relay_reduce(out, ranks, me, n)
                              : schedule_relay_broadcast(out, ranks, me, n);
    return half == REDUCE ? schedule_reduce_scatter(out, ranks, me, n, NULL)
                          : schedule_all_gather(out, ranks, me, n, NULL);
}

/* A shard's stages follow each other; owners of parts need the metadata with the sums, before they
 * reduce. Shards take turns (stages.h): one is reduced after the one before it, and distributed
 * after that one; with fewer phases it waits for more of it. */
static double begin_stage(void *user, const struct timeline *t, size_t task, size_t rank)
{
    const struct cost_pipeline *p = user;
    enum half half = (enum half)(task % HALVES);
    double begin = half == COLLECT_META ? 0 : cost_task_end(t, task - 1, rank);
    if (task < HALVES)
        return begin;
    if (half != COLLECT_META)
        return max_double(begin, cost_task_end(t, task - HALVES, rank));
    size_t last = p->phases == 1 ? DISTRIBUTE : p->phases == 2 ? SEND_META : REDUCE;
    return cost_task_end(t, task - HALVES + last, rank);
}

/* Whole rounds of all shards: some until the pipeline has its rhythm, and as many that count. */
double cost_pipeline_cycle(const struct cost_pipeline *given, const struct cost_links *links)
{
    struct cost_pipeline p = *given;
    size_t cycles = (SHARDS_FILLING + p.shards - 1) / p.shards, ticks = cycles * p.shards;
    const struct cost_tasks tasks = {.count = 2 * ticks * HALVES,
                                     .chunk = given->chunk,
                                     .schedule = make_stage,
                                     .begin = begin_stage,
                                     .user = &p};
    double *end = malloc(tasks.count * sizeof *end), seconds = INFINITY;
    if (end && cost_timeline_tasks(&tasks, links, end) == OK)
        seconds = (end[tasks.count - 1] - end[ticks * HALVES - 1]) / (double)cycles;
    free(end);
    return seconds;
}
