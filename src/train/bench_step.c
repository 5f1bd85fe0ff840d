#include "train/bench_step.h"

#include "data/source_random.h"
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
            return err_set(err, rc, "step %u: %s", i,
                           rc == b->learner.err.status ? b->learner.err.text : status_text(rc));
        if (i >= warm)
            b->ms[i - warm] = world_seconds(world_now(world) - start) * 1e3;
        place += batch;
    }
    qsort(b->ms, steps, sizeof *b->ms, compare_doubles);
    return OK;
}

/* Labels of records that are made up must be known to the net, which is planned first. */
static int make_up(struct bench *b, const Paceline__Job *job, const struct shape *record,
                   const struct logger *log, struct err *err)
{
    enum { CLASSES_MAX = 1000 };
    const Paceline__Data plain = PACELINE__DATA__INIT;
    struct dataset set;
    int rc = workspace_plan(job, record, log, &b->ws, err);
    if (rc != OK)
        return rc;
    size_t classes = net_classes(b->ws->train);
    uint32_t labels = (uint32_t)(classes < CLASSES_MAX ? classes : CLASSES_MAX);
    rc = source_random_open(record, labels, job->seed, &b->corpus.train_source, err);
    if (rc == OK)
        rc = corpus_make(b->corpus.train_source, &plain, (struct part){0, 1}, &set, err);
    if (rc != OK)
        return rc;
    corpus_put(&b->corpus, SET_TRAIN, &set);
    rc = workspace_accepts(b->ws, &b->corpus.set[SET_TRAIN], "records", err);
    return rc == OK ? workspace_feed(b->ws, job, &b->corpus.set[SET_TRAIN], err) : rc;
}

static int open_records(struct bench *b, const Paceline__Job *job, const struct shape *made_up,
                        const struct logger *log, struct err *err)
{
    if (made_up)
        return make_up(b, job, made_up, log, err);
    int rc = corpus_open(job, &b->corpus, err);
    return rc == OK ? workspace_create(job, &b->corpus, log, &b->ws, err) : rc;
}

static int open_learner(struct bench *b, struct world *world, const Paceline__Job *job,
                        uint32_t steps, struct err *err)
{
    int rc = workspace_load_ahead(b->ws, world, err);
    if (rc == OK)
        rc = learner_init(&b->learner, NULL, job, &b->corpus, b->ws, &b->arena, NULL, err);
    if (rc == OK)
        rc = learner_start(&b->learner, world, err);
    if (rc == OK && !(b->ms = arena_array(&b->arena, steps, double)))
        rc = err_set(err, ERR_NOMEM, "out of memory for %u steps", steps);
    return rc;
}

static struct bench_memory sum_memory(const struct bench *b)
{
    const struct learner *l = &b->learner;
    const struct net_memory step = workspace_memory(b->ws), test = net_memory(b->ws->test);
    struct bench_memory out = {
        .parameters = l->x.n * sizeof(float),
        .state = l->s.n * sizeof(float),
        .gradients = (l->dx.n + l->before.n) * sizeof(float),
        .activations = step.activations,
        .activation_gradients = step.gradients,
        .scratch = step.scratch,
        .testing = test.activations + test.scratch,
        .records = 2 * b->ws->batch * b->ws->record_floats * sizeof(float),
    };
    for (size_t i = 0; i < l->optim.ops->states; i++)
        out.optimizer += l->optim.state[i].n * sizeof(float);
    return out;
}

static size_t sum_lengths(const struct segments *table)
{
    size_t sum = 0;
    for (size_t i = 0; i < table->count; i++)
        sum += table->at[i].len;
    return sum;
}

static void summarise(const struct bench *b, uint32_t steps, double peak, struct bench_step *out)
{
    double median = b->ms[steps / 2];
    double flops = workspace_flops(b->ws);
    *out = (struct bench_step){
        .median_ms = median,
        .p10_ms = b->ms[steps / 10],
        .p90_ms = b->ms[steps - 1 - steps / 10],
        .gflops = flops / median * 1e-6,
        .peak_percent = 100.0 * flops / (median * 1e-3) / peak,
        .samples_per_s = (double)b->learner.job->batch / median * 1e3,
        .parameters = sum_lengths(b->learner.table),
        .state = sum_lengths(net_state_segments(b->ws->train)),
        .memory = sum_memory(b),
        .batch = b->learner.job->batch,
        .threads = (int)b->learner.job->threads,
        .reorders = (int)net_reorders(b->ws->train),
        .kernels = b->ws->kernels->name,
        .isa = kernels_isa(),
    };
}

int bench_step_run(struct world *world, const Paceline__Job *job, const struct shape *made_up,
                   const struct logger *log, uint32_t steps, struct bench_step *out,
                   struct err *err)
{
    struct bench b = {0};
    arena_init(&b.arena);
    kernels_set_threads((int)job->threads);
    double peak = measure_peak(world);
    kernels_set_threads(learner_threads(job)); /* before planning: ops are planned for so many */
    int rc = open_records(&b, job, made_up, log, err);
    if (rc == OK)
        rc = open_learner(&b, world, job, steps, err);
    if (rc == OK)
        rc = time_steps(&b, world, steps, err);
    if (rc == OK)
        summarise(&b, steps, peak, out);
    learner_stop(&b.learner);
    arena_release(&b.arena);
    workspace_free(b.ws);
    corpus_close(&b.corpus);
    return rc;
}
