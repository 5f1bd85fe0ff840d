#include "cli/bench.h"
#include "cli/job_options.h"
#include "paceline/bench.h"

#include <stdio.h>
#include <stdlib.h>

struct bench_arguments {
    struct job_options job;
    const char *net, *input, *batch, *steps;
    bool json, emit;
};

static const struct option bench_options[] = {
    {"net", OPTION_TEXT, "FILE|NAME", "a net in place of a job, on records that are made up",
     offsetof(struct bench_arguments, net)},
    {"input", OPTION_TEXT, "CxHxW", "their shape, where the net does not state it",
     offsetof(struct bench_arguments, input)},
    JOB_OPTIONS(struct bench_arguments),
    {"batch", OPTION_TEXT, "B", "records a step", offsetof(struct bench_arguments, batch)},
    {"steps", OPTION_TEXT, "N", "timed steps (200)", offsetof(struct bench_arguments, steps)},
    {"emit", OPTION_FLAG, NULL, "print the line step_seconds for a cluster file",
     offsetof(struct bench_arguments, emit)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object",
     offsetof(struct bench_arguments, json)},
    {0},
};

/* ---- what came out ---- */

struct purpose {
    const char *key, *words;
    uint64_t bytes;
};

enum { PURPOSES = 9 };

static void list_purposes(const pl_bench_memory *m, struct purpose out[PURPOSES])
{
    const struct purpose all[PURPOSES] = {
        {"parameters", "parameters", m->parameters},
        {"state", "state", m->state},
        {"gradients", "gradients", m->gradients},
        {"optimizer", "optimizer", m->optimizer},
        {"activations", "activations", m->activations},
        {"activation_gradients", "their gradients", m->activation_gradients},
        {"scratch", "scratch", m->scratch},
        {"testing", "the net for tests", m->testing},
        {"records", "records", m->records},
    };
    for (int i = 0; i < PURPOSES; i++)
        out[i] = all[i];
}

static void print_json(const pl_bench_step_report *r)
{
    struct purpose purpose[PURPOSES];
    list_purposes(&r->memory, purpose);
    printf("{\"median_ms\":%.4f,\"p10_ms\":%.4f,\"p90_ms\":%.4f,\"gflops\":%.1f,"
           "\"peak_percent\":%.1f,\"samples_per_s\":%.1f,\"peak_mb\":%.1f,\"batch\":%u,"
           "\"threads\":%d,\"reorders\":%d,\"isa\":\"%s\",\"kernels\":\"%s\","
           "\"precision\":\"f32\",\"parameters\":%llu,\"state\":%llu,\"bytes\":{",
           r->median_ms, r->p10_ms, r->p90_ms, r->gflops, r->peak_percent, r->samples_per_s,
           r->peak_mb, r->batch, r->threads, r->reorders, r->isa, r->kernels,
           (unsigned long long)r->parameters, (unsigned long long)r->state);
    for (int i = 0; i < PURPOSES; i++)
        printf("%s\"%s\":%llu", i ? "," : "", purpose[i].key, (unsigned long long)purpose[i].bytes);
    printf("}}\n");
}

static void print_words(const pl_bench_step_report *r)
{
    struct purpose purpose[PURPOSES];
    list_purposes(&r->memory, purpose);
    printf("step        %.3f ms median (%.3f p10, %.3f p90), %.1f samples/s\n", r->median_ms,
           r->p10_ms, r->p90_ms, r->samples_per_s);
    printf("arithmetic  %.1f GFLOP/s, %.1f %% of this machine's multiply-add peak\n", r->gflops,
           r->peak_percent);
    printf("net         %llu parameters, %llu of state\n", (unsigned long long)r->parameters,
           (unsigned long long)r->state);
    printf("memory      %.1f MB at most: ", r->peak_mb);
    for (int i = 0; i < PURPOSES; i++)
        if (purpose[i].bytes > 0)
            printf("%s %.1f, ", purpose[i].words, (double)purpose[i].bytes * 1e-6);
    printf("and the process\n");
    printf("with        batches of %u, %s kernels, %s, %d threads\n", r->batch, r->kernels, r->isa,
           r->threads);
}

