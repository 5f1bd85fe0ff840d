/* Models from one format into another. */
#include "cli/cli.h"
#include "paceline/convert.h"

#include <stdio.h>

struct convert_arguments {
    const char *net, *input;
    bool force, torchvision;
};

static const struct option convert_options[] = {
    {"net", OPTION_TEXT, "FILE|NAME", "the net of a .safetensors that brings none along",
     offsetof(struct convert_arguments, net)},
    {"input", OPTION_TEXT, "CxHxW", "the shape of a record, for an .onnx of a net without one",
     offsetof(struct convert_arguments, input)},
    {"torchvision", OPTION_FLAG, NULL,
     "a .safetensors gets the names of PyTorch's torchvision (ResNets, VGGs)",
     offsetof(struct convert_arguments, torchvision)},
    {"force", OPTION_FLAG, NULL, "replace OUT where there is one",
     offsetof(struct convert_arguments, force)},
    {0},
};

static int run_convert(const struct command *command, int argc, char **argv)
{
    struct convert_arguments a = {0};
    const char *path[2] = {0};
    size_t count = 0;
    int end = options_parse(command, argc, argv, &a, path, 2, &count);
    if (end >= 0)
        return end;
    if (count < 2) {
        fprintf(stderr, "paceline convert: which files? see paceline convert --help\n");
        return EXIT_BAD_INPUT;
    }
    uint32_t input[3] = {0};
    if (a.input && !cli_record_shape(a.input, input)) {
        fprintf(stderr, "paceline convert: --input must be channels, rows and columns, as in "
                        "3x224x224\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_net_spec *spec = NULL;
    int rc = a.net ? cli_net_spec(engine, a.net, &spec) : PL_OK;
    const pl_convert_options options = {
        .size = sizeof options,
        .net = spec,
        .replace = a.force,
        .torchvision = a.torchvision,
        .channels = input[0],
        .height = input[1],
        .width = input[2],
    };
    if (rc == PL_OK)
        rc = pl_convert_as(engine, path[0], path[1], &options);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_net_spec_free(spec);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_convert = {
    .name = "convert",
    .summary =
        "Convert a model: .caffemodel, .safetensors, .onnx to each other, old .prototxt to new",
    .arguments = "IN OUT",
    .options = convert_options,
    .run = run_convert,
};
