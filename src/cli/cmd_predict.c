/* Predictions of a model for pictures and other records: the likeliest classes of each. */
#include "cli/color.h"
#include "cli/predict_model.h"
#include "cli/predict_output.h"
#include "cli/predict_slices.h"
#include "cli/predict_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUTS_MAX = 4096, TOP = 5, BATCH = 8, SLICES_MAX = 1024 };

struct predict_arguments {
    const char *net, *weights, *data, *first, *maps, *mean, *scale, *color, *input, *top, *classes;
    const char *batch, *threads, *kernels, *which, *slices;
    struct ranks_options place;
    bool json;
    const char *given[INPUTS_MAX]; /* MODEL, unless --net is given, and pictures */
    const char *model, *const *pictures;
    size_t count;                              /* of pictures */
    size_t first_n, top_n, batch_n, threads_n; /* the numbers of the texts above; 0: not given */
    size_t slices_n;                           /* likewise; then how many there are */
    uint32_t shape[3];                         /* likewise; zeros */
};

#define PREDICT_OPTION(name, value, help, field)                                  \
    {                                                                             \
        name, OPTION_TEXT, value, help, offsetof(struct predict_arguments, field) \
    }

static const struct option predict_options[] = {
    PREDICT_OPTION("net", "FILE|NAME", "a prototxt or a net of the zoo, in place of MODEL", net),
    PREDICT_OPTION("weights", "FILE", "its weights: safetensors, caffemodel or onnx", weights),
    PREDICT_OPTION("model", "best|final|FILE", "of a run: which of its models (final)", which),
    PREDICT_OPTION("data", "SPEC", "records in place of pictures: see `help data-spec`", data),
    PREDICT_OPTION("first", "N", "the first N of them, or of the model's test data", first),
    PREDICT_OPTION("top", "K", "the K likeliest classes (5)", top),
    PREDICT_OPTION("classes", "FILE", "their names, one a line", classes),
    PREDICT_OPTION("maps", "MAPS", "of pictures, as after the ? of a SPEC: crop=..", maps),
    PREDICT_OPTION("mean", "FILE", "take away their mean, a binaryproto", mean),
    PREDICT_OPTION("scale", "F", "multiply their values by F", scale),
    PREDICT_OPTION("color", "rgb|bgr|gray", "the order of colours the net knows", color),
    PREDICT_OPTION("input", "CxHxW", "the shape of a record, if the model leaves it open", input),
    PREDICT_OPTION("batch", "B", "records at a time (8)", batch),
    PREDICT_OPTION("threads", "T", "compute threads (all cores)", threads),
    PREDICT_OPTION("slices", "F", "F processes with a slice of the model each", slices),
    RANKS_OPTIONS(struct predict_arguments),
    PREDICT_OPTION("kernels", "K", "ref, dnnl or auto", kernels),
    {"json", OPTION_FLAG, NULL, "print a JSON object a record, one a line, on stdout",
     offsetof(struct predict_arguments, json)},
    {0},
};

/* ---- what is asked ---- */

static int usage_error(const char *text)
{
    fprintf(stderr, "paceline predict: %s; see paceline predict --help\n", text);
    return EXIT_BAD_INPUT;
}

/* 0 when it is not given; false when it is not finite from 1 to `max`. */
static bool read_count(const char *text, unsigned long max, size_t *out)
{
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    *out = value;
    return !text || (text[0] >= '0' && text[0] <= '9' && !*end && value >= 1 && value <= max);
}

/* "3x224x224" into three numbers. */
static bool read_shape(const char *text, uint32_t shape[3])
{
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        unsigned long value = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
        if (value < 1 || value > 1000000 || *end != (i < 2 ? 'x' : '\0'))
            return false;
        shape[i] = (uint32_t)value;
        text = end + 1;
    }
    return true;
}

/* KIND:PATH rather than a picture's path. */
static bool is_spec(const char *text)
{
    return strchr(text, ':') && access(text, F_OK) != 0;
}

