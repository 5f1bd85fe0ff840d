#include "api/plan_round.h"

#include "base/minmax.h"
#include "coll/cost_timeline.h"
#include "strategy/gossip_sender.h"
#include "tensor/vec.h"

#include <math.h>
#include <string.h>

const char *const plan_modelled[] = {"single", "sync",   "allreduce", "async_allreduce",
                                     "easgd",  "diloco", "ps",        "downpour",
                                     "gossip", "mpca",   "pace",      NULL};

enum { PUSHES_KEPT = 8, DOWNPOUR_EVENTS_MAX = 64 };

/* ---- the strategy ---- */

static const char *sync_round(const Paceline__Job *job, struct round_config *config)
{
    const Paceline__Sync *sync = job->strategy->sync;
    if (sync->has_seconds)
        return "rounds that a clock ends (strategy.sync.seconds) are not modelled";
    config->strategy = ROUND_SYNC;
    config->tau = sync->tau_auto ? 0 : sync->tau;
    config->averages_state = sync->on_replace == PACELINE__ON_REPLACE__average;
    return NULL;
}

/* When the part of dx from there on is finished. */
static double share_of(const struct bench_step *learner, size_t from)
{
    for (size_t i = 0; i < learner->marks; i++)
        if (learner->mark[i].from <= from)
            return learner->mark[i].share;
    return 1;
}

/* The buckets of a slice's gradient. */
static void cut_slice(const Paceline__Job *job, const struct bench_step *learner,
                      struct plan_round *out)
{
    struct slice_bucket part[SLICE_BUCKETS_MAX];
    const struct slice_cut cut = {
        .floats = learner->x,
        .parallel = learner->slices.parallel,
        .whole = learner->whole,
        .slices = job->slices,
        .replicas = job->workers > job->slices,
    };
    out->slices.bucket = out->bucket;
    out->slices.buckets = slice_buckets_cut(job, &cut, part);
    out->slices.parallel_buckets = 0;
    for (size_t i = 0; i < out->slices.buckets; i++) {
        double share = share_of(learner, part[i].range.from) * learner->slices.share;
        out->bucket[i] = (struct round_bucket){part[i].range.len, share};
        out->slices.parallel_buckets += part[i].parallel;
    }
}

/* Workers have a slice each. But for `allreduce` they keep the model, and the optimizer's vectors,
 * until the round is committed; `diloco` and `easgd` have a vector more. */
static const char *sliced_round(const Paceline__Job *job, const struct bench_step *learner,
                                struct plan_round *out)
{
    struct round_config *config = &out->config;
    out->slices = learner->slices;
    config->slices = &out->slices;
    cut_slice(job, learner, out);
    bool owns = config->strategy == ROUND_DILOCO || config->strategy == ROUND_EASGD;
    if (config->strategy != ROUND_ALLREDUCE)
        config->kept = 1 + learner->states + owns;
    if (config->tau == 0)
        return "rounds of tau_auto are not modelled for slices";
    return job->workers > COST_TIMELINE_RANKS_MAX
               ? "more than 64 workers with slices are not modelled"
               : NULL;
}

/* Buckets leave from the end of dx on, the last of them at the end of the step. */
static const char *allreduce_round(const Paceline__Job *job, const struct bench_step *learner,
                                   struct plan_round *out)
{
    size_t n = allreduce_buckets(job, learner->x);
    out->config.strategy = ROUND_ALLREDUCE;
    out->config.buckets = n;
    for (size_t i = 0; i < n; i++) {
        size_t from = schedule_cut(learner->x, n, n - 1 - i);
        size_t end = schedule_cut(learner->x, n, n - i);
        double share = i + 1 == n ? 1 : share_of(learner, from);
        out->bucket[i] = (struct round_bucket){end - from, share};
    }
    return NULL;
}

/* The first method has the next x apart. */
static const char *async_round(const Paceline__Job *job, struct round_config *config)
{
    config->strategy = ROUND_ASYNC_ALLREDUCE;
    config->kept = job->strategy->async_allreduce->method == 1;
    return NULL;
}

static const char *easgd_round(const Paceline__Job *job, struct round_config *config)
{
    const Paceline__Easgd *easgd = job->strategy->easgd;
    bool async = easgd->mode == PACELINE__EASGD__MODE__async;
    if (easgd->tau_auto)
        return "rounds of tau_auto are not modelled";
    config->strategy = async ? ROUND_EASGD_ASYNC : ROUND_EASGD;
    config->tau = easgd->tau;
    config->keeps_inputs = true;
    config->kept_pushes = config->codec == CODEC_F32 ? 2 : PUSHES_KEPT;
    /* Async: pushes, the centre, a copy that arrives, and with a lossy codec the newest copy. */
    config->kept = async ? config->kept_pushes + 2 + (config->codec != CODEC_F32) : 1;
    return NULL;
}

