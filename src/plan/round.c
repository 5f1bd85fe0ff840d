#include "plan/round.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/auto.h"
#include "coll/cost_timeline.h"
#include "coll/exchange.h"
#include "coll/tree.h"
#include "plan/jitter.h"
#include "plan/phased_round.h"
#include "plan/round_internal.h"
#include "plan/server_round.h"
#include "plan/sliced_round.h"
#include "tensor/segment.h"
#include "tensor/vec.h"

#include <math.h>
#include <string.h>

enum { RANKS_MAX = ROUND_RANKS_MAX, MESSAGE_HEADER = 40 };

/* A vector of the round, and the time of its exchange. */
struct vector {
    size_t n, exact; /* floats; of them at the end, those that travel as they are */
    double share;    /* allreduce: of the computing after which it leaves */
    uint64_t phase;  /* others: steps of a round after which it leaves, 0 at its end */
    double seconds;  /* alone, from the moment when all ranks begin */
    double busy;     /* s of it in which the slowest link is busy */
    enum coll_algorithm algorithm;
};

/* The algorithm of a vector, and the parts of a scatter_gather. */
struct choice {
    struct cost_choice cost;
    size_t cut[RANKS_MAX + 1];
    bool is_cut;
};

/* ---- what is exchanged, and among whom ---- */

static bool has_rounds_of_steps(const struct round_config *config)
{
    return config->strategy == ROUND_SYNC || config->strategy == ROUND_EASGD ||
           config->strategy == ROUND_DILOCO;
}

/* A vector so short has fewer fragments (strategy/diloco.c). */
static size_t fragment_count(const struct round_config *config, const struct round_model *model)
{
    size_t count = config->fragments;
    while (count > 1 && model->x / count < SEGMENT_ALIGN)
        count--;
    return count;
}

static size_t vector_count(const struct round_config *config, const struct round_model *model)
{
    switch (config->strategy) {
    case ROUND_ALLREDUCE: return config->buckets;
    case ROUND_ASYNC_ALLREDUCE:
    case ROUND_SYNC:
    case ROUND_EASGD: return 1;
    case ROUND_DILOCO: return fragment_count(config, model);
    default: return 0;
    }
}

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t multiple = a;
    while (multiple % b != 0)
        multiple += a;
    return multiple;
}

/* Steps of a worker in a round that ends with an all-reduce. */
static uint64_t whole_steps(const struct round_config *config)
{
    return has_rounds_of_steps(config) ? config->tau : 1;
}

static double steps_of(const struct round_config *config)
{
    switch (config->strategy) {
    case ROUND_EASGD_ASYNC: return (double)config->tau;
    case ROUND_DOWNPOUR: return (double)common_multiple(config->tau, config->fetch);
    case ROUND_GOSSIP: return 1 / config->p;
    default: return (double)whole_steps(config);
    }
}

/* Length and moment of vector i of `count`. */
static void describe_vector(const struct round_config *config, const struct round_model *model,
                            size_t i, size_t count, struct vector *v)
{
    bool last = i + 1 == count;
    size_t s = last ? model->s : 0, states = config->averages_state ? model->states : 0;
    if (config->strategy == ROUND_ALLREDUCE) {
        *v = (struct vector){
            .n = config->bucket[i].floats + s, .exact = s, .share = config->bucket[i].share};
        return;
    }
    size_t x = range_shard(model->x, count, i).len;
    uint64_t steps = whole_steps(config);
    *v = (struct vector){
        .n = x * (1 + states) + s, .exact = s, .share = 1, .phase = steps * (i + 1) / count};
    v->phase %= steps;
}

void round_gather(const struct round_config *config, const struct round_cluster *cluster,
                  struct round_ranks *r)
{
    PL_ASSERT(cluster->links.ranks == cluster->workers + 1 && cluster->links.ranks <= RANKS_MAX);
    r->first = round_has_driver(config) ? 0 : 1;
    r->raw = cluster->links;
    r->raw.ranks -= r->first;
    r->raw.send_rate += r->first;
    r->raw.recv_rate += r->first;
    r->coded = auto_links(&r->raw, config->codec, r->rate);
}