/* -1 to continue, or the exit code. */
static int check_numbers(struct predict_arguments *a)
{
    if (!read_count(a->first, UINT32_MAX, &a->first_n))
        return usage_error("--first must be a number from 1 to 4294967295");
    if (!read_count(a->top, UINT32_MAX, &a->top_n))
        return usage_error("--top must be a number from 1 to 4294967295");
    if (!read_count(a->batch, 65536, &a->batch_n))
        return usage_error("--batch must be a number from 1 to 65536");
    if (!read_count(a->threads, 1024, &a->threads_n))
        return usage_error("--threads must be a number from 1 to 1024");
    if (!read_count(a->slices, SLICES_MAX, &a->slices_n))
        return usage_error("--slices must be a number from 1 to 1024");
    if (a->input && !read_shape(a->input, a->shape))
        return usage_error("--input must be channels, rows and columns, as in 3x224x224");
    return -1;
}

/* Check the arguments; -1 to continue, or the exit code. */
static int check_arguments(struct predict_arguments *a, size_t given)
{
    size_t models = a->net ? 0 : 1;
    if (given < models)
        return usage_error("give MODEL, or --net and --weights");
    if (a->net && !a->weights)
        return usage_error("--net needs --weights");
    if (a->weights && !a->net)
        return usage_error("--weights needs --net; MODEL has its own weights");
    if (a->net && a->which)
        return usage_error("--model is for the directory of a run, and --net is of none");
    a->model = models ? a->given[0] : NULL;
    a->pictures = a->given + models;
    a->count = given - models;
    if (!a->data && a->count == 1 && is_spec(a->pictures[0])) {
        a->data = a->pictures[0];
        a->count = 0;
    }
    if (a->data && a->count > 0)
        return usage_error("pictures and a SPEC are both given");
    if (!a->data && a->count == 0 && (a->net || !a->first))
        return usage_error("which records? give pictures, a SPEC, or --first N of the model's "
                           "test data");
    if (a->first && a->count > 0)
        return usage_error("--first is for a SPEC");
    if (a->maps && a->count == 0)
        return usage_error("--maps is for pictures; a SPEC has its own after the ?");
    if ((a->mean || a->scale || a->color) && !a->data && a->count == 0)
        return usage_error("--mean, --scale and --color are for pictures or a SPEC");
    return check_numbers(a);
}

/* From here on a status, or, after a message, an exit code. */

static int no_memory(void)
{
    fprintf(stderr, "paceline: out of memory\n");
    return EXIT_FAILED;
}

/* ---- its records ---- */

/* A run brings its own colours. */
static int color_of(pl_engine *engine, const struct predict_arguments *a,
                    const struct predict_model *model, uint32_t channels, const char **color)
{
    const struct color_question q = {
        .given = a->color,
        .spec = a->data,
        .maps = a->maps,
        .pictures = a->count > 0,
        .weights = model->weights,
        .channels = channels,
    };
    *color = a->color;
    return model->job ? PL_OK : cli_color(engine, &q, color);
}

/* The maps that are given after the SPEC, or as --maps, and those of other options. NULL: no
 * memory. */
