/* A text that a model continues. */
#include "cli/number.h"
#include "cli/predict_model.h"
#include "paceline/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 300, LENGTH_MAX = 100000000 };

struct sample_arguments {
    const char *prime, *length, *temperature, *seed, *net, *weights, *data, *which, *kernels;
    const char *model; /* MODEL, unless --net is given */
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
    SAMPLE_OPTION("kernels", "K", "ref, dnnl or auto", kernels),
    {0},
};

static int usage_error(const char *text)
{
    fprintf(stderr, "paceline sample: %s; see paceline sample --help\n", text);
    return EXIT_BAD_INPUT;
}

/* A whole number below 2^53, for --seed. */
static bool is_whole(double value)
{
    return value == (double)(uint64_t)value;
}

/* -1 to continue, or the exit code. */
static int read_numbers(const struct command *command, struct sample_arguments *a)
{
    double length = LENGTH, temperature = 1, seed = 1;
    int end = number_option(command, "length", a->length, 1, LENGTH_MAX, &length);
    if (end < 0)
        end = number_option(command, "temperature", a->temperature, 0, 1e6, &temperature);
    if (end < 0)
        end = number_option(command, "seed", a->seed, 0, 0x1p53 - 1, &seed);
    if (end < 0 && !(is_whole(length) && is_whole(seed)))
        return usage_error("--length and --seed must be whole numbers");
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

static int print_sample(pl_engine *engine, const struct sample_arguments *a,
                        const struct predict_model *model, pl_net **net)
{
    const pl_net_options options = {
        .size = sizeof options, .batch = 1, .threads = 1, .kernels = a->kernels, .inference = true};
    const char *text;
    size_t bytes;
    bool lossless;
    int rc = pl_net_spec_judge(model->spec, &lossless); /* a net without a loss cannot be made */
    if (rc == PL_OK)
        rc = pl_net_create(engine, model->spec, &options, net);
    if (rc == PL_OK)
        rc = name_text(engine, a, model, *net);
    if (rc == PL_OK)
        rc = pl_net_load_weights(*net, model->weights);
    if (rc == PL_OK)
        rc = pl_net_sample(*net, &a->options, &text, &bytes);
    if (rc != PL_OK)
        return rc;
    fputs(a->prime ? a->prime : "", stdout);
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    return fflush(stdout) == 0 ? PL_OK : EXIT_FAILED;
}

static int run_sample(const struct command *command, int argc, char **argv)
{
    struct sample_arguments a = {0};
    struct predict_model model;
    pl_net *net = NULL;
    size_t given;
    int end = options_parse(command, argc, argv, &a, &a.model, 1, &given);
    if (end < 0)
        end = check_arguments(command, &a, given);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = a.net ? predict_model_make(engine, a.net, a.weights, &model)
                   : predict_model_find(engine, "sample", a.model, a.which, &model);
    if (rc == PL_OK)
        rc = print_sample(engine, &a, &model, &net);
    int code = rc == PL_OK ? EXIT_DONE : rc > 0 ? rc : cli_fail(engine, rc);
    pl_net_free(net);
    predict_model_release(&model);
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
