#include "cli/bench.h"
#include "cli/job_options.h"
#include "cli/number.h"
#include "paceline/bench.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_arguments {
    struct job_options job;
    const char *net, *input, *batch, *steps;
    bool by_layer, each, json, emit;
};

static const struct option bench_options[] = {
    {"net", OPTION_TEXT, "FILE|NAME", "a net in place of a job, on random records",
     offsetof(struct bench_arguments, net)},
    {"input", OPTION_TEXT, "CxHxW", "their shape, where the net does not state it",
     offsetof(struct bench_arguments, input)},
    JOB_OPTIONS(struct bench_arguments),
    {"batch", OPTION_TEXT, "B", "records a step", offsetof(struct bench_arguments, batch)},
    {"steps", OPTION_TEXT, "N", "timed steps (200)", offsetof(struct bench_arguments, steps)},
    {"by-layer", OPTION_FLAG, NULL, "then time each layer, in up to 100 steps more",
     offsetof(struct bench_arguments, by_layer)},
    {"each", OPTION_FLAG, NULL, "with --json: also the time of each step",
     offsetof(struct bench_arguments, each)},
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

/* "64x20x24x24", or "1" for a number. */
static const char *shape_text(const pl_bench_layer *layer, char out[128])
{
    int used = 0;
    snprintf(out, 128, "1");
    for (size_t i = 0; i < layer->dims; i++)
        used += snprintf(out + used, 128 - (size_t)used, "%s%zu", used ? "x" : "", layer->shape[i]);
    return out;
}

static void print_layers_json(const pl_bench_step_report *r)
{
    cJSON *all = cJSON_CreateArray();
    for (size_t i = 0; i < r->layers; i++) {
        const pl_bench_layer *from = &r->layer[i];
        cJSON *layer = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(layer, "shape");
        for (size_t k = 0; k < from->dims; k++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)from->shape[k]));
        cJSON_AddStringToObject(layer, "name", from->name);
        cJSON_AddStringToObject(layer, "type", from->type);
        cJSON_AddNumberToObject(layer, "forward_ms", from->forward_ms);
        cJSON_AddNumberToObject(layer, "backward_ms", from->backward_ms);
        cJSON_AddNumberToObject(layer, "gflops", from->gflops);
        cJSON_AddNumberToObject(layer, "share", from->share);
        cJSON_AddStringToObject(layer, "chosen", from->chosen);
        cJSON_AddItemToArray(all, layer);
    }
    char *text = cJSON_PrintUnformatted(all);
    printf(",\"layers\":%s,\"probed_ms\":%.4f,\"loading_ms\":%.4f,\"clearing_ms\":%.4f,"
           "\"update_ms\":%.4f,\"rest_ms\":%.4f",
           text ? text : "[]", r->probed_ms, r->loading_ms, r->clearing_ms, r->update_ms,
           r->rest_ms);
    cJSON_free(text);
    cJSON_Delete(all);
}

static int busy_listed(const pl_bench_step_report *r)
{
    return r->process_threads < PL_BENCH_THREADS_MAX ? r->process_threads : PL_BENCH_THREADS_MAX;
}

static void print_json(const struct bench_arguments *a, const pl_bench_step_report *r)
{
    struct purpose purpose[PURPOSES];
    list_purposes(&r->memory, purpose);
    printf("{\"median_ms\":%.4f,\"p10_ms\":%.4f,\"p90_ms\":%.4f,\"gflops\":%.1f,"
           "\"peak_percent\":%.1f,\"samples_per_s\":%.1f,\"first_step_s\":%.3f,\"tuning_s\":%.3f,"
           "\"peak_mb\":%.1f,\"begin_mb\":%.1f,\"faults\":%llu,\"batch\":%u,\"threads\":%d,"
           "\"reorders\":%d,\"casts\":%d,\"weight_reorders\":%d,\"isa\":\"%s\",\"kernels\":\"%s\","
           "\"layout\":\"%s\","
           "\"precision\":\"%s\","
           "\"parameters\":%llu,\"state\":%llu,\"bytes\":{",
           r->median_ms, r->p10_ms, r->p90_ms, r->gflops, r->peak_percent, r->samples_per_s,
           r->first_step_s, r->tuning_s, r->peak_mb, r->begin_mb, (unsigned long long)r->faults,
           r->batch, r->threads, r->reorders, r->casts, r->weight_reorders, r->isa, r->kernels,
           r->layout, r->precision, (unsigned long long)r->parameters,
           (unsigned long long)r->state);
    for (int i = 0; i < PURPOSES; i++)
        printf("%s\"%s\":%llu", i ? "," : "", purpose[i].key, (unsigned long long)purpose[i].bytes);
    printf("},\"census\":{\"process\":%d,\"computing\":%d,\"busy\":[", r->process_threads,
           r->busy_threads);
    for (int i = 0; i < busy_listed(r); i++)
        printf("%s%.3f", i ? "," : "", r->busy[i]);
    printf("]}");
    for (uint32_t i = 0; a->each && i < r->steps; i++)
        printf("%s%.4f%s", i ? "," : ",\"ms\":[", r->ms[i], i + 1 == r->steps ? "]" : "");
    if (a->by_layer)
        print_layers_json(r);
    printf("}\n");
}

/* ---- in words ---- */