/* x̃ and v. */
static const char *diloco_round(const Paceline__Job *job, struct round_config *config)
{
    const Paceline__DiLoCo *diloco = job->strategy->diloco;
    config->strategy = ROUND_DILOCO;
    config->tau = diloco->tau;
    config->fragments = diloco->fragments;
    config->overlap = diloco->overlap;
    config->averages_state = diloco->on_replace == PACELINE__ON_REPLACE__average;
    config->kept = 2;
    return NULL;
}

static void on_push(void *user, uint32_t worker, int64_t now, struct members *ok)
{
    struct members pushed = {0};
    members_add(&pushed, worker);
    consistency_push(user, &pushed, now, ok);
}

/* Pushes, the newest state and one that arrives, the newest copy, and what a codec has lost. */
static size_t client_vectors(const struct round_config *config)
{
    bool lossy = config->codec != CODEC_F32, apart = config->server_states > 0 || lossy;
    return config->kept_pushes + 2 * (1 + config->server_states) + apart + lossy;
}

/* Servers on workers: how many, and when their parts of a gradient are finished. NULL, or why that
 * is not modelled. */
static const char *place_servers(const Paceline__Job *job, const struct bench_step *learner,
                                 uint32_t servers, bool colocated, struct plan_round *out)
{
    if (servers == 1 && !colocated)
        return NULL;
    if (job->workers >= COST_TIMELINE_RANKS_MAX)
        return "servers on more than 63 workers are not modelled";
    out->config.servers = colocated ? job->workers : servers;
    out->config.leaves = out->leaves;
    for (size_t i = 0; i < out->config.servers; i++) {
        size_t from = range_shard(learner->x + learner->s, out->config.servers, i).from;
        out->leaves[i] = share_of(learner, from);
    }
    return NULL;
}

static const char *ps_round(const Paceline__Job *job, const struct bench_step *learner,
                            struct plan_round *out)
{
    const Paceline__Ps *ps = job->strategy->ps;
    const struct consistency_config consistency = ps_consistency(job);
    struct members workers = {0};
    for (uint32_t i = 0; i < job->workers; i++)
        members_add(&workers, i);
    consistency_init(&out->consistency, &consistency);
    consistency_join(&out->consistency, &workers);
    out->config.strategy = ROUND_PS;
    out->config.server_rule = true;
    out->config.server_states = learner->states;
    out->config.kept_pushes = PUSHES_KEPT;
    out->config.kept = client_vectors(&out->config);
    out->config.gate = on_push;
    out->config.gate_user = &out->consistency;
    out->config.in_rounds = consistency.kind == CONSISTENCY_BSP;
    return place_servers(job, learner, ps->servers, ps->colocated, out);
}

static const char *downpour_round(const Paceline__Job *job, const struct bench_step *learner,
                                  struct plan_round *out)
{
    struct round_config *config = &out->config;
    const Paceline__Downpour *d = job->strategy->downpour;
    uint64_t pushes = ((uint64_t)d->n_fetch + d->n_push - 1) / d->n_push, both = d->n_push;
    if (pushes >= PUSHES_KEPT)
        return "more than seven pushes to a fetch are not modelled";
    while (both % d->n_fetch != 0 && both / d->n_push < DOWNPOUR_EVENTS_MAX)
        both += d->n_push;
    if (both % d->n_fetch != 0 || both / d->n_fetch > DOWNPOUR_EVENTS_MAX)
        return "n_push and n_fetch with so large a common multiple are not modelled";
    config->strategy = ROUND_DOWNPOUR;
    config->tau = d->n_push;
    config->fetch = d->n_fetch;
    bool at_server = d->learning_rule == PACELINE__DOWNPOUR__LEARNING_RULE__server;
    config->server_rule = at_server;
    config->server_states = at_server ? learner->states : d->server_adagrad ? 1 : 0;
    bool apart = config->server_states > 0 || config->codec != CODEC_F32;
    config->kept_pushes = apart ? PUSHES_KEPT : (size_t)pushes + 1;
    bool apart_steps = at_server || strcmp(job->solver->type, "SGD") != 0;
    config->kept = client_vectors(config) + 1 + apart_steps; /* and the sum, and a step */
    return place_servers(job, learner, d->servers, d->colocated, out);
}

/* A model that leaves, and those that arrive: also of two workers one may send its next model
 * before the other one has mixed in the last. */
static const char *gossip_round(const Paceline__Job *job, struct round_config *config)
{
    config->strategy = ROUND_GOSSIP;
    config->p = job->strategy->gossip->p;
    config->kept = 1 + GOSSIP_INBOX;
    return config->p > 0 ? NULL : "rounds without a send (strategy.gossip.p) are not modelled";
}

