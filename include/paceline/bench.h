/* Measuring. */
#ifndef PACELINE_BENCH_H
#define PACELINE_BENCH_H

#include "paceline/net.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The planned memory by purpose, in bytes. */
typedef struct pl_bench_memory {
    uint64_t parameters, state, gradients, optimizer; /* vectors as long as the model */
    uint64_t activations;                             /* outputs of layers, and values kept for
                                                         backward */
    uint64_t activation_gradients, scratch;
    uint64_t testing; /* a second plan of the net, for evaluations */
    uint64_t records; /* the batch in use, and those that are prepared ahead */
} pl_bench_memory;

/* Zero or NULL stands for the default. */
typedef struct pl_bench_options {
    size_t size;           /* sizeof this struct */
    uint32_t steps;        /* to be timed, up to 1,000,000; 200 */
    bool by_layer;         /* fill in `layers` */
    const char *precision; /* "f32" or "bf16"; NULL: the job's, or f32 */
} pl_bench_options;

/* A layer's part in a training step; medians. */
typedef struct pl_bench_layer {
    char name[64], type[24]; /* these and `chosen` are cut where they are longer */
    size_t dims, shape[8]; /* of its result, for the batch; 0 for a number, or where it has none */
    double forward_ms, backward_ms;
    double gflops;    /* of its products, forward and backward; 0: it has none */
    double share;     /* of the step; of 1 */
    char chosen[160]; /* the code that runs each direction, in words; "": there was no choice */
} pl_bench_layer;

enum { PL_BENCH_THREADS_MAX = 64 };

typedef struct pl_bench_step_report {
    double median_ms, p10_ms, p90_ms;
    double gflops;       /* multiply-adds of the matrix products × 2 */
    double peak_percent; /* of the multiply-add peak, measured in the same run */
    double samples_per_s;
    double first_step_s; /* from the call until the first step was done, */
    double tuning_s;     /* seconds of it for choosing codes; 0: all choices were known */
    uint64_t parameters; /* floats that are learnt */
    uint64_t state;      /* floats learnt without a gradient, such as running means */
    pl_bench_memory memory;
    double peak_mb;  /* highest resident memory of the process */
    double begin_mb; /* the same before the call */
    uint64_t faults; /* pages of memory that the timed steps were the first to touch */
    uint32_t batch;  /* records a step */
    int threads;     /* that are to compute; */
    /* The threads of the process, this engine's and all others: their number; for those that used a
     * processor most, the share of the timed steps during which each did, in falling order; and how
     * many of them did so for at least a quarter of the first one's time. Linux only, else 0. */
    int process_threads, busy_threads;
    double busy[PL_BENCH_THREADS_MAX];
    /* Copies in one step besides the arithmetic: of images between layouts, of values between f32
     * and bf16, and of weights and their gradients between canonical order and the order of a
     * kernel. */
    int reorders, casts, weight_reorders;
    const char *kernels, *isa; /* static */
    const char *layout;        /* of images between layers: "nchw", "nhwc", "nchw16c"; static */
    const char *precision;     /* static */

    /* pl_bench_step_release frees the following fields. */
    double *ms; /* ms of each of the `steps`, in their order */
    uint32_t steps;
    pl_bench_layer *layer; /* with by_layer, from further steps in which each layer was timed */
    size_t layers;
    /* Milliseconds of a probed step: in total, waiting for records (the loader prepares them during
     * the step before), clearing the gradient, the update, and the remainder, such as reading the
     * clock. */
    double probed_ms, loading_ms, clearing_ms, update_ms, rest_ms;
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_bench_step_report;

/* Time whole training steps of the job's learner: each with new records, with loss, gradient,
 * weight decay and update, after a tenth as many, at least one, that are not timed. `options` may
 * be NULL. The report is written on success only. PL_ERR_INPUT: the job is wrong; PL_ERR_USAGE;
 * PL_ERR_UNSUPPORTED; PL_ERR_DIVERGED */
int pl_bench_step(pl_engine *engine, const pl_job *job, const pl_bench_options *options,
                  pl_bench_step_report *report);

/* The same for a net, on records of random values with random labels. A net that has no loss to
 * train on, as in a deploy.prototxt, gets one the way pl_net_spec_judge does it.
 *
 * net      may be NULL; its default solver is SGD with momentum, at a rate too low to diverge
 * record   channels, height and width; three zeros: as for pl_net_spec_layers
 *
 * As pl_net_create; PL_ERR_USAGE: the shape of records is unknown; PL_ERR_DIVERGED */
int pl_bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *net,
                 const uint32_t record[3], const pl_bench_options *options,
                 pl_bench_step_report *report);

/* Frees the memory of the report; it may be called twice. */
void pl_bench_step_release(pl_bench_step_report *report);

/* Zero stands for the default. */
typedef struct pl_bench_data_options {
    size_t size;          /* sizeof this struct */
    uint32_t batch;       /* records, up to 65,536; 64 */
    unsigned threads;     /* tasks that read at most; one for each core */
    double seconds;       /* of each phase; 3 */
    double share;         /* a second phase takes batches at this share of the rate; 0: none */
    uint64_t cache_bytes; /* records are kept in so much memory */
} pl_bench_data_options;

typedef struct pl_bench_data_report {
    size_t records;           /* of the set */
    double open_s;            /* from the call until they were open, */
    double first_batch_s;     /* and until the first batch was there */
    uint64_t taken;           /* records, in the first phase */
    double records_per_s;     /* taken as fast as they come */
    double median_ms, p99_ms; /* of taking a batch */
    /* The share of the second phase in which the taker waited for records; -1: there was none. */
    double waited_share;
    uint64_t kept_records, kept_bytes; /* in memory at the end */
    uint32_t batch, tasks;
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_bench_data_report;

/* Time how records of a SPEC are made ready as for training: opened, read, decoded and mapped,
 * in batches ahead, by several tasks. `options` may be NULL. As pl_data_open; PL_ERR_USAGE:
 * options out of their limits */
int pl_bench_data(pl_engine *engine, const char *spec, const pl_bench_data_options *options,
                  pl_bench_data_report *report);

/* Nanoseconds that one core takes to pass over a byte of floats. */
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
