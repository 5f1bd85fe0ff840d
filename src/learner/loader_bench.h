/* Measures how fast records are made ready, as a worker makes them ready: opened, read, decoded and
 * mapped, in batches ahead, by several tasks. */
#ifndef PL_LEARNER_LOADER_BENCH_H
#define PL_LEARNER_LOADER_BENCH_H

#include "data/record_cache.h"
#include "world/world.h"

struct loader_bench_options {
    size_t batch;   /* records, > 0 */
    int threads;    /* > 0: tasks at most; a fourth of them at first */
    double seconds; /* of each phase; two take turns */
    double share;   /* a second phase takes batches at this share of the rate; 0: none */
    size_t cache;   /* bytes of records that are kept; 0: none */
    uint64_t seed;  /* of the order and of maps that draw */
    int64_t begun;  /* by the world's clock; times count from here */
    const struct source_config *config;
};

struct loader_bench {
    size_t records;           /* of the set */
    double open_s;            /* until it was open, */
    double first_batch_s;     /* and the first batch was there */
    uint64_t taken;           /* records, in the first phase */
    double records_per_s;     /* taken as fast as they come */
    double median_ms, p99_ms; /* of taking a batch */
    size_t tasks;             /* at the end */
    double waited_share; /* of the second phase, in which the taker waited; -1: there was none */
    struct record_cache_counts kept;
};

/* On a task of `world`. `spec` is as for source_open. ERR_INPUT, ERR_IO, ERR_NOMEM */
int loader_bench_run(struct world *world, const Paceline__Data *spec,
                     const struct loader_bench_options *options, struct loader_bench *out,
                     struct err *err);

#endif
