/* How long a training step takes: the whole of it, with new records each time (loaded ahead, as a
 * worker does), loss, gradient, weight decay and update. */
#ifndef PL_TRAIN_BENCH_STEP_H
#define PL_TRAIN_BENCH_STEP_H

#include "base/logger.h"
#include "job/job.h"
#include "world/world.h"

struct bench_step {
    double median_ms, p10_ms, p90_ms;
    double gflops, peak_percent; /* of the multiply-add peak measured in the same run */
    double samples_per_s;
    uint64_t parameters;
    double net_mb; /* planned: parameters, gradients, state, activations, scratch */
    int threads;
    int reorders; /* of activations between layouts, in a step */
    const char *kernels, *isa;
};

/* On a task of `world` and by its clock, take `steps` timed steps of the finished job's learner
 * (and a tenth as many before them). ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM, ERR_DIVERGED */
int bench_step_run(struct world *world, const Paceline__Job *job, const struct logger *log,
                   uint32_t steps, struct bench_step *out, struct err *err);

#endif
