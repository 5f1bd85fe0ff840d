/* How long a training step takes: the whole of it, with new records each time (loaded ahead, as a
 * worker does), loss, gradient, weight decay and update. */
#ifndef PL_TRAIN_BENCH_STEP_H
#define PL_TRAIN_BENCH_STEP_H

#include "base/logger.h"
#include "job/job.h"
#include "tensor/shape.h"
#include "world/world.h"

/* What a learner's memory is for, in bytes. */
struct bench_memory {
    size_t parameters, state, gradients, optimizer; /* flat vectors */
    size_t activations, activation_gradients, scratch;
    size_t testing; /* the net once more, as evaluations need it */
    size_t records; /* the batch, and the one that is made ready beside the step */
};

struct bench_step {
    double median_ms, p10_ms, p90_ms;
    double gflops, peak_percent; /* of the multiply-add peak measured in the same run */
    double samples_per_s;
    size_t parameters, state; /* floats */
    struct bench_memory memory;
    size_t batch;
    int threads;
    int reorders; /* of activations between layouts, in a step */
    const char *kernels, *isa;
};

/* On a task of `world` and by its clock, take `steps` timed steps of the job's learner (and a tenth
 * as many before them, at least one). Its records are the finished job's; or, where `made_up` is a
 * shape, random ones of it (data/source_random.h), and all that counts of the job is what a learner
 * reads. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM, ERR_DIVERGED */
int bench_step_run(struct world *world, const Paceline__Job *job, const struct shape *made_up,
                   const struct logger *log, uint32_t steps, struct bench_step *out,
                   struct err *err);

#endif
