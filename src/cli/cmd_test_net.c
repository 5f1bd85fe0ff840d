/* Judging a model: what share of some records it gets right. */
#include "cli/color.h"
#include "cli/predict_model.h"
#include "cli/predict_slices.h"
#include "paceline/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_arguments {
    const char *net, *model, *job, *weights, *data, *mean, *scale, *color;
    const char *batch, *threads, *kernels, *slices;
    struct ranks_options place;
    const char *run; /* its directory, in place of a job and weights */
    bool json;
};

#define TEST_OPTION(name, value, help, field)                                  \
    {                                                                          \
        name, OPTION_TEXT, value, help, offsetof(struct test_arguments, field) \
    }

static const struct option test_options[] = {
    TEST_OPTION("net", "FILE|NAME", "a prototxt, or a net of the zoo", net),
    TEST_OPTION("job", "JOB", "the net of a job and, without --data, its test data", job),
    TEST_OPTION("model", "FILE",
                "a .caffemodel or .onnx, with net and weights; of a RUN best or final", model),
    TEST_OPTION("weights", "FILE", "safetensors, caffemodel or onnx (initial weights)", weights),
    TEST_OPTION("data", "SPEC", "records to test on: see `help data-spec`", data),
    TEST_OPTION("mean", "FILE", "take away their mean, a binaryproto", mean),
    TEST_OPTION("scale", "F", "multiply their values by F", scale),
    TEST_OPTION("color", "rgb|bgr|gray", "the order of colours the net knows", color),
    TEST_OPTION("batch", "B", "records at a time (64)", batch),
    TEST_OPTION("threads", "T", "compute threads (all cores)", threads),
    TEST_OPTION("slices", "F", "F processes with a slice of the model each", slices),
    RANKS_OPTIONS(struct test_arguments),
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

/* 0 when it is not given; false when it is not finite from 1 to `max`. */
static bool read_count(const char *text, uint32_t max, uint32_t *out)
{
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    *out = (uint32_t)value;
    return !text || (text[0] >= '0' && text[0] <= '9' && !*end && value >= 1 && value <= max);
}

static int load_spec(pl_engine *engine, const struct test_arguments *a, const pl_job *job,
                     pl_net_spec **out)
{
    if (a->model)
        return pl_net_spec_load(engine, a->model, out);
    return a->net ? cli_net_spec(engine, a->net, out) : pl_net_spec_job(job, out);
}

static const char *weights_of(const struct test_arguments *a)
{
    return a->weights ? a->weights : a->model;
}

static int color_of(pl_engine *engine, const struct test_arguments *a, const pl_net_spec *spec,
                    const char **color)
{
    uint32_t shape[3] = {0};
    const struct color_question q = {
        .given = a->color,
        .spec = a->data,
        .weights = weights_of(a),
        .channels = pl_net_spec_record(spec, NULL, shape) == PL_OK ? shape[0] : 0,
    };
    return cli_color(engine, &q, color);
}

/* --mean and --scale are maps more of the SPEC, or of the job's test data; the colours are the
 * SPEC's. */
static int set_data(const struct test_arguments *a, const char *color, pl_job *job, pl_net *net)
{
    const struct {
        const char *map, *value;
    } more[] = {{"mean_file", a->mean}, {"scale", a->scale}, {"color", color}};
    char text[16384];
    int rc = PL_OK, n = snprintf(text, sizeof text, "%s", a->data ? a->data : "");
    bool maps = a->data && strchr(a->data, '?');
    for (size_t i = 0; i < sizeof more / sizeof *more && rc == PL_OK; i++) {
        if (!more[i].value)
            continue;
        if (!a->data) {
            snprintf(text, sizeof text, "test_data.%s=%s", more[i].map, more[i].value);
            rc = pl_job_set(job, text);
        } else if (n < (int)sizeof text) { /* too long: refused below */
            n += snprintf(text + n, sizeof text - (size_t)n, "%c%s=%s", maps ? '&' : '?',
                          more[i].map, more[i].value);
            maps = true;
        }
    }
    if (rc != PL_OK)
        return rc;
    return a->data ? pl_net_set_validation_data(net, text, 0, 1)
                   : pl_net_set_validation_data_of(net, job);
}

/* The model to test: of a run, its job and one of its models; or the one that the options name. */
static int find_model(pl_engine *engine, const struct test_arguments *a, struct predict_model *m)
{
    if (a->run)
        return predict_model_find(engine, "test", a->run, a->model, m);
    *m = (struct predict_model){0};
    int rc = a->job ? pl_job_load(engine, a->job, &m->job) : PL_OK;
    if (rc == PL_OK)
        rc = load_spec(engine, a, m->job, &m->spec);
    snprintf(m->weights, sizeof m->weights, "%s", weights_of(a) ? weights_of(a) : "");
    return rc;
}

/* A file that lies in no run has no job, which would say its records and how they are mapped. */
static int check_records(const struct test_arguments *a, const struct predict_model *m)
{
    if (!m->job && !a->data)
        return usage_error(
            "the model belongs to no run with test data; which records? give --data KIND:PATH");
    if (a->run && m->job && a->data && !strchr(a->data, '?') && !a->scale)
        return usage_error("--data of a RUN needs its maps after a ?, as train_data in the run's "
                           "job.prototxt has them: KIND:PATH?scale=..., or ?scale=1 for none");
    return PL_OK;
}

static void print_result(const struct test_arguments *a, const pl_test_result *result,
                         bool lossless)
{
    unsigned long long samples = result->count;
    bool judged = result->error >= 0;
    if (a->json) {
        printf("{");
        if (judged)
            printf("\"accuracy\":%.6f,\"error\":%.6f,", 1 - result->error, result->error);
        if (!lossless && isfinite(result->loss))
            printf("\"loss\":%.6f,", result->loss);
        printf("\"samples\":%llu}\n", samples);
        return;
    }
    if (judged)
        printf("accuracy    %.2f %% (error %.2f %%)\n", 100 * (1 - result->error),
               100 * result->error);
    if (!lossless)
        printf("loss        %.4f\n", result->loss);
    printf("samples     %llu\n", samples);
}

struct testing {
    const struct test_arguments *arguments;
    pl_net_options options;
    struct ranks_place place;
    struct predict_model model;
};

/* A status, or, after a message, an exit code. With a team, one of the processes that have slices.
 */
static int judge_net(pl_engine *engine, pl_team *team, void *arg)
{
    const struct testing *t = arg;
    const struct test_arguments *a = t->arguments;
    const struct predict_model *m = &t->model;
    const char *color = a->color;
    pl_net_options options = t->options;
    pl_test_result result;
    bool lossless = false;
    pl_net *net = NULL;
    options.team = team;
    int rc = pl_net_spec_judge(m->spec, &lossless);
    if (rc == PL_OK)
        rc = pl_net_create(engine, m->spec, &options, &net);
    if (rc == PL_OK && (!a->run || !m->job)) /* a run says its own */
        rc = color_of(engine, a, m->spec, &color);
    if (rc == PL_OK)
        rc = set_data(a, color, m->job, net);
    if (rc == PL_OK && m->weights[0])
        rc = pl_net_load_weights(net, m->weights);
    if (rc == PL_OK)
        rc = pl_net_test(net, 0, &result);
    pl_net_free(net);
    if (rc == PL_OK)
        print_result(a, &result, lossless);
    return rc;
}

static int judge_anyhow(pl_engine *engine, struct testing *t, size_t given)
{
    const struct test_arguments *a = t->arguments;
    const char *const options[] = {a->batch, a->kernels, a->color};
    const struct predict_slices slices = {"test",
                                          judge_net,
                                          t,
                                          &t->place,
                                          t->model.weights,
                                          options,
                                          sizeof options / sizeof *options};
    size_t count;
    int rc = find_model(engine, t->arguments, &t->model);
    if (rc == PL_OK)
        rc = check_records(t->arguments, &t->model);
    if (rc == PL_OK)
        rc = predict_slices_count(&t->model, given, &count);
    if (rc != PL_OK || count == 1)
        return rc == PL_OK ? judge_net(engine, NULL, t) : rc;
    if (!t->options.threads)
        t->options.threads = (uint32_t)predict_slices_threads(&t->place, count);
    return predict_slices_run(engine, (uint32_t)count, &slices);
}

/* -1 to continue, or the exit code. */
static int check_what(const struct test_arguments *a)
{
    if (a->run && (a->net || a->job || a->weights))
        return usage_error("a RUN has its own net and weights: --net, --job and --weights are for "
                           "models without a run");
    if (!a->run && !a->net && !a->model && !a->job)
        return usage_error("what is to be tested? give a run's directory, --net, --job or --model");
    if (a->net && a->model)
        return usage_error("--net and --model both name a net");
    if (!a->run && !a->data && !a->job)
        return usage_error("give the records with --data or --job");
    return -1;
}

static int run_test(const struct command *command, int argc, char **argv)
{
    struct test_arguments a = {0};
    size_t count;
    int end = options_parse(command, argc, argv, &a, &a.run, 1, &count);
    if (end >= 0)
        return end;
    bool weighted = a.run || a.weights || a.model;
    struct testing t = {
        .arguments = &a,
        .options = {.size = sizeof t.options, .kernels = a.kernels, .inference = weighted}};
    uint32_t slices;
    size_t given;
    end = check_what(&a);
    if (end >= 0)
        return end;
    if (a.color && !a.data)
        return usage_error("--color is for --data; a job states its own colours");
    if (!read_count(a.batch, 65536, &t.options.batch))
        return usage_error("--batch must be a number from 1 to 65536");
    if (!read_count(a.threads, 1024, &t.options.threads))
        return usage_error("--threads must be a number from 1 to 1024");
    if (!read_count(a.slices, 1024, &slices))
        return usage_error("--slices must be a number from 1 to 1024");
    if (a.slices && !weighted)
        return usage_error("--slices are of a model with weights");
    given = slices;
    end = predict_slices_find("test", &a.place, &given, &t.place);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    if (!weighted)
        fprintf(stderr, "warning: without --weights, the net is tested with its initial ones\n");
    int rc = judge_anyhow(engine, &t, given);
    int code = rc == PL_OK ? EXIT_DONE : rc > 0 ? rc : cli_fail(engine, rc);
    predict_model_release(&t.model);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_test = {
    .name = "test",
    .summary = "Test a model: accuracy and loss on records",
    .arguments = "RUN|--net FILE|NAME [--data SPEC]",
    .options = test_options,
    .run = run_test,
};
