/* Judging a model: what share of some records it gets right. */
#include "cli/cli.h"
#include "paceline/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_arguments {
    const char *net, *job, *weights, *data, *scale, *batch, *threads, *kernels;
    bool json;
};

#define TEST_OPTION(name, value, help, field)                                  \
    {                                                                          \
        name, OPTION_TEXT, value, help, offsetof(struct test_arguments, field) \
    }

static const struct option test_options[] = {
    TEST_OPTION("net", "FILE|NAME", "a prototxt, or a net of the zoo", net),
    TEST_OPTION("job", "JOB", "the net of a job and, without --data, its test data", job),
    TEST_OPTION("weights", "FILE", "safetensors as a run leaves them (initial weights)", weights),
    TEST_OPTION("data", "SPEC", "records to test on, KIND:PATH[?scale=...]", data),
    TEST_OPTION("scale", "F", "multiply their values by F", scale),
    TEST_OPTION("batch", "B", "records at a time (64)", batch),
    TEST_OPTION("threads", "T", "compute threads (all cores)", threads),
    TEST_OPTION("kernels", "K", "ref, dnnl or auto", kernels),
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct test_arguments, json)},
    {0},
};

static int usage_error(const char *text)
{
    fprintf(stderr, "paceline test: %s; see paceline test --help\n", text);
    return EXIT_BAD_INPUT;
}

/* 0 when it is not given; false when it is no number from 1 to `max`. */
static bool read_count(const char *text, uint32_t max, uint32_t *out)
{
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    *out = (uint32_t)value;
    return !text || (text[0] >= '0' && text[0] <= '9' && !*end && value >= 1 && value <= max);
}

/* A path has a slash or a dot; a name of the zoo has neither. */
static int load_spec(pl_engine *engine, const struct test_arguments *a, const pl_job *job,
                     pl_net_spec **out)
{
    if (!a->net)
        return pl_net_spec_job(job, out);
    return strpbrk(a->net, "/.") ? pl_net_spec_load(engine, a->net, out)
                                 : pl_net_spec_zoo(engine, a->net, out);
}

/* --scale is one more map of the SPEC, or of the job's test data. */
static int set_data(const struct test_arguments *a, pl_job *job, pl_net *net)
{
    char text[16384];
    if (a->data) {
        int n = snprintf(text, sizeof text, "%s%s%s", a->data,
                         !a->scale              ? ""
                         : strchr(a->data, '?') ? "&scale="
                                                : "?scale=",
                         a->scale ? a->scale : "");
        const char *spec = n < (int)sizeof text ? text : a->data; /* too long: refused below */
        return pl_net_set_validation_data(net, spec, 0, 1);
    }
    int rc = PL_OK;
    if (a->scale) {
        snprintf(text, sizeof text, "test_data.scale=%s", a->scale);
        rc = pl_job_set(job, text);
    }
    return rc == PL_OK ? pl_net_set_validation_data_of(net, job) : rc;
}

static int judge(pl_engine *engine, const struct test_arguments *a, const pl_net_options *options,
                 pl_test_result *result)
{
    pl_job *job = NULL;
    pl_net_spec *spec = NULL;
    pl_net *net = NULL;
    int rc = a->job ? pl_job_load(engine, a->job, &job) : PL_OK;
    if (rc == PL_OK)
        rc = load_spec(engine, a, job, &spec);
    if (rc == PL_OK)
        rc = pl_net_create(engine, spec, options, &net);
    if (rc == PL_OK)
        rc = set_data(a, job, net);
    if (rc == PL_OK && a->weights)
        rc = pl_net_load_weights(net, a->weights);
    if (rc == PL_OK)
        rc = pl_net_test(net, 0, result);
    pl_net_free(net);
    pl_net_spec_free(spec);
    pl_job_free(job);
    return rc;
}

static void print_result(const struct test_arguments *a, const pl_test_result *result)
{
    unsigned long long samples = result->count;
    bool judged = result->error >= 0;
    if (a->json) {
        printf("{");
        if (judged)
            printf("\"accuracy\":%.6f,", 1 - result->error);
        if (isfinite(result->loss))
            printf("\"loss\":%.6f,", result->loss);
        printf("\"samples\":%llu}\n", samples);
        return;
    }
    if (judged)
        printf("accuracy    %.2f %%\n", 100 * (1 - result->error));
    printf("loss        %.4f\nsamples     %llu\n", result->loss, samples);
}

static int run_test(const struct command *command, int argc, char **argv)
{
    struct test_arguments a = {0};
    size_t count;
    int end = options_parse(command, argc, argv, &a, NULL, 0, &count);
    if (end >= 0)
        return end;
    pl_net_options options = {.kernels = a.kernels};
    if (!a.net && !a.job)
        return usage_error("--net or --job must say which net");
    if (!a.data && !a.job)
        return usage_error("--data or --job must say which records");
    if (!read_count(a.batch, 65536, &options.batch))
        return usage_error("--batch must be a number from 1 to 65536");
    if (!read_count(a.threads, 1024, &options.threads))
        return usage_error("--threads must be a number from 1 to 1024");
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    if (!a.weights)
        fprintf(stderr, "warning: without --weights, the net is tested with its initial ones\n");
    pl_test_result result;
    int rc = judge(engine, &a, &options, &result);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK)
        print_result(&a, &result);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_test = {
    .name = "test",
    .summary = "Test a model: accuracy and loss on records",
    .arguments = "--net FILE|NAME --data SPEC",
    .options = test_options,
    .run = run_test,
};