static void print_part(int width, const char *name, double ms, double step)
{
    printf("%-*s  %-16s %-16s %9s %9.3f %9s %6.1f\n", width, name, "", "", "", ms, "",
           100 * ms / step);
}

/* The time of work that an earlier layer does for this one is not counted here. */
static void print_layer(int width, const pl_bench_layer *l)
{
    char shape[128], rate[32];
    printf("%-*s  %-16s %-16s", width, l->name, l->type, shape_text(l, shape));
    if (l->share == 0) {
        printf(" %9s %9s %9s %6s  with the layer before\n", "", "", "", "");
        return;
    }
    snprintf(rate, sizeof rate, "%.1f", l->gflops);
    printf(" %9.3f %9.3f %9s %6.1f%s%s\n", l->forward_ms, l->backward_ms, l->gflops > 0 ? rate : "",
           100 * l->share, l->chosen[0] ? "  " : "", l->chosen);
}

static void print_layers(const pl_bench_step_report *r)
{
    int width = (int)strlen("(waiting for records)");
    for (size_t i = 0; i < r->layers; i++)
        if ((int)strlen(r->layer[i].name) > width)
            width = (int)strlen(r->layer[i].name);
    printf("\n%-*s  %-16s %-16s %9s %9s %9s %6s  %s\n", width, "layer", "type", "result", "fwd ms",
           "bwd ms", "GFLOP/s", "%", "code");
    for (size_t i = 0; i < r->layers; i++)
        print_layer(width, &r->layer[i]);
    print_part(width, "(waiting for records)", r->loading_ms, r->probed_ms);
    print_part(width, "(gradient to zero)", r->clearing_ms, r->probed_ms);
    print_part(width, "(update)", r->update_ms, r->probed_ms);
    print_part(width, "(between layers)", r->rest_ms, r->probed_ms);
    print_part(width, "(step)", r->probed_ms, r->probed_ms);
}

static void print_words(const struct bench_arguments *a, const pl_bench_step_report *r)
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
    printf("with        batches of %u, %s kernels, %s, %s, %s, %d thread%s\n", r->batch, r->kernels,
           r->isa, r->layout, r->precision, r->threads, number_plural(r->threads, "s"));
    printf("copies      %d images to another layout, %d to another precision, %d weights\n",
           r->reorders, r->casts, r->weight_reorders);
    printf("first step  after %.3f s, %.3f s of it choosing codes\n", r->first_step_s, r->tuning_s);
    printf("process     %d thread%s, %d of them computing (on a processor", r->process_threads,
           number_plural(r->process_threads, "s"), r->busy_threads);
    for (int i = 0; i < busy_listed(r); i++)
        printf("%s %.0f", i ? "," : "", 100 * r->busy[i]);
    printf(" %% of the time); %llu pages touched for the first time\n",
           (unsigned long long)r->faults);
    if (a->by_layer)
        print_layers(r);
}

static void print_report(const struct bench_arguments *a, const pl_bench_step_report *r)
{
    if (a->emit)
        printf("step_seconds: %.6f\n", r->median_ms * 1e-3);
    else if (a->json)
        print_json(a, r);
    else
        print_words(a, r);
}

/* ---- what is measured ---- */

static int time_job(pl_engine *engine, const struct bench_arguments *a, const char *path,
                    const pl_bench_options *precision, pl_bench_step_report *report)
{
    pl_job *job = NULL;
    char text[64];
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK && a->batch) {
        snprintf(text, sizeof text, "batch=%s", a->batch);
        rc = pl_job_set(job, text);
    }
    if (rc == PL_OK)
        rc = pl_bench_step(engine, job, precision, report);
    pl_job_free(job);
    return rc;
}

static int time_net(pl_engine *engine, const struct bench_arguments *a,
                    const pl_net_options *options, const uint32_t record[3],
                    const pl_bench_options *precision, pl_bench_step_report *report)
{
    pl_net_spec *spec = NULL;
    int rc = cli_net_spec(engine, a->net, &spec);
    if (rc == PL_OK)
        rc = pl_bench_net(engine, spec, options, record, precision, report);
    pl_net_spec_free(spec);
    return rc;
}

/* Refuse options of a job that a net alone does not use; -1 to continue. */
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
    pl_net_options options = {.size = sizeof options};
    uint32_t record[3] = {0};
    const pl_bench_options precision = {.size = sizeof precision,
                                        .steps = bench_number(a.steps, 200),
                                        .by_layer = a.by_layer,
                                        .precision = a.job.precision};
    end = a.net ? check_net_options(&a, count, &options, record)
                : check_job_options(command, &a, count);
    if (end >= 0)
        return end;
    if (precision.steps == 0)
        return bench_refuse("step", "steps", a.steps, "a number > 0");
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_bench_step_report report;
    int rc = a.net ? time_net(engine, &a, &options, record, &precision, &report)
                   : time_job(engine, &a, job, &precision, &report);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK) {
        print_report(&a, &report);
        pl_bench_step_release(&report);
    }
    pl_engine_destroy(engine);
    return code;
}

const struct command bench_step = {
    .name = "bench step",
    .summary = "Time training steps of a job or a net: new records, loss, gradient, decay, update",
    .arguments = "[JOB]",
    .options = bench_options,
    .run = run_step,
};
