#include "paceline/bench.h"

#include "api/api.h"
#include "real/real.h"
#include "train/bench_step.h"

int pl_bench_step(pl_engine *engine, const pl_job *job, uint32_t steps,
                  pl_bench_step_report *report)
{
    if (steps < 10 || steps > 1000000)
        return err_set(&engine->error, ERR_USAGE, "steps: must be 10 to 1000000, is %u", steps);
    Paceline__Job *finished;
    int rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    struct bench_step b;
    rc = bench_step_run(real_now, finished, &engine->log, steps, &b, &engine->error);
    job_free(finished);
    if (rc != OK)
        return rc;
    *report = (pl_bench_step_report){
        .median_ms = b.median_ms,
        .p10_ms = b.p10_ms,
        .p90_ms = b.p90_ms,
        .gflops = b.gflops,
        .peak_percent = b.peak_percent,
        .samples_per_s = b.samples_per_s,
        .parameters = b.parameters,
        .net_mb = b.net_mb,
        .peak_mb = (double)real_peak_bytes() * 1e-6,
        .threads = b.threads,
        .reorders = b.reorders,
        .kernels = b.kernels,
        .isa = b.isa,
    };
    return OK;
}
