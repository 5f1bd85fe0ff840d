#include "train/bench_step.h"

#include "learner/learner.h"
#include "tensor/peak.h"

#include <stdlib.h>

struct bench {
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
    double *ms; /* of each timed step */
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Operations a second at the machine's best: the highest of three runs of some milliseconds. */
static double measure_peak(struct world *world)
{
    double best = 0;
    for (int i = 0; i < 4; i++) { /* the first wakes the threads */
        int64_t start = world_now(world);
        double done = peak_run(400000);
        double rate = done / world_seconds(world_now(world) - start);
        if (i > 0 && rate > best)
            best = rate;
    }
    return best;
}

static int time_steps(struct bench *b, struct world *world, uint32_t steps, struct err *err)
{
    uint64_t place = 0;
    size_t batch = b->learner.job->batch;
    uint32_t warm = steps / 10 + 1;
    for (uint32_t i = 0; i < warm + steps; i++) {
        int64_t start = world_now(world);
        int rc = learner_step(&b->learner, place, batch);
        if (rc != OK)
            return err_set(err, rc, "step %u: %s", i, status_text(rc));
        if (i >= warm)
            b->ms[i - warm] = world_seconds(world_now(world) - start) * 1e3;
        place += batch;
    }
    qsort(b->ms, steps, sizeof *b->ms, compare_doubles);
    return OK;
}

static int open_bench(struct bench *b, struct world *world, const Paceline__Job *job,
                      const struct logger *log, uint32_t steps, struct err *err)
{
    int rc = corpus_open(job, &b->corpus, err);
    if (rc == OK)
        rc = workspace_create(job, &b->corpus, log, &b->ws, err);
    if (rc == OK)
        rc = workspace_load_ahead(b->ws, world, err);
    if (rc == OK)
        rc = learner_init(&b->learner, NULL, job, &b->corpus, b->ws, &b->arena, NULL, err);
    if (rc == OK)
        rc = learner_start(&b->learner, world, err);
    if (rc == OK && !(b->ms = arena_array(&b->arena, steps, double)))
        rc = err_set(err, ERR_NOMEM, "out of memory for %u steps", steps);
    return rc;
}

static void summarise(const struct bench *b, uint32_t steps, double peak, struct bench_step *out)
{
    const struct net_memory memory = workspace_memory(b->ws);
    double median = b->ms[steps / 2];
    double flops = workspace_flops(b->ws);
    *out = (struct bench_step){
        .median_ms = median,
        .p10_ms = b->ms[steps / 10],
        .p90_ms = b->ms[steps - 1 - steps / 10],
        .gflops = flops / median * 1e-6,
        .peak_percent = 100.0 * flops / (median * 1e-3) / peak,
        .samples_per_s = (double)b->learner.job->batch / median * 1e3,
        .parameters = b->learner.table->total,
        .net_mb =
            (double)(memory.activations + memory.gradients + memory.scratch + b->arena.bytes) *
            1e-6,
        .threads = (int)b->learner.job->threads,
        .reorders = (int)net_reorders(b->ws->train),
        .kernels = b->ws->kernels->name,
        .isa = kernels_isa(),
    };
}

int bench_step_run(struct world *world, const Paceline__Job *job, const struct logger *log,
                   uint32_t steps, struct bench_step *out, struct err *err)
{
    struct bench b = {0};
    arena_init(&b.arena);
    kernels_set_threads((int)job->threads);
    double peak = measure_peak(world);
    kernels_set_threads(learner_threads(job)); /* before planning: ops are planned for so many */
    int rc = open_bench(&b, world, job, log, steps, err);
    if (rc == OK) {
        rc = time_steps(&b, world, steps, err);
        if (rc == OK)
            summarise(&b, steps, peak, out);
    }
    learner_stop(&b.learner);
    arena_release(&b.arena);
    workspace_free(b.ws);
    corpus_close(&b.corpus);
    return rc;
}
