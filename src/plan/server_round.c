/* A push or a copy is a transfer (coll/transfer.h): a header, a grant, the bytes, and their way. A
 * worker's round is a script (server_script.h).
 *
 * The driver sends a copy only after it has the worker's own pushes. Links that several transfers
 * share are divided fairly among them, as far as the worker's own link can take its part. */
#include "plan/server_round.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "plan/jitter.h"
#include "plan/server_script.h"

#include <math.h>

enum { MESSAGE_BYTES = 150, PIECE_BYTES = 40 };
enum { FILLING = 20, ROUNDS = 40 };

enum transfer_stage { IDLE, AGREEING, FLOWING, LANDING, WAITING };

/* A transfer between a worker and the driver. */
struct moving {
    enum transfer_stage stage;
    double until; /* AGREEING, LANDING: the end of the stage */
    double left;  /* FLOWING: bytes, */
    double rate;  /* and their rate now */
};

struct server_worker {
    size_t action;
    bool acts;                /* it is in that action, which needs time */
    double until;             /* COMPUTE: its end */
    struct moving push, copy; /* push WAITING: it has arrived, and is not decided yet */
    double ok_at;             /* when the worker has the decision on its last push */
    uint64_t pushes, copies, wholes;
    uint64_t uncontained; /* pushes since the last whole state */
    uint64_t steps;
    struct pace_count pace;
};

struct timeline {
    const struct round_config *config;
    const struct round_cluster *cluster;
    const struct round_model *model;
    struct script script;
    struct server_worker *worker;
    double now;
};

/* ---- links ---- */

static double vector_bytes(const struct timeline *l)
{
    return server_vector_bytes(l->config, l->model->x, l->model->s);
}

static double state_bytes(const struct timeline *l)
{
    return server_state_bytes(l->config, l->model->x, l->model->s, l->cluster->workers);
}

/* With those of the pieces' frames. */
static double framed_bytes(const struct timeline *l, double bytes)
{
    double floats = (double)(l->model->x + l->model->s);
    return bytes + ceil(floats / (double)l->config->chunk) * PIECE_BYTES;
}

static struct moving *moving_of(struct server_worker *w, bool pushes)
{
    return pushes ? &w->push : &w->copy;
}

/* The most that the worker's own link can take. */
static double rate_limit(const struct timeline *l, size_t i, bool pushes)
{
    const struct cost_links *links = &l->cluster->links;
    return pushes ? links->send_rate[i + 1] : links->recv_rate[i + 1];
}

/* Max-min fair rates of the transfers that share one direction of the driver's link: those that
 * need less than an equal part leave the rest to the others. */
static void share_link(struct timeline *l, bool pushes)
{
    const struct cost_links *links = &l->cluster->links;
    double rest = pushes ? links->recv_rate[0] : links->send_rate[0];
    size_t n = l->cluster->workers, open = 0;
    for (size_t i = 0; i < n; i++) {
        struct moving *m = moving_of(&l->worker[i], pushes);
        m->rate = 0;
        open += m->stage == FLOWING;
    }
    for (bool settled = false; !settled && open > 0;) {
        double part = rest / (double)open;
        settled = true;
        for (size_t i = 0; i < n; i++) {
            struct moving *m = moving_of(&l->worker[i], pushes);
            double most = rate_limit(l, i, pushes);
            if (m->stage != FLOWING || m->rate > 0 || most > part)
                continue;
            m->rate = most;
            rest -= most;
            open--;
            settled = false;
        }
        for (size_t i = 0; settled && i < n; i++) {
            struct moving *m = moving_of(&l->worker[i], pushes);
            if (m->stage == FLOWING && m->rate == 0)
                m->rate = part;
        }
    }
}

/* ---- pushes and copies ---- */

