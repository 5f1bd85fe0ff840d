#include "paceline/bench.h"

#include "api/guard.h"
#include "api/net.h"
#include "api/option_size.h"
#include "api/step_timing.h"
#include "base/minmax.h"
#include "model/judge_net.h"
#include "real/census.h"
#include "real/real.h"
#include "tensor/codec.h"
#include "tensor/vec.h"
#include "train/step_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct timing {
    pl_engine *engine;
    const Paceline__Job *job;
    struct bench_options options;
    struct world *world;
    struct arena *arena; /* of the result */
    struct bench_step result;
    struct census census[2]; /* around the timed steps */
};

static int time_steps(void *arg)
{
    struct timing *t = arg;
    const struct source_config source = {.bindings = &t->engine->bindings,
                                         .remote = t->engine->remote};
    t->options.source = &source;
    return bench_step_run(t->world, t->job, &t->engine->log, &t->options, t->arena, &t->result,
                          &t->engine->error);
}

/* In a world of its own, in which records are loaded as a worker loads them. */
static int time_in_world(struct timing *t)
{
    struct err *err = &t->engine->error;
    int rc = real_open(&(struct real_options){.log = &t->engine->log}, &t->world, err);
    if (rc != OK)
        return rc;
    rc = real_run(t->world, time_steps, t, err);
    real_close(t->world);
    return rc;
}

int api_time_steps(pl_engine *engine, const Paceline__Job *job, uint32_t steps, struct arena *arena,
                   struct bench_step *out)
{
    struct timing t = {
        .engine = engine,
        .job = job,
        .arena = arena,
        .options =
            {
                .steps = steps,
                .begun = real_now(),
                .tuner = steps > 0 ? api_tuner(&engine->tuning, &engine->log) : NULL,
            },
    };
    int rc = time_in_world(&t);
    *out = t.result;
    return rc;
}

static void on_mark(void *user, bool end)
{
    struct timing *t = user;
    census_take(&t->census[end]);
}

/* ---- the report ---- */

static pl_bench_memory memory_of(const struct bench_memory *m)
{
    return (pl_bench_memory){
        .parameters = m->parameters,
        .state = m->state,
        .gradients = m->gradients,
        .optimizer = m->optimizer,
        .activations = m->activations,
        .activation_gradients = m->activation_gradients,
        .scratch = m->scratch,
        .testing = m->testing,
        .records = m->records,
    };
}

static void count_threads(const struct census census[2], pl_bench_step_report *report)
{
    enum { BUSY = 4 }; /* a quarter */
    const struct census *end = &census[1];
    int n = end->threads < PL_BENCH_THREADS_MAX ? end->threads : PL_BENCH_THREADS_MAX;
    double elapsed = (double)(end->now - census[0].now);
    report->process_threads = end->threads;
    /* The kernel brings a thread's time up to date at its clock ticks, and a census takes a moment:
     * over a short run a thread can seem busy for longer than the run. */
    for (int i = 0; i < n; i++)
        report->busy[i] = -min_double(1, (double)census_busy(&census[0], end, i) / elapsed);
    bench_ascending(report->busy, (size_t)n); /* ascending, since the values are still negative */
    for (int i = 0; i < n; i++) {
        report->busy[i] = -report->busy[i];
        if (BUSY * report->busy[i] >= report->busy[0])
            report->busy_threads = i + 1;
    }
}

static pl_bench_layer layer_of(const struct bench_layer *from, double step_ms)
{
    pl_bench_layer to = {
        .dims = from->top.n,
        .forward_ms = from->forward_ms,
        .backward_ms = from->backward_ms,
        .gflops = from->gflops,
        .share = (from->forward_ms + from->backward_ms) / step_ms,
    };
    snprintf(to.name, sizeof to.name, "%s", from->name);
    snprintf(to.type, sizeof to.type, "%s", from->type);
    snprintf(to.chosen, sizeof to.chosen, "%s", from->chosen);
    for (size_t i = 0; i < from->top.n; i++)
        to.shape[i] = from->top.dim[i];
    return to;
}

