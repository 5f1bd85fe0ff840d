/* A round of a strategy: its time, how much of it each node computes, and the bytes and the memory
 * of each node. Machines and links may differ. Times and bytes come from the schedules that coll
 * runs (coll/cost.h).
 *
 * A round ends with a commit point:
 *   single           one step of one worker
 *   allreduce        one step of each worker; an all-reduce of dx and s among the workers
 *   async_allreduce  the same with x or its update, which ends during the next step
 *   sync             τ steps of each worker; an all-reduce of x and s among the driver and the
 *                    workers
 *   easgd            the same, with mode: sync
 *   diloco           τ steps of each worker; each fragment of x is all-reduced once among the
 *                    workers, at its own step, and s with the last; an overlap is a number of steps
 *                    that an exchange may take without being waited for
 * Asynchronous workers have rounds of their own, each at its pace:
 *   easgd            mode: async: τ steps; a copy of the centre from the driver, and a push to it
 *   ps               a step; a push to the driver, and a copy from it, with any consistency
 *   downpour         the steps after which both a push and a copy come
 *   gossip           1/p steps, after which a model is sent at random; nothing is waited for
 *   mpca, pace       `phased`: the steps of a mean worker while each shard is exchanged once;
 *                    nothing is waited for
 * Servers of ps and downpour may be on workers, which train meanwhile.
 * A model in slices (allreduce, sync) has one slice on each worker, and R replicas:
 *   a step           a slice's part of the net's step, between the meetings of the replica's slices
 *   a round          1 or τ steps; peers, which have the same slice, add up dx and s, or x and s;
 *                    of allreduce dx in buckets that leave during the step
 * Not modelled yet: rounds of sync that a clock ends; several connections to a peer; evaluations,
 * checkpoints and changes of the membership. */
#ifndef PL_PLAN_ROUND_H
#define PL_PLAN_ROUND_H

#include "base/err.h"
#include "coll/cost.h"
#include "group/members.h"
#include "tensor/codec.h"

enum round_strategy {
    ROUND_SINGLE,
    ROUND_ALLREDUCE,
    ROUND_ASYNC_ALLREDUCE,
    ROUND_SYNC,
    ROUND_EASGD,
    ROUND_DILOCO,
    ROUND_EASGD_ASYNC,
    ROUND_PS,
    ROUND_DOWNPOUR,
    ROUND_GOSSIP,
    ROUND_PHASED,
};

/* ---- what is given ---- */

/* Node 0 is the driver, and node i + 1 is worker i, in `step` as in the ranks of `links`. */
struct round_cluster {
    size_t workers;          /* ≥ 1; single: 1 */
    const double *step;      /* s of a step of each node, > 0; the driver's is not used */
    struct cost_links links; /* of workers + 1 ranks */
    const double *jitter;    /* of each node: a step takes 1 ± jitter of `step`, drawn uniformly;
                                NULL: none varies */
};

struct round_model {
    size_t x, s;        /* floats of the flat vectors: learnt, and state that is not */
    size_t states;      /* vectors of the optimizer, each as long as x */
    uint64_t workspace; /* bytes of the planned nets and of the batches */
};

/* allreduce: a bucket of dx, which leaves when backward has finished it. */
struct round_bucket {
    size_t floats;
    double share; /* of the step that is then over, 0 to 1, ascending; 1 for the last. Of slices: of
                     the whole net's step, what a slice has then computed */
};

/* Where the slices of a model exchange a blob in a step (nn/net.h), in their order. */
enum round_meeting_kind { ROUND_GATHER, ROUND_SUM, ROUND_BROADCAST };

struct round_meeting {
    enum round_meeting_kind kind;
    size_t floats;    /* of all slices together */
    double share;     /* of the whole net's step: what a slice has computed until then, */
    double meanwhile; /* and what it computes meanwhile, before it waits for the end */
};

struct round_slices {
    size_t count; /* ≥ 2; the replicas have as many workers each, one replica after another */
    const struct round_meeting *meeting; /* of a step */
    size_t meetings;
    double share;    /* of the whole net's step: what a slice computes */
    size_t common;   /* floats of x that each slice has whole, and takes from the first */
    size_t parallel; /* floats of x of data-parallel layers, whose sum is the last meeting, unless
                        there are buckets */
    const struct round_bucket *bucket;
    size_t buckets; /* allreduce: of replicas all of dx; else that of data-parallel layers. 0: dx is
                       added up at the end of the step */
    size_t parallel_buckets; /* the last of them, which mates add up before peers do */
};