/* The time of a short message between the worker and the driver; a header and its grant are two. */
static double message_time(const struct timeline *l, const struct server_worker *w)
{
    const struct cost_links *links = &l->cluster->links;
    size_t i = (size_t)(w - l->worker) + 1;
    double worker = min_double(links->send_rate[i], links->recv_rate[i]);
    double driver = min_double(links->send_rate[0], links->recv_rate[0]);
    return links->latency + MESSAGE_BYTES / min_double(worker, driver);
}

static void let_continue(struct timeline *l, size_t i)
{
    l->worker[i].push.stage = IDLE;
    l->worker[i].ok_at = l->now + message_time(l, &l->worker[i]);
}

/* The push of worker i has arrived. */
static void decide_push(struct timeline *l, size_t i)
{
    struct members ok = {0};
    l->worker[i].push.stage = WAITING;
    if (!l->config->gate) {
        let_continue(l, i);
        return;
    }
    l->config->gate(l->config->gate_user, (uint32_t)i, (int64_t)(l->now * 1e9), &ok);
    MEMBERS_EACH (k, &ok)
        if (l->worker[k].push.stage == WAITING)
            let_continue(l, k);
}

static void begin_push(struct timeline *l, struct server_worker *w)
{
    w->push = (struct moving){.stage = AGREEING, .until = l->now + 2 * message_time(l, w)};
    w->ok_at = INFINITY;
    w->pushes++;
    w->uncontained++;
}

static double copy_bytes(const struct timeline *l, struct server_worker *w)
{
    if (!server_copy_is_whole(l->config, w->copies, w->uncontained))
        return vector_bytes(l);
    w->uncontained = 0;
    w->wholes++;
    return state_bytes(l);
}

static void answer_request(const struct timeline *l, struct server_worker *w, double at)
{
    w->copy = (struct moving){.stage = AGREEING, .until = at + 2 * message_time(l, w)};
    w->copies++;
}

/* The driver answers once it has this worker's pushes. */
static void begin_copy(struct timeline *l, struct server_worker *w)
{
    if (w->push.stage == IDLE)
        answer_request(l, w, l->now + message_time(l, w));
    else
        w->copy = (struct moving){.stage = WAITING};
}

/* Begin to move bytes, or let them land. */
static void advance_transfer(struct timeline *l, struct server_worker *w, struct moving *m)
{
    if (m->stage == AGREEING) {
        double bytes = m == &w->push ? vector_bytes(l) : copy_bytes(l, w);
        m->stage = FLOWING;
        m->left = framed_bytes(l, bytes);
    } else if (m->stage == FLOWING) {
        m->stage = LANDING;
        m->until = l->now + l->cluster->links.latency;
    } else if (m == &w->push) {
        decide_push(l, (size_t)(w - l->worker));
        if (w->copy.stage == WAITING)
            answer_request(l, w, l->now);
    } else {
        m->stage = IDLE;
    }
}

/* ---- a worker ---- */

static double take_steps(const struct timeline *l, struct server_worker *w, uint64_t steps)
{
    double seconds = jitter_steps(l->cluster, (size_t)(w - l->worker) + 1, w->steps, steps);
    w->steps += steps;
    return seconds;
}

static void begin_action(struct timeline *l, struct server_worker *w)
{
    const struct action *a = &l->script.at[w->action];
    w->acts = true;
    if (a->kind == COMPUTE)
        w->until = l->now + take_steps(l, w, a->steps);
    else if (a->kind == PUSH)
        begin_push(l, w);
    else if (a->kind == COPY)
        begin_copy(l, w);
}

static bool is_over(const struct timeline *l, const struct server_worker *w)
{
    switch (l->script.at[w->action].kind) {
    case COMPUTE: return l->now >= w->until;
    case PUSH: return true;
    case COPY: return w->copy.stage == IDLE;
    default: return l->now >= w->ok_at;
    }
}

/* Take actions up to one that needs time. */
static void advance_worker(struct timeline *l, struct server_worker *w)
{
    for (;;) {
        if (!w->acts)
            begin_action(l, w);
        if (!is_over(l, w))
            return;
        w->acts = false;
        if (++w->action < l->script.count)
            continue;
        w->action = 0;
        pace_count_round(&w->pace, FILLING, l->now);
    }
}

