#include "plan/sliced_round.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/auto.h"
#include "coll/cost_timeline.h"
#include "coll/exchange.h"
#include "plan/round_internal.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS_MAX = COST_TIMELINE_RANKS_MAX, VOTES = 6, TASKS_BESIDES = 8 };

#define ROUNDING 1e-9 /* of a share */

/* The metadata of an exchange on its way to the first rank, and back; and no messages. */
enum { META_UP = ROUND_BROADCAST + 1, META_DOWN, STEP_ENDS };

/* Slices of a replica, the same slice of all, or all members. */
enum among { MATES, PEERS, ALL };

enum { NO_TASK = -1 };

/* A collective of each of these groups. Its ranks enter it behind another one, with so much of the
 * net's step computed; during it they compute some more. */
struct task {
    int kind;
    enum among among;
    size_t floats;
    double share, meanwhile;
    int before;
};

struct round {
    const struct round_config *config;
    const struct round_cluster *cluster;
    const struct round_model *model;
    struct round_node *node;
    size_t replicas;
    struct cost_links links; /* of the workers */
    double rate[RANKS_MAX];
    struct task *task;
    size_t tasks;
};

/* ---- tasks ---- */

static enum coll_algorithm sum_algorithm(const struct round_config *config, size_t ranks, size_t n)
{
    return config->algorithm == COLL_AUTO ? auto_rule(CODEC_F32, ranks, n) : config->algorithm;
}

static int make_collective(const struct round *r, const struct task *k, struct schedule *out,
                           size_t ranks, size_t me)
{
    size_t n = k->floats;
    switch (k->kind) {
    case ROUND_GATHER: return schedule_all_gather(out, ranks, me, n, NULL);
    case ROUND_SUM:
        return schedule_allreduce(out, sum_algorithm(r->config, ranks, n), ranks, me, n, NULL);
    case ROUND_BROADCAST: return schedule_broadcast(out, ranks, me, 0, n, r->config->chunk);
    default: schedule_begin(out, ranks, me, n);
    }
    if (k->kind == META_UP)
        schedule_tree_reduce(out, 0);
    else if (k->kind == META_DOWN)
        schedule_tree_broadcast(out, 0);
    return schedule_end(out);
}

/* Workers are in the order of their seats: one replica after another. */
static int make_task(void *user, struct schedule *out, size_t task, size_t ranks, size_t me)
{
    const struct round *r = user;
    const struct task *k = &r->task[task];
    size_t slices = r->config->slices->count, count = ranks, own = me, step = 1;
    if (k->among == MATES) {
        count = slices;
        own = me % slices;
    } else if (k->among == PEERS) {
        count = r->replicas;
        own = me / slices;
        step = slices;
    }
    int rc = make_collective(r, k, out, count, own);
    for (size_t i = 0; rc == OK && i < out->count; i++)
        out->step[i].peer = (uint32_t)(me - own * step + out->step[i].peer * step);
    out->ranks = ranks;
    out->me = me;
    return rc;
}

/* A rank computes during a task, and between two of them. */
static double begin_task(void *user, const struct timeline *t, size_t task, size_t rank)
{
    const struct round *r = user;
    const struct task *k = &r->task[task];
    double step = r->cluster->step[1 + rank], begin = 0, done = 0;
    if (k->before != NO_TASK) {
        size_t i = (size_t)k->before;
        const struct task *before = &r->task[i];
        begin = max_double(cost_task_end(t, i, rank),
                           cost_task_begin(t, i, rank) + before->meanwhile * step);
        done = before->share + before->meanwhile;
        if (k->share < before->share + before->meanwhile - ROUNDING)
            return cost_task_begin(t, i, rank) + (k->share - before->share) * step;
    }
    return begin + (k->share - done) * step;
}

/* Returns its number; of nothing that of the one before it. */
static int add_task(struct round *r, enum among among, int kind, size_t floats, int before)
{
    double share = before == NO_TASK ? 0 : r->task[before].share;
    if (floats == 0)
        return before;
    r->task[r->tasks] = (struct task){kind, among, floats, share, 0, before};
    return (int)r->tasks++;
}

/* The bytes of a rank in all tasks, `times` times. */
static int count_rank(struct round *r, size_t rank, uint64_t times)
{
    struct round_node once = {0}, *node = &r->node[1 + rank];
    int rc = OK;
    for (size_t i = 0; rc == OK && i < r->tasks; i++) {
        struct schedule s;
        rc = make_task(r, &s, i, r->links.ranks, rank);
        if (rc == OK)
            rc = round_count_steps(&s, CODEC_F32, 0, &once);
        schedule_release(&s);
    }
    node->sent += times * once.sent;
    node->received += times * once.received;
    return rc;
}

/* Seconds until the last task is over; they happen `times` times in a round. */
static int time_tasks(struct round *r, uint64_t times, double *seconds)
{
    const struct cost_tasks tasks = {.count = r->tasks,
                                     .chunk = r->config->chunk,
                                     .ahead = r->tasks,
                                     .schedule = make_task,
                                     .begin = begin_task,
                                     .user = r};
    double *end = malloc(r->tasks * sizeof *end);
    int rc = end ? cost_timeline_tasks(&tasks, &r->links, end) : ERR_NOMEM;
    *seconds = 0;
    for (size_t i = 0; rc == OK && i < r->tasks; i++)
        *seconds = max_double(*seconds, end[i]);
    free(end);
    for (size_t rank = 0; rc == OK && rank < r->links.ranks; rank++)
        rc = count_rank(r, rank, times);
    return rc;
}

/* ---- a round ---- */