static int keep_rows(const struct bench_step *b, pl_bench_step_report *report, struct err *err)
{
    double *ms = malloc(b->steps * sizeof *ms);
    pl_bench_layer *layer = malloc((b->layers + 1) * sizeof *layer);
    if (!ms || !layer) {
        free(ms), free(layer);
        return err_set(err, ERR_NOMEM, "out of memory for %u steps", b->steps);
    }
    memcpy(ms, b->ms, b->steps * sizeof *ms);
    for (size_t i = 0; i < b->layers; i++)
        layer[i] = layer_of(&b->layer[i], b->part_ms[BENCH_WHOLE_STEP]);
    report->ms = ms;
    report->steps = b->steps;
    report->layer = layer;
    report->layers = b->layers;
    report->probed_ms = b->part_ms[BENCH_WHOLE_STEP];
    report->loading_ms = b->part_ms[BENCH_LOADING];
    report->clearing_ms = b->part_ms[BENCH_CLEARING];
    report->update_ms = b->part_ms[BENCH_UPDATE];
    report->rest_ms = b->part_ms[BENCH_OTHER];
    return OK;
}

static int report_steps(struct timing *t, pl_bench_step_report *report)
{
    const struct bench_step *b = &t->result;
    uint64_t begin = real_peak_bytes();
    struct arena arena;
    arena_init(&arena);
    t->arena = &arena;
    t->options.mark = on_mark;
    t->options.user = t;
    double tuned = tuner_seconds(t->options.tuner);
    int rc = time_in_world(t);
    pl_bench_step_report out = {
        .median_ms = b->median_ms,
        .p10_ms = b->p10_ms,
        .p90_ms = b->p90_ms,
        .gflops = b->gflops,
        .peak_percent = b->peak_percent,
        .samples_per_s = b->samples_per_s,
        .first_step_s = b->first_step_s,
        .tuning_s = tuner_seconds(t->options.tuner) - tuned,
        .parameters = b->parameters,
        .state = b->state,
        .memory = memory_of(&b->memory),
        .peak_mb = (double)real_peak_bytes() * 1e-6,
        .begin_mb = (double)begin * 1e-6,
        .faults = t->census[1].faults - t->census[0].faults,
        .batch = (uint32_t)b->batch,
        .threads = b->threads,
        .reorders = b->reorders,
        .casts = b->casts,
        .weight_reorders = b->weight_reorders,
        .kernels = b->kernels,
        .isa = b->isa,
        .layout = b->layout,
        .precision = dtype_name(b->dtype),
    };
    if (rc == OK)
        rc = keep_rows(b, &out, &t->engine->error);
    arena_release(&arena);
    if (rc != OK)
        return rc;
    count_threads(t->census, &out);
    *report = out;
    return OK;
}

void pl_bench_step_release(pl_bench_step_report *report)
{
    free(report->ms), free(report->layer);
    report->ms = NULL, report->layer = NULL;
    report->steps = 0, report->layers = 0;
}

/* ---- the calls ---- */

/* `given` becomes the caller's options. */
static int timing_begin(struct timing *t, pl_engine *engine, const pl_bench_options *options,
                        pl_bench_options *given)
{
    struct err *err = &engine->error;
    *t = (struct timing){.engine = engine};
    int rc = OPTIONS_TAKE(pl_bench_options, given, options, err);
    if (rc != OK)
        return rc;
    t->options.begun = real_now();
    t->options.steps = given->steps ? given->steps : 200;
    t->options.by_layer = given->by_layer;
    t->options.tuner = api_tuner(&engine->tuning, &engine->log);
    if (given->steps > 1000000)
        return err_set(err, ERR_USAGE, "steps: must be 1 to 1000000, is %u", given->steps);
    return OK;
}

static int bench_step(pl_engine *engine, const pl_job *job, const pl_bench_options *options,
                      pl_bench_step_report *report)
{
    struct timing t;
    pl_bench_options given;
    Paceline__Job *finished;
    int rc = timing_begin(&t, engine, options, &given);
    if (rc == OK)
        rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    t.job = finished;
    rc = api_set_word(finished, "precision", given.precision, &engine->error);
    if (rc == OK)
        rc = report_steps(&t, report);
    job_free(finished);
    return rc;
}

int pl_bench_step(pl_engine *engine, const pl_job *job, const pl_bench_options *options,
                  pl_bench_step_report *report)
{
    RETURN_GUARDED(engine, bench_step(engine, job, options, report));
}