static void print_report(const struct bench_arguments *a, const pl_bench_step_report *r)
{
    if (a->emit)
        printf("step_seconds: %.6f\n", r->median_ms * 1e-3);
    else if (a->json)
        print_json(r);
    else
        print_words(r);
}

/* ---- what is measured ---- */

static int time_job(pl_engine *engine, const struct bench_arguments *a, const char *path,
                    uint32_t steps, pl_bench_step_report *report)
{
    pl_job *job = NULL;
    char text[64];
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK && a->batch) {
        snprintf(text, sizeof text, "batch=%s", a->batch);
        rc = pl_job_set(job, text);
    }
    if (rc == PL_OK)
        rc = pl_bench_step(engine, job, steps, report);
    pl_job_free(job);
    return rc;
}

static int time_net(pl_engine *engine, const struct bench_arguments *a,
                    const pl_net_options *options, const uint32_t record[3], uint32_t steps,
                    pl_bench_step_report *report)
{
    pl_net_spec *spec = NULL;
    int rc = cli_net_spec(engine, a->net, &spec);
    if (rc == PL_OK)
        rc = pl_bench_net(engine, spec, options, record, steps, report);
    pl_net_spec_free(spec);
    return rc;
}

/* A net alone has no use for most of what a job can be told; -1 to go on. */
static int check_net_options(const struct bench_arguments *a, size_t files, pl_net_options *options,
                             uint32_t record[3])
{
    const struct job_options *job = &a->job;
    const struct {
        const char *option;
        bool given;
    } foreign[] = {
        {"a job", files > 0},
        {"--solver", job->solver},
        {"--strategy", job->strategy},
        {"--workers", job->workers},
        {"--data", job->data},
        {"--test-data", job->test_data},
        {"--weights", job->weights},
        {"--set", job->set.count > 0},
        {"--deterministic", job->deterministic},
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (foreign[i].given) {
            fprintf(stderr, "paceline bench step: --net does without a job, and so without %s\n",
                    foreign[i].option);
            return EXIT_BAD_INPUT;
        }
    if (a->input && !cli_record_shape(a->input, record))
        return bench_refuse("step", "input", a->input, "channels, rows and columns as 3x224x224");
    options->kernels = job->kernels;
    options->batch = bench_number(a->batch, 64);
    if (options->batch == 0)
        return bench_refuse("step", "batch", a->batch, "a number > 0");
    options->threads = job->threads ? bench_number(job->threads, 0) : 0;
    if (job->threads && options->threads == 0)
        return bench_refuse("step", "threads", job->threads, "a number > 0");
    options->seed = bench_number(job->seed, 1);
    if (options->seed == 0)
        return bench_refuse("step", "seed", job->seed, "a number > 0");
    return -1;
}

static int check_job_options(const struct command *command, const struct bench_arguments *a,
                             size_t files)
{
    if (!a->input)
        return job_options_check(command, &a->job, files);
    fprintf(stderr, "paceline bench step: --input is for --net: the data of a job have a shape\n");
    return EXIT_BAD_INPUT;
}

static int run_step(const struct command *command, int argc, char **argv)
{
    struct bench_arguments a = {0};
    const char *job = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &a, &job, 1, &count);
    if (end >= 0)
        return end;
    pl_net_options options = {0};
    uint32_t record[3] = {0}, steps = bench_number(a.steps, 200);
    end = a.net ? check_net_options(&a, count, &options, record)
                : check_job_options(command, &a, count);
    if (end >= 0)
        return end;
    if (steps == 0)
        return bench_refuse("step", "steps", a.steps, "a number > 0");
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_bench_step_report report;
    int rc = a.net ? time_net(engine, &a, &options, record, steps, &report)
                   : time_job(engine, &a, job, steps, &report);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK)
        print_report(&a, &report);
    pl_engine_destroy(engine);
    return code;
}

const struct command bench_step = {
    .name = "bench step",
    .summary = "Time whole training steps of a job, or of a net",
    .arguments = "[JOB]",
    .options = bench_options,
    .run = run_step,
};
