#include "train/step_bench.h"

#include "data/source_random.h"
#include "learner/learner.h"
#include "tensor/peak.h"
#include "train/bench_layers.h"

struct bench {
    struct world *world;
    const struct bench_options *options;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
    uint64_t offset;            /* of the next step's records */
    uint32_t steps;             /* taken */
    double *sorted;             /* milliseconds of the timed steps */
    struct bench_layers layers; /* measured by layer if requested */
};

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

/* ---- steps ---- */

static int report_error(struct bench *b, int rc, struct err *err)
{
    if (rc == OK)
        return OK;
    return err_set(err, rc, "step %u: %s", b->steps,
                   rc == b->learner.err.status ? b->learner.err.text : status_text(rc));
}

static int take_step(struct bench *b, struct err *err)
{
    size_t batch = b->learner.job->batch;
    int rc = report_error(b, learner_step(&b->learner, b->offset, batch), err);
    b->offset += batch;
    b->steps++;
    return rc;
}

static void mark_memory(const struct bench *b, bool end)
{
    if (b->options->mark)
        b->options->mark(b->options->user, end);
}

static int time_steps(struct bench *b, struct bench_step *out, struct err *err)
{
    uint32_t n = b->options->steps, warm = n / 10 + 1;
    int rc = OK;
    if (n == 0)
        return OK;
    for (uint32_t i = 0; rc == OK && i < warm + n; i++) {
        if (i == warm)
            mark_memory(b, false);
        int64_t start = world_now(b->world);
        rc = take_step(b, err);
        if (i >= warm)
            out->ms[i - warm] = world_seconds(world_now(b->world) - start) * 1e3;
        if (i == 0)
            out->first_step_s = world_seconds(world_now(b->world) - b->options->begun);
    }
    mark_memory(b, true);
    return rc;
}

/* More steps, in which the clock is read at each layer: those that were timed did without. */
static int time_layers(struct bench *b, struct err *err)
{
    size_t batch = b->learner.job->batch;
    int rc = OK;
    net_set_probe(b->ws->train, &b->layers.probe);
    for (size_t i = 0; rc == OK && i < b->layers.steps; i++) {
        bench_layers_begin(&b->layers);
        rc = report_error(b, learner_gradient(&b->learner, b->offset, batch), err);
        bench_layers_update(&b->layers);
        if (rc == OK)
            learner_update(&b->learner, b->offset);
        bench_layers_end(&b->layers);
        b->offset += batch;
        b->steps++;
    }
    net_set_probe(b->ws->train, NULL);
    return rc;
}

/* ---- what takes them ---- */

/* Labels of records that are made up must be known to the net, which is planned first. */
static int make_up(struct bench *b, const Paceline__Job *job, const struct shape *record,
                   const struct logger *log, struct err *err)
{
    enum { CLASSES_MAX = 1000 };
    const Paceline__Data plain = PACELINE__DATA__INIT;
    struct dataset set;
    int rc = workspace_plan(job, record, NULL, log, b->options->tuner, &b->ws, err);
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
    const struct source_config none = {0};
    const struct source_config *source = b->options->source ? b->options->source : &none;
    int rc = corpus_open_with(source, job, &b->corpus, err);
    return rc == OK ? workspace_create(job, &b->corpus, log, b->options->tuner, NULL, &b->ws, err)
                    : rc;
}

/* Memory for all that is measured is taken before the first step. */
static int open_measures(struct bench *b, struct arena *arena, struct bench_step *out,
                         struct err *err)
{
    enum { LAYER_STEPS_MAX = 100 };
    uint32_t n = b->options->steps;
    size_t layer_steps = n < LAYER_STEPS_MAX ? n : LAYER_STEPS_MAX;
    out->ms = arena_array(arena, n, double);
    b->sorted = arena_array(&b->arena, n, double);
    int rc = out->ms && b->sorted ? OK : ERR_NOMEM;
    if (rc == OK && b->options->by_layer)
        rc = bench_layers_init(&b->layers, b->world, b->ws->train, layer_steps, &b->arena);
    return rc == OK ? OK : err_set(err, rc, "out of memory for %u steps", n);
}

static int open_learner(struct bench *b, const Paceline__Job *job, struct err *err)
{
    int rc = workspace_load_ahead(b->ws, b->world, (int)job->threads, err);
    if (rc == OK)
        rc = learner_init(&b->learner, NULL, job, &b->corpus, b->ws, &b->arena, NULL, err);
    return rc == OK ? learner_start(&b->learner, b->world, err) : rc;
}

