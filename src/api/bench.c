#include "paceline/bench.h"

#include "api/guard.h"
#include "api/net.h"
#include "model/judge.h"
#include "real/real.h"
#include "tensor/codec.h"
#include "tensor/vec.h"
#include "train/bench_step.h"

#include <stdlib.h>
#include <string.h>

struct timing {
    pl_engine *engine;
    const Paceline__Job *job;
    const struct shape *made_up; /* records; NULL: the job's are taken */
    uint32_t steps;
    struct world *world;
    struct bench_step result;
};

static int time_steps(void *arg)
{
    struct timing *t = arg;
    return bench_step_run(t->world, t->job, t->made_up, &t->engine->log, t->steps, &t->result,
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

static int report_steps(struct timing *t, pl_bench_step_report *report)
{
    int rc = time_in_world(t);
    if (rc != OK)
        return rc;
    const struct bench_step *b = &t->result;
    *report = (pl_bench_step_report){
        .median_ms = b->median_ms,
        .p10_ms = b->p10_ms,
        .p90_ms = b->p90_ms,
        .gflops = b->gflops,
        .peak_percent = b->peak_percent,
        .samples_per_s = b->samples_per_s,
        .parameters = b->parameters,
        .state = b->state,
        .memory = memory_of(&b->memory),
        .peak_mb = (double)real_peak_bytes() * 1e-6,
        .batch = (uint32_t)b->batch,
        .threads = b->threads,
        .reorders = b->reorders,
        .kernels = b->kernels,
        .isa = b->isa,
    };
    return OK;
}

static int check_steps(uint32_t steps, struct err *err)
{
    return steps >= 1 && steps <= 1000000
               ? OK
               : err_set(err, ERR_USAGE, "steps: must be 1 to 1000000, is %u", steps);
}

static int bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                      pl_bench_step_report *report)
{
    Paceline__Job *finished;
    int rc = check_steps(steps, &engine->error);
    if (rc == OK)
        rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    struct timing t = {.engine = engine, .job = finished, .steps = steps};
    rc = report_steps(&t, report);
    job_free(finished);
    return rc;
}

int pl_bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                  pl_bench_step_report *report)
{
    RETURN_GUARDED(engine, bench_step(engine, job, steps, report));
}

static int bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                     const uint32_t record[3], uint32_t steps, pl_bench_step_report *report)
{
    struct err *err = &engine->error;
    pl_net_options given = options ? *options : (pl_net_options){0};
    if (!given.solver)
        given.solver = "base_lr: 1e-6 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'";
    Paceline__Job *job = NULL;
    struct shape made_up;
    bool lossless;
    int rc = check_steps(steps, err);
    if (rc == OK)
        rc = api_spec_check(spec, err);
    if (rc == OK)
        rc = api_spec_record(spec, record, &made_up, err);
    if (rc == OK)
        rc = api_net_job(spec, &given, &job, err);
    if (rc == OK && !model_has_loss(job->net->define, PHASE_TRAIN))
        rc = model_judge(job->net->define, &lossless, err);
    if (rc == OK) {
        struct timing t = {.engine = engine, .job = job, .made_up = &made_up, .steps = steps};
        rc = report_steps(&t, report);
    }
    job_free(job);
    return rc;
}

int pl_bench_net(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                 const uint32_t record[3], uint32_t steps, pl_bench_step_report *report)
{
    RETURN_GUARDED(engine, bench_net(engine, spec, options, record, steps, report));
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

/* The fastest of a few rounds: what the machine can do. */
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