/* Choose as an exchange does: auto's rule for short vectors, the links for long ones. These are
 * known here, where auto takes measured rates within a fifth of the fastest as equal. */
static int choose_algorithm(const struct round_config *config, const struct round_ranks *r,
                            size_t n, struct choice *c)
{
    c->is_cut = false;
    c->cost = (struct cost_choice){.algorithm = config->algorithm, .chunk = config->chunk};
    if (config->algorithm != COLL_AUTO)
        return OK;
    c->cost.algorithm = auto_rule(config->codec, r->raw.ranks, n);
    c->cost.chunk =
        auto_chunk(c->cost.algorithm, config->codec, round_has_driver(config), config->chunk);
    if (!auto_measures(n))
        return OK;
    c->cost = auto_choose_on(&r->raw, n, config->codec, c->cut);
    c->is_cut = true;
    return c->cost.algorithm == COLL_AUTO ? ERR_NOMEM : OK;
}

/* Halving-doubling has pieces of several rounds on one link, which only a timeline shows. */
static double time_alone(const struct cost_links *links, const struct choice *c, size_t n)
{
    enum coll_algorithm algorithm = c->cost.algorithm;
    const size_t *cut = c->is_cut ? c->cut : NULL;
    bool drawn = algorithm == COLL_HALVING_DOUBLING && links->ranks <= COST_TIMELINE_RANKS_MAX &&
                 !isfinite(links->reduce_rate);
    return drawn ? cost_timeline(algorithm, links, n, c->cost.chunk, cut)
                 : cost_predict(algorithm, links, n, c->cost.chunk, cut);
}

static int time_vector(const struct round_ranks *r, const struct choice *c, struct vector *v)
{
    struct cost_links instant = r->coded;
    instant.latency = 0;
    v->algorithm = c->cost.algorithm;
    v->seconds = time_alone(&r->coded, c, v->n);
    v->busy = time_alone(&instant, c, v->n);
    return isfinite(v->seconds) && isfinite(v->busy) ? OK : ERR_NOMEM;
}

/* ---- computing ---- */

/* Seconds that a node computes in a round. */
static double compute_of(const struct round_config *config, const struct round_cluster *cluster,
                         size_t node)
{
    return node == 0 ? 0 : steps_of(config) * cluster->step[node];
}

/* ---- the metadata ahead of a vector ---- */

static double meta_seconds(const struct cost_links *links, size_t from, size_t to)
{
    double bytes = sizeof(struct exchange_meta) + MESSAGE_HEADER;
    return bytes / min_double(links->send_rate[from], links->recv_rate[to]);
}

/* Metadata goes up a tree: a parent's link receives one child's after another's. `at` has the times
 * when ranks are ready, and then those when they have heard from all ranks below them. */
static void send_meta_up(const struct cost_links *links, double *at)
{
    double link_free[RANKS_MAX] = {0};
    for (size_t rank = links->ranks; rank-- > 1;) {
        size_t up = tree_parent(rank);
        link_free[up] = max_double(link_free[up], at[rank]) + meta_seconds(links, rank, up);
        at[up] = max_double(at[up], link_free[up] + links->latency);
    }
}

/* And down again: the children of a rank share its link. Returns the time when the last rank has
 * it, and the vector begins. */
static double send_meta_down(const struct cost_links *links, double *at)
{
    double last = at[0];
    for (size_t rank = 0; rank < links->ranks; rank++) {
        size_t child[TREE_CHILDREN_MAX], children = tree_children(rank, links->ranks, child);
        for (size_t k = 0; k < children; k++) {
            double sent = (double)children * meta_seconds(links, rank, child[k]);
            at[child[k]] = at[rank] + sent + links->latency;
        }
        last = max_double(last, at[rank]);
    }
    return last;
}

/* ---- bytes ---- */