static char *spec_text(const struct predict_arguments *a, const char *color)
{
    const struct {
        const char *map, *value;
    } more[] = {{"mean_file", a->mean}, {"scale", a->scale}, {"color", color}};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fprintf(out, "%s", a->data ? a->data : a->maps ? a->maps : "");
    const char *sign = a->data ? strchr(a->data, '?') ? "&" : "?" : a->maps ? "&" : "";
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (!more[i].value)
            continue;
        fprintf(out, "%s%s=%s", sign, more[i].map, more[i].value);
        sign = "&";
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* `channels` that the net takes; 0: not known. */
static int open_data(pl_engine *engine, const struct predict_arguments *a,
                     const struct predict_model *model, uint32_t channels, pl_data **out)
{
    if (!a->data && a->count == 0 && !model->job)
        return usage_error(
            "the model is of no run that has test data; which records? give pictures "
            "or a SPEC");
    if (!a->data && a->count == 0)
        return pl_data_open_job(model->job, false, out);
    const char *color;
    int rc = color_of(engine, a, model, channels, &color);
    if (rc != PL_OK)
        return rc;
    char *text = spec_text(a, color);
    if (!text)
        return no_memory();
    rc = a->data ? (model->job ? pl_data_open_for(model->job, text, out)
                               : pl_data_open(engine, text, false, out))
                 : pl_data_open_pictures(engine, a->pictures, a->count, text, out);
    free(text);
    return rc == PL_OK && model->job ? pl_data_take_maps(*out, model->job) : rc;
}

/* Open the records in the shape that the net takes: *shape is the one that the net states or a
 * job's data has, or else that of the SPEC's records. */
static int find_records(pl_engine *engine, const struct predict_arguments *a,
                        const struct predict_model *model, uint32_t shape[3], pl_data **out)
{
    const char *form = NULL;
    memcpy(shape, a->shape, sizeof a->shape);
    int rc = a->input ? PL_OK : pl_net_spec_record(model->spec, model->job, shape);
    bool known = rc == PL_OK;
    if (!known && a->count > 0) {
        fprintf(stderr, "the net does not state the shape of its records; give --input CxHxW\n");
        return rc;
    }
    rc = open_data(engine, a, model, known ? shape[0] : 0, out);
    if (rc == PL_OK)
        rc = known ? pl_data_fit(*out, shape[0], shape[1], shape[2], &form)
                   : pl_data_shape(*out, shape);
    if (form)
        fprintf(stderr, "%s\n", form);
    return rc;
}

/* ---- predicting ---- */

/* The net is made for: with slices, for one record each at least. */
static size_t batch_of(const struct predict_arguments *a, size_t records)
{
    size_t batch = a->batch_n ? a->batch_n : records < BATCH ? records : BATCH;
    return batch < a->slices_n ? a->slices_n : batch;
}

static int make_net(pl_engine *engine, const struct predict_arguments *a,
                    const struct predict_model *model, pl_team *team, pl_data *data, size_t records,
                    pl_net **out)
{
    const pl_net_options options = {
        .size = sizeof options,
        .batch = (uint32_t)batch_of(a, records),
        .threads = (uint32_t)a->threads_n,
        .kernels = a->kernels,
        .inference = true,
        .team = team,
    };
    bool lossless;
    int rc = pl_net_spec_judge(model->spec, &lossless); /* a net without a loss cannot be made */
    if (rc == PL_OK)
        rc = pl_net_create(engine, model->spec, &options, out);
    if (rc == PL_OK)
        rc = pl_net_form_data(*out, model->job, data);
    return rc == PL_OK ? pl_net_load_weights(*out, model->weights) : rc;
}

/* A field of records that has the class of each step. */
struct known_field {
    size_t from, count; /* count 0: there is none */
};

static struct known_field find_known(pl_data *data, const pl_net_classes *classes)
{
    struct known_field known = {0};
    if (classes->steps == 1 || pl_data_field(data, "target", &known.from, &known.count) != PL_OK ||
        known.count != classes->steps)
        known.count = 0;
    return known;
}

/* Take the scores of `n` records from record i on, whose values are at x, `each` a record. */
static void take_scores(struct predictions *p, const struct known_field *known, size_t i, size_t n,
                        const float *x, size_t each, const float *scores)
{
    size_t steps = p->classes.steps;
    for (size_t k = 0; k < n; k++)
        for (size_t step = 0; step < steps; step++) {
            predictions_take(p, (i + k) * steps + step,
                             scores + (k * steps + step) * p->classes.count);
            if (known->count > 0)
                p->known[(i + k) * steps + step] = (uint32_t)x[k * each + known->from + step];
        }
}

/* Scores of all records, of which the likeliest classes are kept. */
static int predict_all(pl_net *net, pl_data *data, const uint32_t shape[3], size_t batch,
                       struct predictions *p)
{
    size_t each = (size_t)shape[0] * shape[1] * shape[2];
    size_t room = batch * p->classes.steps * p->classes.count;
    const struct known_field known = find_known(data, &p->classes);
    float *x = malloc(batch * each * sizeof *x);
    float *scores = malloc(room * sizeof *scores);
    int rc = x && scores ? PL_OK : no_memory();
    for (size_t i = 0; rc == PL_OK && i < p->records; i += batch) {
        size_t n = p->records - i < batch ? p->records - i : batch;
        rc = pl_net_read(net, data, i, n, x, batch * each);
        if (rc == PL_OK)
            rc = pl_net_predict(net, x, n, scores, room);
        if (rc == PL_OK)
            take_scores(p, &known, i, n, x, each, scores);
    }
    free(x);
    free(scores);
    return rc;
}

static int predict_classes(pl_engine *engine, const struct predict_arguments *a,
                           const struct predict_model *model, pl_net *net, const uint32_t shape[3],
                           struct predictions *p, pl_data *data)
{
    bool targets = find_known(data, &p->classes).count > 0;
    int rc = predictions_begin(p, engine, a->top_n ? a->top_n : TOP, data, a->classes, model->job,
                               targets);
    if (rc == PL_OK)
        rc = predict_all(net, data, shape, a->batch_n ? a->batch_n : BATCH, p);
    if (rc == PL_OK)
        rc = a->json ? predictions_json(p) : predictions_table(p);
    return rc;
}

static int predict_targets(const struct predict_arguments *a, const struct predict_model *model,
                           pl_net *net, const struct predictions *p, pl_data *data)
{
    const struct predict_values values = {
        .net = net,
        .data = data,
        .job = model->job,
        .classes = p->classes,
        .records = p->records,
        .batch = a->batch_n ? a->batch_n : BATCH,
        .json = a->json,
    };
    if (a->top || a->classes)
        return usage_error("--top and --classes are for classes, and the net predicts values");
    return predict_values(&values);
}

static int predict_records(pl_engine *engine, const struct predict_arguments *a,
                           const struct predict_model *model, pl_team *team)
{
    struct predictions p = {0};
    pl_data *data = NULL;
    pl_net *net = NULL;
    pl_data_info info;
    uint32_t shape[3];
    int rc = find_records(engine, a, model, shape, &data);
    if (rc == PL_OK)
        rc = pl_data_describe(data, &info);
    if (rc == PL_OK) {
        p.records = a->first_n && a->first_n < info.records ? a->first_n : info.records;
        rc = make_net(engine, a, model, team, data, p.records, &net);
    }
    if (rc == PL_OK)
        rc = pl_net_classes_of(net, &p.classes);
    if (rc == PL_OK && p.classes.values)
        rc = predict_targets(a, model, net, &p, data);
    else if (rc == PL_OK)
        rc = predict_classes(engine, a, model, net, shape, &p, data);
    predictions_end(&p);
    pl_data_close(data);
    pl_net_free(net);
    return rc;
}

static int find_model(pl_engine *engine, const struct predict_arguments *a,
                      struct predict_model *model)
{
    return a->net ? predict_model_make(engine, a->net, a->weights, model)
                  : predict_model_find(engine, "predict", a->model, a->which, model);
}

struct prediction {
    struct predict_arguments *arguments;
    struct ranks_place place;
    struct predict_model model;
};

static int predict_slice(pl_engine *engine, pl_team *team, void *prediction)
{
    const struct prediction *p = prediction;
    return predict_records(engine, p->arguments, &p->model, team);
}

/* An exit code, which is no status, comes from the processes that have slices. */
static int predict_anyhow(pl_engine *engine, struct prediction *p)
{
    struct predict_arguments *a = p->arguments;
    const char *const options[] = {a->first,   a->maps,  a->scale, a->color,
                                   a->kernels, a->input, a->batch};
    const struct predict_slices slices = {"predict",
                                          predict_slice,
                                          p,
                                          &p->place,
                                          p->model.weights,
                                          options,
                                          sizeof options / sizeof *options};
    int rc = predict_slices_count(&p->model, a->slices_n, &a->slices_n);
    if (rc != PL_OK || a->slices_n == 1)
        return rc == PL_OK ? predict_records(engine, a, &p->model, NULL) : rc;
    if (!a->threads)
        a->threads_n = predict_slices_threads(&p->place, a->slices_n);
    return predict_slices_run(engine, (uint32_t)a->slices_n, &slices);
}

static int run_predict(const struct command *command, int argc, char **argv)
{
    static struct predict_arguments a;
    struct prediction p = {.arguments = &a};
    size_t given;
    a = (struct predict_arguments){0};
    int end = options_parse(command, argc, argv, &a, a.given, INPUTS_MAX, &given);
    if (end < 0)
        end = check_arguments(&a, given);
    if (end < 0)
        end = predict_slices_find("predict", &a.place, &a.slices_n, &p.place);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = find_model(engine, &a, &p.model);
    if (rc == PL_OK)
        rc = predict_anyhow(engine, &p);
    int code = rc == PL_OK ? EXIT_DONE : rc > 0 ? rc : cli_fail(engine, rc);
    predict_model_release(&p.model);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_predict = {
    .name = "predict",
    .summary = "Print the likeliest classes of pictures or other records",
    .arguments = "MODEL|--net FILE|NAME --weights FILE PICTURE...|SPEC",
    .options = predict_options,
    .run = run_predict,
};
