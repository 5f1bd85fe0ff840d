/* Clusters, jobs and predictions for the tests that compare the model of a round (src/plan/round.c)
 * with simulated runs. */
#ifndef PL_LIB_ROUND_SCENE_H
#define PL_LIB_ROUND_SCENE_H

#include "base/rng.h"
#include "plan/round.h"
#include "strategy_sim.h"

enum { ROUND_NODES = 33, INPUTS = TINY_SIDE * TINY_SIDE, HIDDEN = 256, OUTPUTS = 160 };

#define ROUND_LATENCY 1e-4

/* Floats of the flat vectors, in which each segment begins at a multiple of 16: of the two layers
 * below, and of the tiny job's net. */
enum {
    WIDE = INPUTS * HIDDEN + HIDDEN + HIDDEN * OUTPUTS + OUTPUTS,
    TINY = (54 + 10) + (6 + 10) + (450 + 14) + (3 + 13),
};

static const char round_net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'lower' type: 'InnerProduct' bottom: 'data' top: 'lower'\n"
    "  inner_product_param { num_output: 256 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'upper' type: 'InnerProduct' bottom: 'lower' top: 'upper'\n"
    "  inner_product_param { num_output: 160 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'upper' bottom: 'label' top: 'loss' }\n";

/* Tests keep within these for half of the scenes, and for each. */
#define ROUND_MEDIAN 0.05
#define ROUND_WORST  0.10

/* A sanitizer takes minutes over 32 workers, and seconds over most scenes: it tries a third. They
 * are drawn, since scenes take their rates and their unequal nodes in turn. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUND_WORKERS_MAX = 8, ROUND_SHARE = 3 };
#else
enum { ROUND_WORKERS_MAX = 32, ROUND_SHARE = 1 };
#endif

/* Is the scene of this number, with so many workers, tried? */
static inline bool scene_is_tried(size_t scene, size_t workers)
{
    return workers <= ROUND_WORKERS_MAX && rng_below(31, 0, scene, ROUND_SHARE) == 0;
}

enum unequal { ALL_EQUAL, UNEQUAL_SPEEDS, UNEQUAL_LINKS, UNEQUALS };

struct scene {
    const char *strategy; /* as set in the job */
    struct round_config config;
    size_t workers;
    double mbit, step;
    enum unequal unequal;
    double jitter; /* of all steps */
    bool tiny;     /* the tiny job's own net */
    enum codec wire;
};

/* Worker 1 is half as fast, or its link is. */
static inline void describe_nodes(const struct scene *s, double speed[ROUND_NODES],
                                  double mbit[ROUND_NODES])
{
    for (size_t i = 0; i <= s->workers; i++) {
        speed[i] = i == 2 && s->unequal == UNEQUAL_SPEEDS ? 0.5 : 1;
        mbit[i] = i == 2 && s->unequal == UNEQUAL_LINKS ? s->mbit / 2 : s->mbit;
    }
}

static inline void write_cluster(const struct scene *s, char *text, size_t size)
{
    double speed[ROUND_NODES], mbit[ROUND_NODES];
    int at = snprintf(text, size, "step_seconds: %g link { mbit: %g latency_us: 100 }\n", s->step,
                      s->mbit);
    describe_nodes(s, speed, mbit);
    for (size_t i = 1; i <= s->workers; i++)
        at += snprintf(text + at, size - (size_t)at, "node { speed: %g mbit: %g jitter: %g }\n",
                       speed[i], mbit[i], s->jitter);
}

static inline struct round_cost predict_scene(const struct scene *s,
                                              struct round_node node[ROUND_NODES])
{
    double step[ROUND_NODES], rate[ROUND_NODES], jitter[ROUND_NODES];
    struct round_cost cost;
    describe_nodes(s, step, rate);
    for (size_t i = 0; i <= s->workers; i++) {
        step[i] = s->step / step[i];
        rate[i] *= 1e6 / 8;
        jitter[i] = s->jitter;
    }
    const struct round_cluster cluster = {
        s->workers, step, {s->workers + 1, rate, rate, ROUND_LATENCY, INFINITY, 0}, jitter};
    const struct round_model model = {.x = s->tiny ? TINY : WIDE, .states = 1};
    const struct round_bucket whole = {model.x, 1};
    struct round_config config = s->config;
    config.chunk = 16 * 1024;
    config.codec = s->wire;
    if (config.strategy == ROUND_ALLREDUCE && config.buckets == 0) {
        config.buckets = 1;
        config.bucket = &whole;
    }
    assert_int_equal(round_predict(&config, &cluster, &model, &cost, node), OK);
    return cost;
}

#endif