int round_count_steps(struct schedule *s, enum codec codec, size_t exact, struct round_node *node)
{
    int rc = codec == CODEC_F32 ? OK : schedule_set_exact(s, s->n - exact, exact);
    for (size_t i = 0; i < s->count; i++) {
        uint64_t bytes = codec_bytes(s->step[i].exact ? CODEC_F32 : codec, s->step[i].len);
        if (s->step[i].kind == STEP_SEND)
            node->sent += bytes;
        else if (s->step[i].kind == STEP_RECV || s->step[i].kind == STEP_REDUCE)
            node->received += bytes;
    }
    return rc;
}

/* Count what a rank sends and receives for a vector, its metadata first, and the memory for it. */
static int count_rank(const struct round_config *config, const struct round_ranks *r,
                      const struct choice *c, const struct vector *v, size_t rank,
                      struct round_node *node)
{
    size_t n = v->n;
    size_t child[TREE_CHILDREN_MAX];
    uint64_t metas = tree_children(rank, r->raw.ranks, child) + (rank > 0);
    node->sent += metas * sizeof(struct exchange_meta);
    node->received += metas * sizeof(struct exchange_meta);
    struct schedule s;
    int rc =
        schedule_allreduce(&s, c->cost.algorithm, r->raw.ranks, rank, n, c->is_cut ? c->cut : NULL);
    if (rc == OK)
        rc = round_count_steps(&s, config->codec, v->exact, node);
    size_t vectors = round_exchange_vectors(config);
    node->memory.exchange += (vectors * n + s.scratch) * sizeof(float);
    schedule_release(&s);
    return rc;
}

static int count_bytes(const struct round_config *config, const struct round_ranks *r,
                       const struct choice *c, const struct vector *v, struct round_node *node)
{
    int rc = OK;
    for (size_t rank = 0; rc == OK && rank < r->raw.ranks; rank++)
        rc = count_rank(config, r, c, v, rank, &node[r->first + rank]);
    return rc;
}

/* ---- the round ---- */

/* When an exchange ends that each rank enters at its time `at`. Vectors under way at once share the
 * links. So a vector and all after it take at least the time that their bytes need, one vector
 * after the other, from the moment when it begins; and the last piece's way comes on top. */
static double end_exchange(const struct round_ranks *r, const struct vector *v, double *at,
                           double *links_free)
{
    send_meta_up(&r->raw, at);
    double begin = max_double(send_meta_down(&r->raw, at), *links_free);
    *links_free = begin + v->busy;
    return begin + v->seconds;
}

/* Buckets leave during the step, and all are awaited at its end. */
static double run_step(const struct round_cluster *cluster, const struct round_ranks *r,
                       const struct vector *v, size_t count, uint64_t step)
{
    double end = 0, links_free = 0;
    for (size_t i = 0; i < count; i++) {
        double at[RANKS_MAX];
        for (size_t rank = 0; rank < r->raw.ranks; rank++)
            at[rank] = v[i].share * jitter_steps(cluster, r->first + rank, step, 1);
        end = end_exchange(r, &v[i], at, &links_free);
    }
    return end;
}

/* The mean of some rounds, if steps vary. */
static double run_buckets(const struct round_cluster *cluster, const struct round_ranks *r,
                          const struct vector *v, size_t count)
{
    uint64_t rounds = jitter_is_on(cluster) ? JITTER_ROUNDS : 1;
    double sum = 0;
    for (uint64_t k = 0; k < rounds; k++)
        sum += run_step(cluster, r, v, count, k);
    return sum / (double)rounds;
}

/* Rounds that follow each other, where an exchange may be under way during the next steps. */
struct pipeline {
    const struct round_cluster *cluster;
    const struct round_ranks *r;
    const struct vector *v;
    size_t count;
    uint64_t steps, overlap; /* of a round; during an exchange */
    uint64_t t;              /* steps that all have taken */
    double now[RANKS_MAX];   /* of each rank */
    double links_free;
    bool in_flight[ROUND_VECTORS_MAX];
    uint64_t sent[ROUND_VECTORS_MAX]; /* steps */
    double end[ROUND_VECTORS_MAX];
};