/* Mates add up a bucket of data-parallel layers, and peers all. */
static void add_bucket(struct round *r, size_t i, int before)
{
    const struct round_slices *s = r->config->slices;
    const struct round_bucket *bucket = &s->bucket[i];
    bool parallel = i >= s->buckets - s->parallel_buckets;
    int first = add_task(r, parallel ? MATES : PEERS, ROUND_SUM, bucket->floats, before);
    r->task[first].share = bucket->share;
    if (parallel && r->replicas > 1)
        add_task(r, PEERS, ROUND_SUM, bucket->floats, first);
}

/* Meetings, and the buckets that leave between them. */
static int time_steps(struct round *r, double *seconds)
{
    const struct round_slices *s = r->config->slices;
    size_t meetings = s->meetings, next = 0;
    int before = NO_TASK;
    if (s->buckets > 0 && s->parallel > 0)
        meetings--; /* the sum of data-parallel layers, which is in buckets */
    r->tasks = 0;
    for (size_t i = 0; i <= meetings; i++) {
        const struct round_meeting end = {(enum round_meeting_kind)STEP_ENDS, 1, s->share, 0};
        const struct round_meeting *m = i < meetings ? &s->meeting[i] : &end;
        for (; next < s->buckets && s->bucket[next].share < m->share - ROUNDING; next++)
            add_bucket(r, next, before);
        before = add_task(r, MATES, (int)m->kind, m->floats, before);
        r->task[before].share = m->share;
        r->task[before].meanwhile = m->meanwhile;
    }
    for (; next < s->buckets; next++)
        add_bucket(r, next, before);
    return time_tasks(r, r->config->tau, seconds);
}

/* Slices bring vectors into line, peers add theirs up, and all end the round. */
static int time_end(struct round *r, double *seconds)
{
    const struct round_slices *s = r->config->slices;
    bool replicas = r->replicas > 1, summed = replicas && s->buckets > 0;
    r->tasks = 0;
    int last = add_task(r, MATES, ROUND_SUM, r->model->s, NO_TASK);
    last = add_task(r, MATES, ROUND_BROADCAST, summed ? 0 : s->common, last);
    if (replicas) {
        last = add_task(r, MATES, ROUND_SUM, VOTES, last);
        last = add_task(r, PEERS, ROUND_SUM, (summed ? 0 : r->model->x) + r->model->s + 1, last);
    }
    last = add_task(r, MATES, ROUND_BROADCAST, summed ? s->common : 0, last);
    last = add_task(r, ALL, META_UP, sizeof(struct exchange_meta) / sizeof(float), last);
    last = add_task(r, ALL, META_DOWN, sizeof(struct exchange_meta) / sizeof(float), last);
    add_task(r, ALL, ROUND_SUM, 1, last);
    return time_tasks(r, 1, seconds);
}

static void open_round(struct round *r)
{
    const struct cost_links *links = &r->cluster->links;
    r->links = *links;
    r->links.ranks = r->cluster->workers;
    r->links.send_rate = r->links.recv_rate = r->rate;
    r->links.reduce_rate = INFINITY;
    r->links.per_message = 0;
    for (size_t i = 0; i < r->cluster->workers; i++)
        r->rate[i] = min_double(links->send_rate[1 + i], links->recv_rate[1 + i]);
}

static int time_round(struct round *r, double *seconds)
{
    double steps, end;
    open_round(r);
    int rc = time_steps(r, &steps);
    if (rc == OK)
        rc = time_end(r, &end);
    if (rc == OK)
        *seconds = (double)r->config->tau * steps + end;
    return rc;
}

/* A vector of the peers' sum, and room for the parts that are gathered. */
static uint64_t exchange_memory(const struct round *r)
{
    const struct round_slices *s = r->config->slices;
    size_t parts = s->common, sum = r->replicas > 1 ? r->model->x + r->model->s + 1 : 0;
    for (size_t i = 0; i < s->meetings; i++)
        if (s->meeting[i].kind == ROUND_GATHER && s->meeting[i].floats > parts)
            parts = s->meeting[i].floats;
    return (parts + sum) * sizeof(float);
}

/* Of the peers, or of the longest vector that mates add up. */
static enum coll_algorithm shown_algorithm(const struct round *r)
{
    const struct round_slices *s = r->config->slices;
    size_t n = 0;
    if (r->replicas > 1)
        return sum_algorithm(r->config, r->replicas, r->model->x + r->model->s + 1);
    for (size_t i = 0; i < s->meetings; i++)
        if (s->meeting[i].kind == ROUND_SUM && s->meeting[i].floats > n)
            n = s->meeting[i].floats;
    return n > 0 ? sum_algorithm(r->config, s->count, n) : COLL_AUTO;
}

int sliced_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node)
{
    const struct round_slices *s = config->slices;
    struct round r = {.config = config, .cluster = cluster, .model = model, .node = node};
    r.replicas = cluster->workers / s->count;
    r.task = malloc((s->meetings + 2 * s->buckets + TASKS_BESIDES) * sizeof *r.task);
    PL_ASSERT(s->count > 1 && r.replicas * s->count == cluster->workers);
    PL_ASSERT(cluster->workers <= RANKS_MAX);
    int rc = r.task ? time_round(&r, &cost->seconds) : ERR_NOMEM;
    free(r.task);
    if (rc != OK)
        return rc;
    cost->step *= s->share;
    cost->compute *= s->share;
    cost->exchange = cost->seconds - cost->compute;
    cost->algorithm = shown_algorithm(&r);
    for (size_t i = 1; i <= cluster->workers; i++) {
        node[i].memory.exchange = exchange_memory(&r);
        node[i].pace = 1 / cost->seconds;
        node[i].utilisation = (double)config->tau * s->share * cluster->step[i] / cost->seconds;
    }
    return OK;
}
