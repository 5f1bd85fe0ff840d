#include "cli/bench.h"
#include "cli/job_options.h"
#include "paceline/bench.h"

#include <stdio.h>

struct bench_arguments {
    struct job_options job;
    const char *batch, *steps;
    bool json, emit;
};

static const struct option bench_options[] = {
    JOB_OPTIONS(struct bench_arguments),
    {"batch", OPTION_TEXT, "B", "records a step", offsetof(struct bench_arguments, batch)},
    {"steps", OPTION_TEXT, "N", "timed steps (200)", offsetof(struct bench_arguments, steps)},
    {"emit", OPTION_FLAG, NULL, "print the line step_seconds for a cluster file",
     offsetof(struct bench_arguments, emit)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object",
     offsetof(struct bench_arguments, json)},
    {0},
};

static void print_report(const struct bench_arguments *a, const pl_bench_step_report *r)
{
    if (a->emit) {
        printf("step_seconds: %.6f\n", r->median_ms * 1e-3);
    } else if (a->json) {
        printf("{\"median_ms\":%.4f,\"p10_ms\":%.4f,\"p90_ms\":%.4f,\"gflops\":%.1f,"
               "\"peak_percent\":%.1f,\"samples_per_s\":%.0f,\"parameters\":%llu,\"net_mb\":%.1f,"
               "\"peak_mb\":%.1f,\"threads\":%d,\"reorders\":%d,\"isa\":\"%s\",\"kernels\":\"%s\","
               "\"precision\":\"f32\"}\n",
               r->median_ms, r->p10_ms, r->p90_ms, r->gflops, r->peak_percent, r->samples_per_s,
               (unsigned long long)r->parameters, r->net_mb, r->peak_mb, r->threads, r->reorders,
               r->isa, r->kernels);
    } else {
        printf("step      %.3f ms median (%.3f p10, %.3f p90), %.0f samples/s\n", r->median_ms,
               r->p10_ms, r->p90_ms, r->samples_per_s);
        printf("arithmetic %.1f GFLOP/s, %.1f %% of this machine's multiply-add peak\n", r->gflops,
               r->peak_percent);
        printf("memory    %.1f MB planned for %llu parameters; process peak %.1f MB\n", r->net_mb,
               (unsigned long long)r->parameters, r->peak_mb);
        printf("with      %s kernels, %s, %d threads\n", r->kernels, r->isa, r->threads);
    }
}

static int time_steps(const struct bench_arguments *a, const char *path, uint32_t steps)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    pl_bench_step_report report;
    char text[64];
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK && a->batch) {
        snprintf(text, sizeof text, "batch=%s", a->batch);
        rc = pl_job_set(job, text);
    }
    if (rc == PL_OK)
        rc = pl_bench_step(engine, job, steps, &report);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK)
        print_report(a, &report);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

static int run_step(const struct command *command, int argc, char **argv)
{
    struct bench_arguments arguments = {0};
    const char *job;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &job, 1, &count);
    if (end >= 0)
        return end;
    if (count != 1) {
        fprintf(stderr, "paceline bench step: expected one job file\n");
        return EXIT_BAD_INPUT;
    }
    uint32_t steps = bench_number(arguments.steps, 200);
    if (steps == 0) {
        fprintf(stderr, "paceline bench step: --steps: expected a number > 0, not %s\n",
                arguments.steps);
        return EXIT_BAD_INPUT;
    }
    return time_steps(&arguments, job, steps);
}

const struct command bench_step = {
    .name = "bench step",
    .summary = "Time whole training steps of a job",
    .arguments = "JOB",
    .options = bench_options,
    .run = run_step,
};
