#include "plan/round.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/auto.h"
#include "coll/exchange.h"
#include "coll/tree.h"

#include <math.h>
#include <string.h>

enum { RANKS_MAX = VIEW_MEMBERS_MAX + 1, MESSAGE_HEADER = 40 };

/* A vector of the round, and the time of its exchange. */
struct vector {
    size_t n;
    double share;              /* of the computing after which it leaves */
    struct cost_choice choice; /* seconds: alone, from the moment when all ranks begin */
    double busy;               /* s of it in which the slowest link is busy */
    size_t cut[RANKS_MAX + 1];
    bool is_cut;
};

/* The ranks of the round's exchanges, and their links without and with the codec. */
struct rank_links {
    size_t first; /* node of rank 0: the driver, or the first worker */
    struct cost_links raw, coded;
    double rate[2 * RANKS_MAX];
};

/* ---- what is exchanged, and among whom ---- */

static size_t vector_count(const struct round_config *config)
{
    switch (config->strategy) {
    case ROUND_SINGLE: return 0;
    case ROUND_ALLREDUCE: return config->buckets;
    case ROUND_SYNC: return 1;
    }
    return 0;
}

/* Length and moment of vector i. */
static void describe_vector(const struct round_config *config, const struct round_model *model,
                            size_t i, struct vector *v)
{
    if (config->strategy == ROUND_SYNC) {
        size_t states = config->averages_state ? model->states : 0;
        v->n = model->x * (1 + states) + model->s;
        v->share = 1;
        return;
    }
    bool last = i + 1 == config->buckets;
    v->n = config->bucket[i].floats + (last ? model->s : 0);
    v->share = config->bucket[i].share;
}

static void gather_ranks(const struct round_config *config, const struct round_cluster *cluster,
                         struct rank_links *r)
{
    PL_ASSERT(cluster->links.ranks == cluster->workers + 1 && cluster->links.ranks <= RANKS_MAX);
    r->first = config->strategy == ROUND_SYNC ? 0 : 1;
    r->raw = cluster->links;
    r->raw.ranks -= r->first;
    r->raw.send_rate += r->first;
    r->raw.recv_rate += r->first;
    r->coded = auto_links(&r->raw, config->codec, r->rate);
}

/* Choose as an exchange does: auto's rule for short vectors, the links for long ones. These are
 * known here, where auto takes measured rates within a fifth of the fastest as equal. */
static int choose_algorithm(const struct round_config *config, const struct rank_links *r,
                            struct vector *v)
{
    v->is_cut = false;
    v->choice = (struct cost_choice){.algorithm = config->algorithm, .chunk = config->chunk};
    if (config->algorithm != COLL_AUTO)
        return OK;
    v->choice.algorithm = auto_rule(config->codec, r->raw.ranks, v->n);
    if (!auto_measures(v->n))
        return OK;
    v->choice = auto_choose_on(&r->raw, v->n, config->codec, v->cut);
    v->is_cut = true;
    return v->choice.algorithm == COLL_AUTO ? ERR_NOMEM : OK;
}

static int time_vector(const struct rank_links *r, struct vector *v)
{
    const size_t *cut = v->is_cut ? v->cut : NULL;
    struct cost_links instant = r->coded;
    instant.latency = 0;
    v->choice.seconds = cost_predict(v->choice.algorithm, &r->coded, v->n, v->choice.chunk, cut);
    v->busy = cost_predict(v->choice.algorithm, &instant, v->n, v->choice.chunk, cut);
    return isfinite(v->choice.seconds) && isfinite(v->busy) ? OK : ERR_NOMEM;
}

/* ---- computing ---- */

static double steps_of(const struct round_config *config)
{
    return config->strategy == ROUND_SYNC ? config->tau : 1;
}

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

/* When the last rank has the metadata of a vector that leaves after that share of the computing. */
static double begin_vector(const struct round_config *config, const struct round_cluster *cluster,
                           const struct rank_links *r, double share)
{
    double at[RANKS_MAX] = {0};
    for (size_t rank = 0; rank < r->raw.ranks; rank++)
        at[rank] = share * compute_of(config, cluster, r->first + rank);
    send_meta_up(&r->raw, at);
    return send_meta_down(&r->raw, at);
}