static void submit_vector(struct pipeline *p, size_t i)
{
    double at[RANKS_MAX];
    memcpy(at, p->now, sizeof at);
    p->end[i] = end_exchange(p->r, &p->v[i], at, &p->links_free);
    p->sent[i] = p->t;
    p->in_flight[i] = true;
}

static void receive_vector(struct pipeline *p, size_t i)
{
    for (size_t rank = 0; rank < p->r->raw.ranks; rank++)
        p->now[rank] = max_double(p->now[rank], p->end[i]);
    p->in_flight[i] = false;
}

/* The step after t at which the next vector is submitted or received. */
static uint64_t next_event(const struct pipeline *p)
{
    uint64_t next = p->t + p->steps;
    for (size_t i = 0; i < p->count; i++) {
        uint64_t past = (p->t % p->steps + p->steps - p->v[i].phase) % p->steps;
        uint64_t leaves = p->t + p->steps - past, arrives = p->sent[i] + p->overlap;
        next = leaves < next ? leaves : next;
        next = p->in_flight[i] && arrives < next ? arrives : next;
    }
    return next;
}

static void take_steps(struct pipeline *p, uint64_t steps)
{
    for (size_t rank = 0; rank < p->r->raw.ranks; rank++) {
        size_t node = p->r->first + rank;
        p->now[rank] += node == 0 ? 0 : jitter_steps(p->cluster, node, p->t, steps);
    }
    p->t += steps;
}

/* First all that leaves, then all that must have arrived, as in strategy/diloco.c. */
static void exchange_vectors(struct pipeline *p)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->t % p->steps != p->v[i].phase)
            continue;
        if (p->in_flight[i])
            receive_vector(p, i);
        submit_vector(p, i);
    }
    for (size_t i = 0; i < p->count; i++)
        if (p->in_flight[i] && p->t >= p->sent[i] + p->overlap)
            receive_vector(p, i);
}

static double latest_of(const struct pipeline *p)
{
    double last = 0;
    for (size_t rank = 0; rank < p->r->raw.ranks; rank++)
        last = max_double(last, p->now[rank]);
    return last;
}

/* The mean of some rounds, after some in which the pipeline fills. */
static double run_pipeline(const struct round_config *config, const struct round_cluster *cluster,
                           const struct round_ranks *r, const struct vector *v, size_t count)
{
    enum { FILLING = 4, ROUNDS = 4 };
    struct pipeline p = {.cluster = cluster, .r = r, .v = v, .count = count};
    uint64_t rounds = jitter_is_on(cluster) ? JITTER_ROUNDS : ROUNDS;
    double begin = 0;
    p.steps = whole_steps(config);
    p.overlap = config->strategy == ROUND_ASYNC_ALLREDUCE ? 1 : config->overlap;
    while (p.t < (FILLING + rounds) * p.steps) {
        take_steps(&p, next_event(&p) - p.t);
        exchange_vectors(&p);
        if (p.t == FILLING * p.steps)
            begin = latest_of(&p);
    }
    return (latest_of(&p) - begin) / (double)rounds;
}

static int time_exchanges(const struct round_config *config, const struct round_cluster *cluster,
                          const struct round_model *model, struct round_cost *cost,
                          struct round_node *node)
{
    struct round_ranks r;
    struct vector v[ROUND_VECTORS_MAX];
    struct choice c;
    size_t count = vector_count(config, model);
    bool probed = false;
    int rc = OK;
    PL_ASSERT(count <= ROUND_VECTORS_MAX);
    round_gather(config, cluster, &r);
    if (count == 0 || r.raw.ranks < 2)
        return OK;
    for (size_t i = 0; rc == OK && i < count; i++) {
        describe_vector(config, model, i, count, &v[i]);
        rc = choose_algorithm(config, &r, v[i].n, &c);
        if (rc == OK)
            rc = time_vector(&r, &c, &v[i]);
        if (rc == OK)
            rc = count_bytes(config, &r, &c, &v[i], node);
        probed |= c.is_cut;
    }
    if (rc != OK)
        return rc;
    for (size_t rank = 0; rank < r.raw.ranks; rank++)
        node[r.first + rank].memory.messages =
            round_message_bytes(node[r.first + rank].received, probed);
    cost->algorithm = v[count - 1].algorithm;
    cost->seconds = config->strategy == ROUND_ALLREDUCE
                        ? run_buckets(cluster, &r, v, count)
                        : run_pipeline(config, cluster, &r, v, count);
    return OK;
}