/* ---- what came out ---- */

static struct bench_memory sum_memory(const struct bench *b)
{
    const struct learner *l = &b->learner;
    const struct net_memory step = workspace_memory(b->ws);
    struct bench_memory out = {
        .parameters = l->x.n * sizeof(float),
        .state = l->s.n * sizeof(float),
        .gradients = (l->dx.n + l->before.n) * sizeof(float),
        .activations = step.activations,
        .activation_gradients = step.gradients,
        .scratch = step.scratch,
        .testing = workspace_testing(b->ws),
        .records = loader_bytes(&b->ws->loader),
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

static void summarise_times(const struct bench *b, struct bench_step *out)
{
    uint32_t n = b->options->steps;
    for (uint32_t i = 0; i < n; i++)
        b->sorted[i] = out->ms[i];
    bench_ascending(b->sorted, n);
    double median = b->sorted[n / 2], flops = workspace_flops(b->ws);
    kernels_set_threads((int)b->learner.job->threads);
    out->steps = n;
    out->median_ms = median;
    out->p10_ms = b->sorted[n / 10];
    out->p90_ms = b->sorted[n - 1 - n / 10];
    out->gflops = flops / median * 1e-6;
    out->peak_percent = 100.0 * flops / (median * 1e-3) / measure_peak(b->world);
    out->samples_per_s = (double)b->learner.job->batch / median * 1e3;
}

static int keep_mark(void *user, size_t from, double share)
{
    struct bench_step *out = user;
    out->mark[out->marks++] = (struct bench_mark){from, share};
    return OK;
}

/* As the learner tells its strategy: several `local` learners add their gradients at the end,
 * and of several batches the last one finishes them. */
static int list_marks(const struct bench *b, struct arena *arena, struct bench_step *out)
{
    const Paceline__Job *job = b->learner.job;
    const struct net_watch watch = {keep_mark, out};
    out->mark = arena_array(arena, b->learner.table->count + 1, struct bench_mark);
    if (!out->mark)
        return ERR_NOMEM;
    if (job->local > 1)
        return keep_mark(out, 0, 1);
    int rc = net_foresee_backward(b->ws->train, &watch);
    for (size_t i = 0; i < out->marks; i++)
        out->mark[i].share = (job->iter_size - 1 + out->mark[i].share) / job->iter_size;
    return rc;
}

static int describe_learner(const struct bench *b, struct arena *arena, struct bench_step *out)
{
    const struct learner *l = &b->learner;
    out->x = l->x.n;
    out->s = l->s.n;
    out->states = l->optim.ops->states;
    out->records = b->corpus.set[SET_TRAIN].count;
    return list_marks(b, arena, out);
}

static int summarise_bench(struct bench *b, struct arena *arena, struct bench_step *out,
                           struct err *err)
{
    if (b->options->steps > 0)
        summarise_times(b, out);
    int rc = describe_learner(b, arena, out);
    if (rc != OK)
        return err_set(err, rc, "out of memory for the parts of a gradient");
    out->parameters = sum_lengths(b->learner.table);
    out->state = sum_lengths(net_state_segments(b->ws->train));
    out->memory = sum_memory(b);
    out->batch = b->learner.job->batch;
    out->threads = (int)b->learner.job->threads;
    const struct net_copies copies = net_copies(b->ws->train);
    out->reorders = (int)copies.reorders;
    out->casts = (int)copies.casts;
    out->weight_reorders = (int)copies.weights;
    out->kernels = b->ws->kernels->name;
    out->isa = kernels_isa();
    out->layout = net_layout(b->ws->train);
    out->dtype =
        b->learner.job->precision == PACELINE__JOB__PRECISION__bf16 ? DTYPE_BF16 : DTYPE_F32;
    if (!b->options->by_layer)
        return OK;
    out->layers = net_layer_count(b->ws->train);
    rc = bench_layers_sum(&b->layers, b->ws->train, arena, &out->layer, out->part_ms);
    return rc == OK ? OK : err_set(err, rc, "out of memory for %zu layers", out->layers);
}

/* ---- a slice of the model ---- */

/* Where a slice meets the others in a step, found by a step without them. */
struct recording {
    struct learner *learner;
    struct arena *arena;
    struct round_meeting *meeting;
    size_t count, room;
};

static int reserve_meeting(struct recording *r)
{
    enum { ROOM = 16 };
    if (r->count < r->room)
        return OK;
    size_t room = r->room ? 2 * r->room : ROOM;
    struct round_meeting *longer = arena_array(r->arena, room, struct round_meeting);
    for (size_t i = 0; longer && i < r->count; i++)
        longer[i] = r->meeting[i];
    r->meeting = longer ? longer : r->meeting;
    r->room = longer ? room : r->room;
    return longer ? OK : ERR_NOMEM;
}

static int record_meeting(void *user, const struct net_point *point)
{
    struct recording *r = user;
    if (point->meeting == NET_GATHER_ENDS || point->meeting == NET_SUM_ENDS) {
        struct round_meeting *last = &r->meeting[r->count - 1];
        last->meanwhile = r->learner->spent - last->share;
        return OK;
    }
    bool gathers = point->meeting == NET_GATHER || point->meeting == NET_GATHER_BEGINS;
    int rc = reserve_meeting(r);
    if (rc == OK)
        r->meeting[r->count++] = (struct round_meeting){
            .kind = gathers ? ROUND_GATHER : ROUND_SUM,
            .floats = point->rows * point->outputs * point->each,
            .share = r->learner->spent,
        };
    return rc;
}

/* Values that no other slice has given are of no use, and the loss may be anything. */
static int record_step(struct bench *b, const Paceline__Job *job, struct recording *r,
                       struct err *err)
{
    int rc = workspace_create_slice(0, 0, job, &b->corpus, NULL, NULL, NULL, &b->ws, err);
    if (rc == OK)
        rc = learner_init(&b->learner, NULL, job, &b->corpus, b->ws, &b->arena, NULL, err);
    if (rc != OK)
        return rc;
    b->learner.meet = record_meeting;
    b->learner.meet_user = r;
    rc = learner_gradient(&b->learner, 0, job_step_records(job));
    if (rc == OK || rc == ERR_DIVERGED)
        rc = learner_agree_on_norm(&b->learner, &b->learner.dx, 1);
    return rc == ERR_DIVERGED ? OK : report_error(b, rc, err);
}

static int describe_slices(const struct bench *whole, struct arena *arena, struct bench_step *out,
                           struct err *err)
{
    const Paceline__Job *job = whole->learner.job;
    struct bench b = {.world = whole->world, .options = whole->options, .corpus = whole->corpus};
    struct recording r = {.learner = &b.learner, .arena = arena};
    arena_init(&b.arena);
    int rc = record_step(&b, job, &r, err);
    out->whole = out->x;
    out->marks = 0;
    if (rc == OK)
        rc = list_marks(&b, arena, out);
    if (rc == OK) {
        out->x = b.learner.x.n;
        out->s = b.learner.s.n;
        out->memory = sum_memory(&b);
        out->slices = (struct round_slices){
            .count = job->slices,
            .meeting = r.meeting,
            .meetings = r.count,
            .share = net_share(b.ws->train),
            .common = net_common(b.ws->train),
            .parallel = net_parallel(b.ws->train).floats,
        };
    }
    arena_release(&b.arena);
    workspace_free(b.ws);
    return rc;
}

int bench_step_run(struct world *world, const Paceline__Job *job, const struct logger *log,
                   const struct bench_options *options, struct arena *arena, struct bench_step *out,
                   struct err *err)
{
    struct bench b = {.world = world, .options = options};
    struct bench_step result = {0};
    arena_init(&b.arena);
    kernels_set_threads(learner_threads(job)); /* before planning, since ops are planned for a
                                                  number of threads */
    int rc = open_records(&b, job, options->made_up, log, err);
    if (rc == OK)
        rc = open_learner(&b, job, err);
    if (rc == OK)
        rc = open_measures(&b, arena, &result, err);
    if (rc == OK)
        rc = time_steps(&b, &result, err);
    if (rc == OK && options->by_layer)
        rc = time_layers(&b, err);
    if (rc == OK)
        rc = summarise_bench(&b, arena, &result, err);
    if (rc == OK && job->slices > 1)
        rc = describe_slices(&b, arena, &result, err);
    if (rc == OK)
        *out = result;
    learner_stop(&b.learner);
    arena_release(&b.arena);
    workspace_free(b.ws);
    corpus_close(&b.corpus);
    return rc;
}
