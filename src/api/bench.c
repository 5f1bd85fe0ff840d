#include "paceline/bench.h"

#include "api/api.h"
#include "api/guard.h"
#include "real/real.h"
#include "train/bench_step.h"

struct timing {
    pl_engine *engine;
    const Paceline__Job *job;
    uint32_t steps;
    struct world *world;
    struct bench_step result;
};

static int time_steps(void *arg)
{
    struct timing *t = arg;
    return bench_step_run(t->world, t->job, &t->engine->log, t->steps, &t->result,
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

static int bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                      pl_bench_step_report *report)
{
    if (steps < 10 || steps > 1000000)
        return err_set(&engine->error, ERR_USAGE, "steps: must be 10 to 1000000, is %u", steps);
    Paceline__Job *finished;
    int rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    struct timing t = {.engine = engine, .job = finished, .steps = steps};
    rc = time_in_world(&t);
    job_free(finished);
    if (rc != OK)
        return rc;
    const struct bench_step *b = &t.result;
    *report = (pl_bench_step_report){
        .median_ms = b->median_ms,
        .p10_ms = b->p10_ms,
        .p90_ms = b->p90_ms,
        .gflops = b->gflops,
        .peak_percent = b->peak_percent,
        .samples_per_s = b->samples_per_s,
        .parameters = b->parameters,
        .net_mb = b->net_mb,
        .peak_mb = (double)real_peak_bytes() * 1e-6,
        .threads = b->threads,
        .reorders = b->reorders,
        .kernels = b->kernels,
        .isa = b->isa,
    };
    return OK;
}

int pl_bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                  pl_bench_step_report *report)
{
    RETURN_GUARDED(engine, bench_step(engine, job, steps, report));
}