/* The worker draws after each step, but not while its last model is on its way: a send every 1/p
 * steps and the time of a transfer. Models of others arrive as often. */
static void predict_gossip(const struct round_config *config, const struct round_cluster *cluster,
                           const struct round_model *model, struct round_cost *cost,
                           struct round_node *node)
{
    double bytes = (double)(model->x + model->s) * sizeof(float), all = 0;
    const struct cost_links *links = &cluster->links;
    for (size_t i = 1; i <= cluster->workers; i++) {
        double between = compute_of(config, cluster, i);
        double transfer = bytes / links->send_rate[i] + 4 * links->latency;
        double carried = between / (between + transfer);
        node[i].pace = 1 / between;
        node[i].sent = (uint64_t)(carried * bytes);
        all += carried * bytes * node[i].pace;
        cost->carried = min_double(cost->carried, carried);
    }
    for (size_t i = 1; i <= cluster->workers; i++)
        node[i].received = (uint64_t)(all / (double)cluster->workers / node[i].pace);
}

/* Each worker has rounds of its own. */
static int predict_paces(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node)
{
    double paces = 0, workers = (double)cluster->workers;
    int rc = OK;
    if (config->strategy == ROUND_GOSSIP)
        predict_gossip(config, cluster, model, cost, node);
    else
        rc = server_round_predict(config, cluster, model, node);
    for (size_t i = 1; rc == OK && i <= cluster->workers; i++) {
        double compute = compute_of(config, cluster, i);
        node[i].utilisation = min_double(1, compute * node[i].pace);
        cost->exchange += max_double(0, 1 / node[i].pace - compute) / workers;
        paces += node[i].pace;
    }
    cost->seconds = workers / paces;
    return rc;
}

/* All workers have the same rounds. */
static int predict_rounds(const struct round_config *config, const struct round_cluster *cluster,
                          const struct round_model *model, struct round_cost *cost,
                          struct round_node *node)
{
    cost->seconds = cost->compute;
    int rc = time_exchanges(config, cluster, model, cost, node);
    for (size_t i = 1; i <= cluster->workers; i++) {
        node[i].utilisation = compute_of(config, cluster, i) / cost->seconds;
        node[i].pace = 1 / cost->seconds;
    }
    cost->exchange = cost->seconds - cost->compute;
    return rc;
}

int round_predict(const struct round_config *config, const struct round_cluster *cluster,
                  const struct round_model *model, struct round_cost *cost, struct round_node *node)
{
    *cost = (struct round_cost){.algorithm = COLL_AUTO, .steps = steps_of(config), .carried = 1};
    memset(node, 0, (cluster->workers + 1) * sizeof *node);
    for (size_t i = 0; i <= cluster->workers; i++) {
        node[i].memory = i > 0 ? round_worker_memory(config, model, cluster->workers, i - 1)
                               : round_driver_memory(config, model, cluster->workers);
        cost->compute = max_double(cost->compute, compute_of(config, cluster, i));
        cost->step = i > 0 ? max_double(cost->step, cluster->step[i]) : 0;
    }
    if (config->slices)
        return sliced_round_predict(config, cluster, model, cost, node);
    if (config->strategy == ROUND_PHASED)
        return phased_round_predict(config, cluster, model, cost, node);
    return config->strategy >= ROUND_EASGD_ASYNC
               ? predict_paces(config, cluster, model, cost, node)
               : predict_rounds(config, cluster, model, cost, node);
}