/* ---- bytes and memory ---- */

/* Count what a rank sends and receives for a vector, its metadata first, and the memory for it. */
static int count_rank(const struct rank_links *r, const struct vector *v, enum codec codec,
                      size_t rank, struct round_node *node)
{
    size_t child[TREE_CHILDREN_MAX];
    uint64_t metas = tree_children(rank, r->raw.ranks, child) + (rank > 0);
    node->sent += metas * sizeof(struct exchange_meta);
    node->received += metas * sizeof(struct exchange_meta);
    struct schedule s;
    int rc = schedule_allreduce(&s, v->choice.algorithm, r->raw.ranks, rank, v->n,
                                v->is_cut ? v->cut : NULL);
    for (size_t i = 0; rc == OK && i < s.count; i++) {
        uint64_t bytes = codec_bytes(codec, s.step[i].len);
        if (s.step[i].kind == STEP_SEND)
            node->sent += bytes;
        else if (s.step[i].kind == STEP_RECV || s.step[i].kind == STEP_REDUCE)
            node->received += bytes;
    }
    size_t vectors = codec == CODEC_F32 ? 3 : 5; /* input, two results; and two rounding errors */
    node->memory.exchange += (vectors * v->n + s.scratch) * sizeof(float);
    schedule_release(&s);
    return rc;
}

static int count_bytes(const struct round_config *config, const struct rank_links *r,
                       const struct vector *v, struct round_node *node)
{
    int rc = OK;
    for (size_t rank = 0; rc == OK && rank < r->raw.ranks; rank++)
        rc = count_rank(r, v, config->codec, rank, &node[r->first + rank]);
    return rc;
}

static struct round_memory worker_memory(const struct round_model *model)
{
    return (struct round_memory){
        .model = (model->x + model->s) * sizeof(float),
        .gradient = model->x * sizeof(float),
        .optimizer = model->states * model->x * sizeof(float),
        .workspace = model->workspace,
    };
}

/* A driver that takes part in exchanges holds the global model. */
static struct round_memory driver_memory(const struct round_config *config,
                                         const struct round_model *model)
{
    bool holds = config->strategy == ROUND_SYNC;
    return (struct round_memory){.model = holds ? (model->x + model->s) * sizeof(float) : 0};
}

/* ---- the round ---- */

/* Vectors under way at once share the links. So a vector and all after it take at least the time
 * that their bytes need, one vector after the other, from the moment when it begins; and the last
 * piece's way comes on top. */
static int time_exchanges(const struct round_config *config, const struct round_cluster *cluster,
                          const struct round_model *model, struct round_cost *cost,
                          struct round_node *node)
{
    struct rank_links r;
    struct vector v;
    double links_free = 0;
    gather_ranks(config, cluster, &r);
    for (size_t i = 0; i < vector_count(config) && r.raw.ranks > 1; i++) {
        describe_vector(config, model, i, &v);
        int rc = choose_algorithm(config, &r, &v);
        if (rc == OK)
            rc = time_vector(&r, &v);
        if (rc == OK)
            rc = count_bytes(config, &r, &v, node);
        if (rc != OK)
            return rc;
        double begin = max_double(begin_vector(config, cluster, &r, v.share), links_free);
        links_free = begin + v.busy;
        cost->seconds = begin + v.choice.seconds;
        cost->algorithm = v.choice.algorithm;
    }
    return OK;
}

int round_predict(const struct round_config *config, const struct round_cluster *cluster,
                  const struct round_model *model, struct round_cost *cost, struct round_node *node)
{
    *cost = (struct round_cost){.algorithm = COLL_AUTO};
    memset(node, 0, (cluster->workers + 1) * sizeof *node);
    for (size_t i = 0; i <= cluster->workers; i++) {
        node[i].memory = i > 0 ? worker_memory(model) : driver_memory(config, model);
        cost->compute = max_double(cost->compute, compute_of(config, cluster, i));
    }
    cost->seconds = cost->compute;
    int rc = time_exchanges(config, cluster, model, cost, node);
    for (size_t i = 1; i <= cluster->workers; i++)
        node[i].utilisation = compute_of(config, cluster, i) / cost->seconds;
    return rc;
}