/* ---- time ---- */

static double next_of(const struct timeline *l, const struct moving *m)
{
    return m->stage == AGREEING || m->stage == LANDING ? m->until
           : m->stage == FLOWING                       ? l->now + m->left / m->rate
                                                       : INFINITY;
}

/* When something happens at a worker next. */
static double next_event(const struct timeline *l, const struct server_worker *w)
{
    enum action_kind kind = l->script.at[w->action].kind;
    double next = min_double(next_of(l, &w->push), next_of(l, &w->copy));
    if (kind == COMPUTE)
        next = min_double(next, w->until);
    else if (kind == AWAIT_OK || kind == AWAIT_PUSH)
        next = min_double(next, w->ok_at);
    return next;
}

static void move_bytes(struct moving *m, double seconds)
{
    if (m->stage == FLOWING)
        m->left = max_double(0, m->left - m->rate * seconds);
}

/* Has it come to the end of its stage? Bytes that take less than a nanosecond are none. */
static bool has_come(const struct timeline *l, const struct moving *m)
{
    return m->stage == FLOWING
               ? m->left <= m->rate * 1e-9
               : (m->stage == AGREEING || m->stage == LANDING) && l->now >= m->until;
}

/* Until the slowest worker has done enough rounds. */
static void run_timeline(struct timeline *l)
{
    size_t n = l->cluster->workers;
    uint64_t least = 0;
    while (least < FILLING + ROUNDS) {
        for (size_t i = 0; i < n; i++)
            advance_worker(l, &l->worker[i]);
        share_link(l, true);
        share_link(l, false);
        double next = INFINITY;
        for (size_t i = 0; i < n; i++)
            next = min_double(next, next_event(l, &l->worker[i]));
        PL_ASSERT(isfinite(next));
        double passed = next - l->now;
        least = UINT64_MAX;
        l->now = next;
        for (size_t i = 0; i < n; i++) {
            struct server_worker *w = &l->worker[i];
            move_bytes(&w->push, passed);
            move_bytes(&w->copy, passed);
        }
        for (size_t i = 0; i < n; i++) {
            struct server_worker *w = &l->worker[i];
            if (has_come(l, &w->push))
                advance_transfer(l, w, &w->push);
            if (has_come(l, &w->copy))
                advance_transfer(l, w, &w->copy);
            least = w->pace.rounds < least ? w->pace.rounds : least;
        }
    }
}

/* ---- the result ---- */

/* Bytes in a round: pushes that leave the worker, copies that reach it. */
static void count_bytes(const struct timeline *l, size_t i, struct round_node *node)
{
    const struct server_worker *w = &l->worker[i];
    double rounds = (double)w->pace.rounds, copies = (double)(w->copies - w->wholes);
    double pushed = (double)w->pushes / rounds * vector_bytes(l);
    double copied = (copies * vector_bytes(l) + (double)w->wholes * state_bytes(l)) / rounds;
    node[i + 1].sent = (uint64_t)pushed;
    node[i + 1].received = (uint64_t)copied;
    node[0].received += (uint64_t)pushed;
    node[0].sent += (uint64_t)copied;
}

int server_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_node *node)
{
    struct arena arena;
    struct timeline l = {.config = config, .cluster = cluster, .model = model};
    arena_init(&arena);
    l.worker = arena_array(&arena, cluster->workers, struct server_worker);
    if (!l.worker) {
        arena_release(&arena);
        return ERR_NOMEM;
    }
    server_script_write(&l.script, config);
    run_timeline(&l);
    for (size_t i = 0; i < cluster->workers; i++) {
        node[i + 1].pace = pace_of(&l.worker[i].pace);
        count_bytes(&l, i, node);
    }
    arena_release(&arena);
    return OK;
}
