/* The command: picks a command from the table and runs it. */
#include "cli/cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {&cmd_train,  &cmd_sim,  &cmd_test,    &cmd_predict,
                                                 &cmd_model,  &cmd_data, &cmd_convert, &cmd_driver,
                                                 &cmd_worker, &cmd_bench};

static void help(FILE *to)
{
    fprintf(to, "usage: paceline COMMAND ...\n"
                "Trains neural networks on the machines you have.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\npaceline COMMAND --help explains a command; paceline --version its version.\n");
}

static void print_log(void *user, pl_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level >= PL_LOG_WARN ? "warning: " : "", line);
}

pl_engine *cli_engine(void)
{
    pl_engine *engine = NULL;
    pl_engine_options options = {.log = print_log, .log_level = PL_LOG_INFO};
    if (pl_engine_create(&options, &engine) != PL_OK)
        fprintf(stderr, "paceline: out of memory\n");
    return engine;
}

int cli_net_spec(pl_engine *engine, const char *text, pl_net_spec **out)
{
    return strpbrk(text, "/.") ? pl_net_spec_load(engine, text, out)
                               : pl_net_spec_zoo(engine, text, out);
}

int cli_fail(const pl_engine *engine, int status)
{
    fprintf(stderr, "paceline: %s\n", pl_engine_error(engine));
    switch (status) {
    case PL_ERR_INPUT:
    case PL_ERR_USAGE:
    case PL_ERR_NOT_FOUND:
    case PL_ERR_UNSUPPORTED: return EXIT_BAD_INPUT;
    case PL_ERR_BUG: return EXIT_BUG;
    default: return EXIT_FAILED;
    }
}

/* What the library refuses of the environment, before any command begins. */
static bool environment_fits(void)
{
    pl_engine *engine = NULL;
    int rc = pl_engine_create(NULL, &engine);
    pl_engine_destroy(engine);
    if (rc != PL_ERR_USAGE)
        return true;
    fprintf(stderr, "paceline: PACELINE_ISA: expected sse2, avx2 or avx512, not %s\n",
            getenv("PACELINE_ISA"));
    return false;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return EXIT_BAD_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("paceline %s\n", pl_version());
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i]->name) == 0)
            return environment_fits() ? commands[i]->run(commands[i], argc - 1, argv + 1)
                                      : EXIT_BAD_INPUT;
    }
    fprintf(stderr, "paceline: unknown command %s; see paceline --help\n", argv[1]);
    return EXIT_BAD_INPUT;
}
