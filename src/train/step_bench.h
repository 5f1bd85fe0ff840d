/* Measures a whole training step, with new records each time (loaded ahead, as on a worker): loss,
 * gradient, weight decay and update. */
#ifndef PL_TRAIN_STEP_BENCH_H
#define PL_TRAIN_STEP_BENCH_H

#include "base/logger.h"
#include "data/source.h"
#include "job/job.h"
#include "plan/round.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "train/bench_layers.h"
#include "world/world.h"

/* A learner's memory by purpose, in bytes. */
struct bench_memory {
    size_t parameters, state, gradients, optimizer; /* flat vectors */
    size_t activations, activation_gradients, scratch;
    size_t testing; /* the net as evaluations need it */
    size_t records; /* the batch, and those that are prepared ahead */
};

struct bench_options {
    uint32_t steps;      /* timed ones; 0: nothing is timed, only what needs no step is known */
    bool by_layer;       /* then up to 100 more, in which each layer is timed */
    struct tuner *tuner; /* chooses kernels; NULL: they go by rule */
    const struct shape *made_up; /* records are random ones of this shape; NULL: the job's */
    /* How the job's records are opened: bindings, URLs. Borrowed; NULL: neither. */
    const struct source_config *source;
    int64_t begun; /* by the world's clock; the first step's time counts from here */
    /* (optional) Called before the first timed step, and after the last. */
    void (*mark)(void *user, bool end);
    void *user;
};

/* dx is finished from `from` to its end when `share` (of 1) of a step is done. */
struct bench_mark {
    size_t from;
    double share;
};

struct bench_step {
    double *ms; /* of each timed step, in their order; the arena's, as are the layers */
    uint32_t steps;
    double median_ms, p10_ms, p90_ms;
    double gflops, peak_percent; /* of the multiply-add peak measured in the same run */
    double samples_per_s;
    double first_step_s;      /* until the first step was done */
    size_t parameters, state; /* floats */
    struct bench_memory memory;
    size_t batch;
    int threads;
    int reorders, casts, weight_reorders; /* in a step (nn/net.h) */
    enum dtype dtype;                     /* of images */
    const char *kernels, *isa, *layout;
    struct bench_layer *layer; /* by_layer: in the order of the file. Several `local` learners: */
    size_t layers;             /* the first one's */
    double part_ms[BENCH_PHASES];
    /* Of the flat vectors, in floats: the learnt x with its gradient, and s; the optimizer's
     * vectors, each as long as x; when parts of dx are finished; and the records of the training
     * set, less those held out. Known without steps, as are the memory and the batch. */
    size_t x, s, states;
    struct bench_mark *mark; /* the arena's */
    size_t marks;
    size_t records;
    /* Of a model in slices: x, s, the marks and the memory are those of the first slice, which has
     * the most; the times are the whole net's, and `whole` is its x. The rest of `slices` is the
     * arena's. */
    struct round_slices slices;
    size_t whole;
};

/* On a task of `world` and by its clock, take timed steps of the job's learner, and a tenth as
 * many before them, at least one; or none at all (options->steps 0). Where records are made up
 * (data/source_random.h) all that counts of the job is what a learner reads. ERR_INPUT,
 * ERR_UNSUPPORTED, ERR_NOMEM, ERR_DIVERGED */
int bench_step_run(struct world *world, const Paceline__Job *job, const struct logger *log,
                   const struct bench_options *options, struct arena *arena, struct bench_step *out,
                   struct err *err);

#endif
