/* `paceline model`: print a net as a prototxt, or the shapes and parameters of its layers. */
#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_arguments {
    const char *input;
    bool params, json;
};

static const struct option model_options[] = {
    {"params", OPTION_FLAG, NULL, "print a table of its layers instead",
     offsetof(struct model_arguments, params)},
    {"input", OPTION_TEXT, "CxHxW", "the shape of a record, for the table",
     offsetof(struct model_arguments, input)},
    {"json", OPTION_FLAG, NULL, "print the table as one JSON object on stdout",
     offsetof(struct model_arguments, json)},
    {0},
};

/* The sums over a net's layers. */
struct sum {
    size_t parameters, state;
    double multiply_adds;
};

static struct sum sum_up(const pl_layer *layer, size_t n)
{
    struct sum sum = {0};
    for (size_t i = 0; i < n; i++) {
        sum.parameters += layer[i].parameters;
        sum.state += layer[i].state;
        sum.multiply_adds += layer[i].multiply_adds;
    }
    return sum;
}

/* "3x224x224", from dimension `first` on; "1" for a number. */
static const char *shape_text(const pl_layer *layer, size_t first, char out[128])
{
    int used = 0;
    snprintf(out, 128, "1");
    for (size_t i = first; i < layer->dims; i++)
        used += snprintf(out + used, 128 - (size_t)used, "%s%zu", used ? "x" : "", layer->shape[i]);
    return out;
}

static void print_table(const pl_layer *layer, size_t n)
{
    int width = 5;
    for (size_t i = 0; i < n; i++)
        if ((int)strlen(layer[i].name) > width)
            width = (int)strlen(layer[i].name);
    char shape[128];
    struct sum sum = sum_up(layer, n);
    printf("%-*s  %-16s %-16s %12s %9s\n", width, "layer", "type", "result", "parameters", "state");
    for (size_t i = 0; i < n; i++)
        printf("%-*s  %-16s %-16s %12zu %9zu\n", width, layer[i].name, layer[i].type,
               shape_text(&layer[i], 0, shape), layer[i].parameters, layer[i].state);
    printf("%-*s  %-16s %-16s %12zu %9zu\n", width, "total", "", "", sum.parameters, sum.state);
    printf("%.1f million multiply-adds a record, forward\n", sum.multiply_adds * 1e-6);
}

/* cJSON gives NULL when memory runs out, and takes it as well. */
static cJSON *layer_json(const pl_layer *layer)
{
    cJSON *object = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(object, "shape");
    for (size_t i = 0; i < layer->dims; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)layer->shape[i]));
    cJSON_AddStringToObject(object, "name", layer->name);
    cJSON_AddStringToObject(object, "type", layer->type);
    cJSON_AddNumberToObject(object, "parameters", (double)layer->parameters);
    cJSON_AddNumberToObject(object, "state", (double)layer->state);
    return object;
}

static cJSON *net_json(const char *name, const pl_layer *layer, size_t n, bool layers)
{
    struct sum sum = sum_up(layer, n);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "net", name);
    cJSON_AddNumberToObject(object, "parameters", (double)sum.parameters);
    cJSON_AddNumberToObject(object, "state", (double)sum.state);
    cJSON_AddNumberToObject(object, "multiply_adds", sum.multiply_adds);
    cJSON *list = layers ? cJSON_AddArrayToObject(object, "layers") : NULL;
    for (size_t i = 0; i < n && list; i++)
        cJSON_AddItemToArray(list, layer_json(&layer[i]));
    return object;
}

/* The extent of a kernel with the pixels between its taps: E of struct conv_spec. */
static void print_json(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

/* One line a net of the zoo. */
static int list_zoo(pl_engine *engine, const struct model_arguments *a)
{
    cJSON *all = a->json ? cJSON_CreateArray() : NULL;
    int rc = PL_OK;
    if (!a->json)
        printf("%-14s %-10s %12s %24s\n", "net", "records", "parameters", "million multiply-adds");
    for (const char *const *name = pl_zoo_names(); *name && rc == PL_OK; name++) {
        pl_net_spec *spec = NULL;
        const pl_layer *layer;
        size_t n;
        char shape[128];
        rc = pl_net_spec_zoo(engine, *name, &spec);
        if (rc == PL_OK)
            rc = pl_net_spec_layers(spec, 0, 0, 0, &layer, &n);
        if (rc == PL_OK && a->json) {
            cJSON_AddItemToArray(all, net_json(*name, layer, n, false));
        } else if (rc == PL_OK) {
            struct sum sum = sum_up(layer, n);
            printf("%-14s %-10s %12zu %24.1f\n", *name, shape_text(&layer[0], 1, shape),
                   sum.parameters, sum.multiply_adds * 1e-6);
        }
        pl_net_spec_free(spec);
    }
    if (rc == PL_OK && a->json)
        print_json(all);
    else
        cJSON_Delete(all);
    return rc;
}

static int show_model(pl_engine *engine, const struct model_arguments *a, const char *name,
                      const uint32_t input[3])
{
    pl_net_spec *spec = NULL;
    const pl_layer *layer;
    const char *text;
    size_t n;
    int rc = cli_net_spec(engine, name, &spec);
    if (rc == PL_OK && (a->params || a->json)) {
        rc = pl_net_spec_layers(spec, input[0], input[1], input[2], &layer, &n);
        if (rc == PL_OK && a->json)
            print_json(net_json(name, layer, n, true));
        else if (rc == PL_OK)
            print_table(layer, n);
    } else if (rc == PL_OK) {
        rc = pl_net_spec_text(spec, &text);
        if (rc == PL_OK)
            fputs(text, stdout);
    }
    pl_net_spec_free(spec);
    return rc;
}

static int run_model(const struct command *command, int argc, char **argv)
{
    struct model_arguments a = {0};
    const char *name = NULL;
    size_t count;
    uint32_t input[3] = {0};
    int end = options_parse(command, argc, argv, &a, &name, 1, &count);
    if (end >= 0)
        return end;
    if (a.input && !cli_record_shape(a.input, input)) {
        fprintf(stderr, "paceline model: --input must be channels, rows and columns, as in "
                        "3x224x224\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = count ? show_model(engine, &a, name, input) : list_zoo(engine, &a);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_model = {
    .name = "model",
    .summary = "Show a net as a prototxt or its layers; without a net, list the zoo",
    .arguments = "[FILE|NAME]",
    .options = model_options,
    .run = run_model,
};
