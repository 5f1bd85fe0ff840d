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

enum { RANKS_MAX = COST_TIMELINE_RANKS_MAX, VOTES = 6, STAGES_BESIDES = 8 };

/* The metadata of an exchange on its way to the first rank, and back; and no messages. */
enum { META_UP = ROUND_BROADCAST + 1, META_DOWN, STEP_ENDS };

/* Some of the workers, and what they do one after another. A stage is a meeting, too. */
struct party {
    const struct round_config *config;
    size_t ranks, node[RANKS_MAX];
    double rate[RANKS_MAX], step[RANKS_MAX]; /* s of the whole net's step */
    struct cost_links links;
    struct round_meeting *stage;
    size_t stages;
};

/* ---- stages ---- */

static enum coll_algorithm sum_algorithm(const struct round_config *config, size_t ranks, size_t n)
{
    return config->algorithm == COLL_AUTO ? auto_rule(CODEC_F32, ranks, n) : config->algorithm;
}

static int make_stage(void *user, struct schedule *out, size_t task, size_t ranks, size_t me)
{
    const struct party *p = user;
    size_t n = p->stage[task].floats;
    switch ((int)p->stage[task].kind) {
    case ROUND_GATHER: return schedule_all_gather(out, ranks, me, n, NULL);
    case ROUND_SUM:
        return schedule_allreduce(out, sum_algorithm(p->config, ranks, n), ranks, me, n, NULL);
    case ROUND_BROADCAST: return schedule_broadcast(out, ranks, me, 0, n, p->config->chunk);
    default: schedule_begin(out, ranks, me, n);
    }
    if ((int)p->stage[task].kind == META_UP)
        schedule_tree_reduce(out, 0);
    else if ((int)p->stage[task].kind == META_DOWN)
        schedule_tree_broadcast(out, 0);
    return schedule_end(out);
}

/* A rank computes during a stage, and between two of them. */
static double begin_stage(void *user, const struct timeline *t, size_t task, size_t rank)
{
    const struct party *p = user;
    double begin = 0, done = 0;
    if (task > 0) {
        const struct round_meeting *before = &p->stage[task - 1];
        begin = max_double(cost_task_end(t, task - 1, rank),
                           cost_task_begin(t, task - 1, rank) + before->meanwhile * p->step[rank]);
        done = before->share + before->meanwhile;
    }
    return begin + (p->stage[task].share - done) * p->step[rank];
}

static void add_stage(struct party *p, int kind, size_t floats)
{
    double share = p->stages == 0 ? 0 : p->stage[p->stages - 1].share;
    if (floats > 0)
        p->stage[p->stages++] =
            (struct round_meeting){(enum round_meeting_kind)kind, floats, share, 0};
}

/* ---- parties ---- */

static void take_node(struct party *p, const struct round_cluster *cluster, size_t node)
{
    size_t rank = p->ranks++;
    p->node[rank] = node;
    p->rate[rank] = min_double(cluster->links.send_rate[node], cluster->links.recv_rate[node]);
    p->step[rank] = cluster->step[node];
    p->links = cluster->links;
    p->links.ranks = p->ranks;
    p->links.send_rate = p->links.recv_rate = p->rate;
    p->links.reduce_rate = INFINITY;
    p->links.per_message = 0;
}

/* The bytes of a rank in all stages, `times` times. */
static int count_rank(struct party *p, size_t rank, uint64_t times, struct round_node *node)
{
    struct round_node once = {0};
    int rc = OK;
    for (size_t i = 0; rc == OK && i < p->stages; i++) {
        struct schedule s;
        rc = make_stage(p, &s, i, p->ranks, rank);
        if (rc == OK)
            rc = round_count_steps(&s, CODEC_F32, 0, &once);
        schedule_release(&s);
    }
    node->sent += times * once.sent;
    node->received += times * once.received;
    return rc;
}

