/* A text that a model continues. */
#include "cli/number.h"
#include "cli/predict_slices.h"
#include "paceline/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 300, LENGTH_MAX = 100000000, SLICES_MAX = 1024 };

struct sample_arguments {
    const char *prime, *length, *temperature, *seed, *net, *weights, *data, *which, *kernels,
        *slices;
    struct ranks_options place;
    const char *model; /* MODEL, unless --net is given */
    size_t slices_n;   /* 0: not given */
    pl_net_sample_options options;
};

#define SAMPLE_OPTION(name, value, help, field)                                  \
    {                                                                            \
        name, OPTION_TEXT, value, help, offsetof(struct sample_arguments, field) \
    }

static const struct option sample_options[] = {
    SAMPLE_OPTION("prime", "TEXT", "the text that is continued (a line end)", prime),
    SAMPLE_OPTION("length", "N", "bytes or characters to draw (300)", length),
    SAMPLE_OPTION("temperature", "T", "probabilities to the power 1/T; 0: the highest (1)",
                  temperature),
    SAMPLE_OPTION("seed", "S", "of the draws (1)", seed),
    SAMPLE_OPTION("model", "best|final|FILE", "of a run: which of its models (final)", which),
    SAMPLE_OPTION("net", "FILE|NAME", "a prototxt or a net of the zoo, in place of MODEL", net),
    SAMPLE_OPTION("weights", "FILE", "its weights: safetensors, caffemodel or onnx", weights),
    SAMPLE_OPTION("data", "SPEC", "the text it was trained on, text:FILE: without a run", data),
    SAMPLE_OPTION("slices", "F", "F processes with a slice of the model each", slices),
    RANKS_OPTIONS(struct sample_arguments),
    SAMPLE_OPTION("kernels", "K", "ref, dnnl or auto", kernels),
    {0},
};

static int usage_error(const char *text)
{
    fprintf(stderr, "paceline sample: %s; see paceline sample --help\n", text);
    return EXIT_BAD_INPUT;
}

/* A whole number below 2^53. */
static bool is_whole(double value)
{
    return value == (double)(uint64_t)value;
}

/* -1 to continue, or the exit code. */
static int read_numbers(const struct command *command, struct sample_arguments *a)
{
    double length = LENGTH, temperature = 1, seed = 1, slices = 0;
    int end = number_option(command, "length", a->length, 1, LENGTH_MAX, &length);
    if (end < 0)
        end = number_option(command, "temperature", a->temperature, 0, 1e6, &temperature);
    if (end < 0)
        end = number_option(command, "seed", a->seed, 0, 0x1p53 - 1, &seed);
    if (end < 0)
        end = number_option(command, "slices", a->slices, 1, SLICES_MAX, &slices);
    if (end < 0 && !(is_whole(length) && is_whole(seed) && is_whole(slices)))
        return usage_error("--length, --seed and --slices must be whole numbers");
    a->slices_n = (size_t)slices;
    a->options = (pl_net_sample_options){.size = sizeof a->options,
                                         .prime = a->prime,
                                         .length = (uint64_t)length,
                                         .temperature = temperature,
                                         .seed = (uint64_t)seed};
    return end;
}

/* Check the arguments; -1 to continue, or the exit code. */
static int check_arguments(const struct command *command, struct sample_arguments *a, size_t given)
{
    if (given == 0 && !a->net)
        return usage_error("give MODEL, or --net, --weights and --data");
    if (given > 0 && a->net)
        return usage_error("give MODEL or --net, not both");
    if (a->net && !a->weights)
        return usage_error("--net needs --weights");
    if (a->weights && !a->net)
        return usage_error("--weights needs --net; MODEL has its own weights");
    if (a->net && a->which)
        return usage_error("--model is for the directory of a run, and --net is of none");
    return read_numbers(command, a);
}

/* From here on a status, or, after a message, an exit code. */