/* Shards that are exchanged during training. Besides the exchanges' three vectors a worker has
 * contributions, a heading and x̃*; without a driver a second heading, x̃, ṽ and its parts; and for
 * `pace` or a penalty in the gradient one more. */
static const char *phased_round(const Paceline__Job *job, struct round_config *config)
{
    bool is_pace = job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_PACE;
    const Paceline__Mpca *mpca = job->strategy->mpca;
    const Paceline__Pace *pace = job->strategy->pace;
    config->strategy = ROUND_PHASED;
    config->symmetric = (is_pace ? pace->coordination : mpca->coordination) ==
                        PACELINE__MPCA__COORDINATION__symmetric;
    config->fragments = is_pace ? pace->shards : mpca->shards;
    config->phases = is_pace ? 3 : mpca->phases;
    config->keeps_inputs = !is_pace;
    size_t own = is_pace || mpca->penalty == PACELINE__MPCA__PENALTY__gradient;
    config->kept = (config->symmetric ? 7 : 3) + own;
    bool many = job->workers + !config->symmetric > COST_TIMELINE_RANKS_MAX;
    return many ? "more than 63 workers are not modelled" : NULL;
}

static const char *round_of(const Paceline__Job *job, const struct bench_step *learner,
                            struct plan_round *out)
{
    const char *name = job_strategy_name(job);
    const struct exchange_config exchange = strategy_exchange_config(job);
    out->config = (struct round_config){
        .strategy = ROUND_SINGLE,
        .tau = 1,
        .fetch = 1,
        .bucket = out->bucket,
        .algorithm = exchange.algorithm,
        .chunk = exchange.chunk,
        .codec = exchange.codec,
    };
    if (strcmp(name, "single") == 0)
        return NULL;
    if (strcmp(name, "sync") == 0)
        return sync_round(job, &out->config);
    if (strcmp(name, "allreduce") == 0)
        return allreduce_round(job, learner, out);
    if (strcmp(name, "async_allreduce") == 0)
        return async_round(job, &out->config);
    if (strcmp(name, "easgd") == 0)
        return easgd_round(job, &out->config);
    if (strcmp(name, "diloco") == 0)
        return diloco_round(job, &out->config);
    if (strcmp(name, "ps") == 0)
        return ps_round(job, learner, out);
    if (strcmp(name, "downpour") == 0)
        return downpour_round(job, learner, out);
    if (strcmp(name, "gossip") == 0)
        return gossip_round(job, &out->config);
    if (strcmp(name, "mpca") == 0 || strcmp(name, "pace") == 0)
        return phased_round(job, &out->config);
    return "there is no model of its rounds";
}

const char *plan_round_of(const Paceline__Job *job, const struct bench_step *learner,
                          struct plan_round *out)
{
    const char *why = round_of(job, learner, out);
    return why || job->slices == 1 ? why : sliced_round(job, learner, out);
}

struct round_model plan_model_of(const struct bench_step *learner)
{
    const struct bench_memory *m = &learner->memory;
    return (struct round_model){
        .x = learner->x,
        .s = learner->s,
        .states = learner->states,
        .workspace =
            m->activations + m->activation_gradients + m->scratch + m->testing + m->records,
    };
}

/* ---- the cluster ---- */

struct round_cluster plan_cluster_of(const Paceline__Cluster *cluster, const Paceline__Job *job,
                                     double seconds, bool cores, size_t workers, double *memory)
{
    double *step = memory, *rate = memory + workers + 1, *jitter = rate + workers + 1;
    const Paceline__Costs *costs = cluster->costs;
    step[0] = jitter[0] = 0;
    rate[0] = cluster->link->mbit * 1e6 / 8;
    for (size_t i = 0; i < workers; i++) {
        const Paceline__Node *node = cluster_node(cluster, (uint32_t)i);
        double mbit = node->has_mbit ? node->mbit : cluster->link->mbit;
        uint32_t used = node->cores < job->local ? node->cores : job->local;
        step[i + 1] = seconds / (node->speed * (cores ? used : 1));
        rate[i + 1] = mbit * 1e6 / 8;
        jitter[i + 1] = node->jitter;
    }
    return (struct round_cluster){
        .workers = workers,
        .step = step,
        .jitter = jitter,
        .links =
            {
                .ranks = workers + 1,
                .send_rate = rate,
                .recv_rate = rate,
                .latency = cluster->link->latency_us * 1e-6,
                .reduce_rate =
                    costs && costs->has_reduce_gb_s ? costs->reduce_gb_s * 1e9 : INFINITY,
            },
    };
}
