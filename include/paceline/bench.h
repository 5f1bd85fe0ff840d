/* Measuring. */
#ifndef PACELINE_BENCH_H
#define PACELINE_BENCH_H

#include "paceline/net.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What memory is for, in bytes, as it was planned. */
typedef struct pl_bench_memory {
    uint64_t parameters, state, gradients, optimizer; /* vectors as long as the model */
    uint64_t activations;                             /* what layers make, and keep for backward */
    uint64_t activation_gradients, scratch;
    uint64_t testing; /* a second plan of the net, for evaluations */
    uint64_t records; /* two batches: one is made ready while the other is used */
} pl_bench_memory;

typedef struct pl_bench_step_report {
    double median_ms, p10_ms, p90_ms;
    double gflops;       /* multiply-adds of the matrix products × 2 */
    double peak_percent; /* of the multiply-add peak, measured in the same run */
    double samples_per_s;
    uint64_t parameters; /* floats that are learnt */
    uint64_t state;      /* floats learnt without a gradient, such as running means */
    pl_bench_memory memory;
    double peak_mb; /* highest resident memory of the process */
    uint32_t batch; /* records a step */
    int threads;
    int reorders;              /* of activations between layouts, in one step */
    const char *kernels, *isa; /* static */
} pl_bench_step_report;

/* Time `steps` (1 … 1,000,000) whole training steps of the job's learner, each with new records,
 * after a tenth as many, at least one, that are not timed. What is wrong with the job;
 * PL_ERR_USAGE; PL_ERR_DIVERGED */
int pl_bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                  pl_bench_step_report *report);

/* The same for a net, on records of random values with random labels. A net that has no loss to
 * train on, as in a deploy.prototxt, gets one the way pl_net_spec_judge does it.
 *
 * options  may be NULL; its default solver is SGD with momentum, at a rate too low to diverge
 * record   channels, height and width; three zeros: as for pl_net_spec_layers
 *
 * As pl_net_create; PL_ERR_USAGE when nobody knows the shape of records; PL_ERR_DIVERGED */
int pl_bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                 const uint32_t record[3], uint32_t steps, pl_bench_step_report *report);

/* What it costs one core to pass over a byte of floats: nanoseconds. */
typedef struct pl_bench_bytes_report {
    double copy, sum;
    double bf16_encode, bf16_decode, int8_encode, int8_decode;
} pl_bench_bytes_report;

/* Measured over buffers that do not fit a cache, about a second. */
int pl_bench_bytes(pl_engine *engine, pl_bench_bytes_report *report);

#ifdef __cplusplus
}
#endif
#endif