static int name_text(pl_engine *engine, const struct sample_arguments *a,
                     const struct predict_model *model, pl_net *net)
{
    pl_data *data;
    if (model->job && a->data)
        return usage_error("--data is for models of no run; a run has its text");
    if (!model->job && !a->data)
        return usage_error("the model is of no run; name the text that it was trained on, as in "
                           "--data 'text:FILE?unit=character'");
    if (model->job)
        return pl_net_form_text(net, model->job, NULL);
    int rc = pl_data_open(engine, a->data, true, &data);
    if (rc != PL_OK)
        return rc;
    rc = pl_net_form_text(net, NULL, data);
    pl_data_close(data);
    return rc;
}

static int print_text(const struct sample_arguments *a, const char *text, size_t bytes)
{
    fputs(a->prime ? a->prime : "", stdout);
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    return fflush(stdout) == 0 ? PL_OK : EXIT_FAILED;
}

struct sampling {
    struct sample_arguments arguments;
    struct ranks_place place;
    struct predict_model model;
};

/* With a team, one of the processes that have slices. */
static int print_sample(pl_engine *engine, pl_team *team, void *sampling)
{
    const struct sample_arguments *a = &((const struct sampling *)sampling)->arguments;
    const struct predict_model *model = &((const struct sampling *)sampling)->model;
    const pl_net_options options = {.size = sizeof options,
                                    .batch = 1,
                                    .threads = 1,
                                    .kernels = a->kernels,
                                    .inference = true,
                                    .team = team};
    pl_net *net = NULL;
    const char *text;
    size_t bytes;
    bool lossless;
    int rc = pl_net_spec_judge(model->spec, &lossless); /* a net without a loss cannot be made */
    if (rc == PL_OK)
        rc = pl_net_create(engine, model->spec, &options, &net);
    if (rc == PL_OK)
        rc = name_text(engine, a, model, net);
    if (rc == PL_OK)
        rc = pl_net_load_weights(net, model->weights);
    if (rc == PL_OK)
        rc = pl_net_sample(net, &a->options, &text, &bytes);
    if (rc == PL_OK)
        rc = print_text(a, text, bytes);
    pl_net_free(net);
    return rc;
}

/* An exit code, which is no status, comes from the processes that have slices. */
static int sample_anyhow(pl_engine *engine, struct sampling *s)
{
    const struct sample_arguments *a = &s->arguments;
    const char *const options[] = {a->prime, a->length, a->temperature, a->seed, a->kernels};
    const struct predict_slices slices = {"sample",
                                          print_sample,
                                          s,
                                          &s->place,
                                          s->model.weights,
                                          options,
                                          sizeof options / sizeof *options};
    size_t count;
    int rc = a->net ? predict_model_make(engine, a->net, a->weights, &s->model)
                    : predict_model_find(engine, "sample", a->model, a->which, &s->model);
    if (rc == PL_OK)
        rc = predict_slices_count(&s->model, a->slices_n, &count);
    if (rc != PL_OK || count == 1)
        return rc == PL_OK ? print_sample(engine, NULL, s) : rc;
    return predict_slices_run(engine, (uint32_t)count, &slices);
}

static int run_sample(const struct command *command, int argc, char **argv)
{
    struct sampling s = {0};
    struct sample_arguments *a = &s.arguments;
    size_t given;
    int end = options_parse(command, argc, argv, a, &a->model, 1, &given);
    if (end < 0)
        end = check_arguments(command, a, given);
    if (end < 0)
        end = predict_slices_find("sample", &a->place, &a->slices_n, &s.place);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = sample_anyhow(engine, &s);
    int code = rc == PL_OK ? EXIT_DONE : rc > 0 ? rc : cli_fail(engine, rc);
    predict_model_release(&s.model);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_sample = {
    .name = "sample",
    .summary = "Draw a text from a model of text",
    .arguments = "MODEL|--net FILE|NAME --weights FILE --data SPEC",
    .options = sample_options,
    .run = run_sample,
};