struct round_config {
    enum round_strategy strategy;
    const struct round_slices *slices; /* allreduce, sync; NULL: workers have the whole model.
                                          Else step is the whole net's, and the model's vectors are
                                          those of one slice */
    uint64_t tau;                      /* sync, easgd, diloco: steps of a round, ≥ 1; downpour:
                                          n_push; others: 1 */
    uint64_t fetch;                    /* downpour: n_fetch */
    double p;                          /* gossip: of a send after a step */
    size_t server_states; /* ps, downpour: vectors that the server keeps, as long as x */
    size_t kept_pushes;   /* ps, downpour: pushes that a worker keeps, ≥ 2 */
    bool server_rule;     /* ps, downpour: the solver's rule is the servers', and no worker touches
                             its vectors */
    /* ps: the consistency. Worker `worker` has pushed at `now` (ns); `ok`: those that may continue
     * now. NULL: each at once. */
    void (*gate)(void *user, uint32_t worker, int64_t now, struct members *ok);
    void *gate_user;
    bool in_rounds; /* ps: pushes are applied once all workers have pushed, when the gate opens */
    size_t servers; /* ps, downpour: on the first so many workers, of 63 at most; 0: the driver */
    const double *leaves; /* ps, servers on workers: of each server, the share of a step after which
                             its part of the push may leave; NULL: at the end */
    bool averages_state;  /* the optimizer's vectors are exchanged with x */
    size_t fragments;     /* diloco: 1 to 64; phased: shards; others: any */
    size_t phases;        /* phased: 1 to 3 */
    bool symmetric;       /* phased: each worker prepares a part of each shard */
    uint64_t overlap;     /* diloco: steps */
    bool keeps_inputs;    /* exchange_config.states */
    size_t kept;          /* vectors as long as x and s that the strategy keeps */
    size_t buckets;       /* allreduce: ≥ 1; others: 0 */
    const struct round_bucket *bucket; /* Σ floats is x; s travels with the last */
    enum coll_algorithm algorithm;
    size_t chunk; /* floats of a piece */
    enum codec codec;
};

/* ---- what follows ---- */

/* Bytes of a node by purpose, without copies of the model for evaluations and checkpoints. */
struct round_memory {
    uint64_t model;     /* x and s */
    uint64_t gradient;  /* dx */
    uint64_t optimizer; /* its vectors */
    uint64_t strategy;  /* its vectors: config->kept */
    uint64_t exchange;  /* input and two results, rounding errors, scratch of the schedule */
    uint64_t messages;  /* that wait to be taken in, and those that probe the links */
    uint64_t workspace;
};

struct round_node {
    double utilisation;      /* share of the round in which it computes; the driver's is 0 */
    double pace;             /* rounds a second; the driver's is 0 */
    uint64_t sent, received; /* bytes of vectors and their metadata, in a round */
    struct round_memory memory;
};

struct round_cost {
    double seconds;  /* of the round; asynchronous: of the mean pace */
    double steps;    /* of a worker in it; phased: the mean */
    double step;     /* s of one, of the slowest worker */
    double compute;  /* the slowest worker's part of it; */
    double exchange; /* and the rest of it. Asynchronous: the mean over the workers of
                                      the time in which they wait, in a round of each */
    /* 1, or less where training does not wait for links that are too slow. gossip: the share of
     * sends that find the last one gone; phased: 100 steps of a worker, of those in a round. */
    double carried;
    enum coll_algorithm algorithm; /* of the last vector; COLL_AUTO: nothing is exchanged */
};

/* Predict a round. `node` has workers + 1 places. Makes a schedule for each rank; asynchronous
 * rounds cost up to 190 rounds of the slowest worker, times the messages under way. ERR_NOMEM, with
 * the outputs undefined.
 *
 * Simulated rounds on 2 to 32 workers, equal or one of them slower, and links of 10 Mbit/s to
 * 10 Gbit/s take what is said here within 7 %, half of them within 1 %; those of asynchronous
 * workers and of models in slices within 10 %. halving_doubling on more than 64 ranks takes up to a
 * quarter longer, as cost_predict does not see it (coll/cost.h). Models in slices have at most
 * COST_TIMELINE_RANKS_MAX workers (coll/cost_timeline.h). */
int round_predict(const struct round_config *config, const struct round_cluster *cluster,
                  const struct round_model *model, struct round_cost *cost,
                  struct round_node *node);

#endif