static int bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *net,
                     const uint32_t record[3], const pl_bench_options *options,
                     pl_bench_step_report *report)
{
    struct err *err = &engine->error;
    struct timing t;
    pl_bench_options given;
    pl_net_options own;
    Paceline__Job *job = NULL;
    struct shape made_up;
    bool lossless;
    int rc = timing_begin(&t, engine, options, &given);
    if (rc == OK)
        rc = OPTIONS_TAKE(pl_net_options, &own, net, err);
    if (rc == OK && !own.solver)
        own.solver = "base_lr: 1e-6 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'";
    if (rc == OK)
        rc = api_spec_check(spec, err);
    if (rc == OK)
        rc = api_spec_record(spec, record, &made_up, err);
    if (rc == OK)
        rc = api_net_job(spec, &own, &job, err);
    if (rc == OK)
        rc = api_set_word(job, "precision", given.precision, err);
    if (rc == OK && !model_has_loss(job->net->define, PHASE_TRAIN))
        rc = model_judge(job->net->define, &lossless, err);
    if (rc == OK) {
        t.job = job;
        t.options.made_up = &made_up;
        rc = report_steps(&t, report);
    }
    job_free(job);
    return rc;
}

int pl_bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *net,
                 const uint32_t record[3], const pl_bench_options *options,
                 pl_bench_step_report *report)
{
    RETURN_GUARDED(engine, bench_net(engine, spec, net, record, options, report));
}

/* ---- bytes ---- */

enum { BYTES_FLOATS = 16 * 1024 * 1024, BYTES_ROUNDS = 5 };

struct passing {
    float *x, *y;
    void *code;
};

static void pass_copy(struct passing *p)
{
    memcpy(p->y, p->x, BYTES_FLOATS * sizeof *p->y);
}

static void pass_sum(struct passing *p)
{
    vec_host_add(p->y, p->x, BYTES_FLOATS);
}

static void pass_bf16_encode(struct passing *p)
{
    codec_encode(CODEC_BF16, p->x, BYTES_FLOATS, p->code);
}

static void pass_bf16_decode(struct passing *p)
{
    codec_decode(CODEC_BF16, p->code, BYTES_FLOATS, p->y);
}

static void pass_int8_encode(struct passing *p)
{
    codec_encode(CODEC_INT8, p->x, BYTES_FLOATS, p->code);
}

static void pass_int8_decode(struct passing *p)
{
    codec_decode(CODEC_INT8, p->code, BYTES_FLOATS, p->y);
}

/* The fastest of a few rounds. */
static double ns_per_byte(struct passing *p, void (*pass)(struct passing *))
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < BYTES_ROUNDS; i++) {
        int64_t start = real_now();
        pass(p);
        int64_t took = real_now() - start;
        best = took < best ? took : best;
    }
    return (double)best / ((double)BYTES_FLOATS * sizeof(float));
}

static int bench_bytes(pl_engine *engine, pl_bench_bytes_report *report)
{
    struct passing p = {
        .x = malloc(BYTES_FLOATS * sizeof(float)),
        .y = malloc(BYTES_FLOATS * sizeof(float)),
        .code = malloc(codec_bytes(CODEC_BF16, BYTES_FLOATS)),
    };
    int rc = p.x && p.y && p.code
                 ? OK
                 : err_set(&engine->error, ERR_NOMEM, "out of memory for buffers to pass over");
    if (rc == OK) {
        for (size_t i = 0; i < BYTES_FLOATS; i++)
            p.x[i] = p.y[i] = (float)(i % 251) - 125.0f;
        *report = (pl_bench_bytes_report){
            .copy = ns_per_byte(&p, pass_copy),
            .sum = ns_per_byte(&p, pass_sum),
            .bf16_encode = ns_per_byte(&p, pass_bf16_encode),
            .bf16_decode = ns_per_byte(&p, pass_bf16_decode),
            .int8_encode = ns_per_byte(&p, pass_int8_encode),
            .int8_decode = ns_per_byte(&p, pass_int8_decode),
        };
    }
    free(p.x), free(p.y), free(p.code);
    return rc;
}

int pl_bench_bytes(pl_engine *engine, pl_bench_bytes_report *report)
{
    RETURN_GUARDED(engine, bench_bytes(engine, report));
}
