/* Measuring. */
#ifndef PACELINE_BENCH_H
#define PACELINE_BENCH_H

#include "paceline/job.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_bench_step_report {
    double median_ms, p10_ms, p90_ms;
    double gflops;       /* multiply-adds of the matrix products × 2 */
    double peak_percent; /* of the multiply-add peak, measured in the same run */
    double samples_per_s;
    uint64_t parameters;
    double net_mb;  /* memory planned for the net, its vectors and the step */
    double peak_mb; /* highest resident memory of the process */
    int threads;
    int reorders;              /* of activations between layouts, in one step */
    const char *kernels, *isa; /* static */
} pl_bench_step_report;

/* Time `steps` (10 … 1,000,000) whole training steps of the job's learner, each with new records.
 */
int pl_bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                  pl_bench_step_report *report);

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