/* Seconds of the stages, which happen `times` times in a round. */
static int time_party(struct party *p, uint64_t times, double *seconds, struct round_node *node)
{
    const struct cost_tasks tasks = {.count = p->stages,
                                     .chunk = p->config->chunk,
                                     .schedule = make_stage,
                                     .begin = begin_stage,
                                     .user = p};
    *seconds = 0;
    if (p->stages == 0 || p->ranks < 2)
        return OK;
    double *end = malloc(p->stages * sizeof *end);
    int rc = end ? cost_timeline_tasks(&tasks, &p->links, end) : ERR_NOMEM;
    if (rc == OK)
        *seconds = end[p->stages - 1];
    free(end);
    for (size_t rank = 0; rc == OK && rank < p->ranks; rank++)
        rc = count_rank(p, rank, times, &node[p->node[rank]]);
    return rc;
}

/* ---- a round ---- */

struct round {
    const struct round_config *config;
    const struct round_cluster *cluster;
    const struct round_model *model;
    struct round_node *node;
    struct round_meeting *stage; /* room for those of any party */
    size_t replicas;
};

static struct party new_party(const struct round *r)
{
    return (struct party){.config = r->config, .stage = r->stage};
}

/* The steps of a replica, and what its slices bring into line at the end of a round. */
static int time_replica(const struct round *r, size_t replica, double *seconds)
{
    const struct round_slices *s = r->config->slices;
    struct party p = new_party(r);
    double steps, end;
    for (size_t f = 0; f < s->count; f++)
        take_node(&p, r->cluster, 1 + replica * s->count + f);
    for (size_t i = 0; i < s->meetings; i++)
        p.stage[p.stages++] = s->meeting[i];
    p.stage[p.stages++] =
        (struct round_meeting){(enum round_meeting_kind)STEP_ENDS, 0, s->share, 0};
    int rc = time_party(&p, r->config->tau, &steps, r->node);
    if (rc != OK)
        return rc;
    p.stages = 0;
    add_stage(&p, ROUND_SUM, r->model->s);
    add_stage(&p, ROUND_BROADCAST, s->common);
    add_stage(&p, ROUND_SUM, r->replicas > 1 ? VOTES : 0);
    rc = time_party(&p, 1, &end, r->node);
    *seconds = (double)r->config->tau * steps + end;
    return rc;
}

/* The replicas' vectors of one slice, with the sum of their weights. */
static int time_peers(const struct round *r, size_t slice, double *seconds)
{
    struct party p = new_party(r);
    for (size_t k = 0; k < r->replicas; k++)
        take_node(&p, r->cluster, 1 + k * r->config->slices->count + slice);
    add_stage(&p, ROUND_SUM, r->model->x + r->model->s + 1);
    return time_party(&p, 1, seconds, r->node);
}

static int time_commit(const struct round *r, double *seconds)
{
    struct party p = new_party(r);
    for (size_t i = 1; i <= r->cluster->workers; i++)
        take_node(&p, r->cluster, i);
    add_stage(&p, META_UP, sizeof(struct exchange_meta) / sizeof(float));
    add_stage(&p, META_DOWN, sizeof(struct exchange_meta) / sizeof(float));
    add_stage(&p, ROUND_SUM, 1);
    return time_party(&p, 1, seconds, r->node);
}

/* Peers begin when all replicas have voted, and the exchange of all ends the round. */
static int time_round(const struct round *r, double *seconds)
{
    double steps = 0, sums = 0, commit, one;
    int rc = OK;
    for (size_t k = 0; rc == OK && k < r->replicas; k++) {
        rc = time_replica(r, k, &one);
        steps = max_double(steps, one);
    }
    for (size_t f = 0; rc == OK && f < r->config->slices->count; f++) {
        rc = time_peers(r, f, &one);
        sums = max_double(sums, one);
    }
    if (rc == OK)
        rc = time_commit(r, &commit);
    if (rc == OK)
        *seconds = steps + sums + commit;
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
    r.stage = malloc((s->meetings + STAGES_BESIDES) * sizeof *r.stage);
    PL_ASSERT(s->count > 1 && r.replicas * s->count == cluster->workers);
    PL_ASSERT(cluster->workers <= RANKS_MAX);
    int rc = r.stage ? time_round(&r, &cost->seconds) : ERR_NOMEM;
    free(r.stage);
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
