/* The command: picks a command from the table and runs it. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/secret_heap.h"
#include "cli/wait_policy.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &cmd_train,  &cmd_resume, &cmd_sim,      &cmd_plan,    &cmd_test,   &cmd_predict,
    &cmd_sample, &cmd_model,  &cmd_data,     &cmd_convert, &cmd_driver, &cmd_worker,
    &cmd_keygen, &cmd_bench,  &cmd_lr_range, &cmd_report};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to)
{
    fprintf(to, "usage: paceline COMMAND ...\n"
                "Trains neural networks on the machines you have.\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "  %-10s %s\n", "help",
            "This text; `help COMMAND` explains a command, `help data-spec` what SPEC may be");
    fprintf(to, "  %-10s %s\n", "version", "The version");
    fprintf(to,
            "\nExit codes: 0 done, 1 the run failed, 2 bad input or usage, 3 done, but the final "
            "model\nlies elsewhere than in the run directory, 70 a bug of ours, 130 "
            "interrupted.\n");
}

pl_engine *cli_engine(void)
{
    pl_engine *engine = NULL;
    pl_engine_options options = {
        .size = sizeof options, .log = output_log, .log_level = PL_LOG_INFO};
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
    output_finish();
    output_error("paceline: %s", pl_engine_error(engine));
    switch (status) {
    case PL_ERR_INPUT:
    case PL_ERR_USAGE:
    case PL_ERR_NOT_FOUND:
    case PL_ERR_UNSUPPORTED: return EXIT_BAD_INPUT;
    case PL_ERR_BUG: return EXIT_BUG;
    case PL_ERR_STOP: return EXIT_INTERRUPTED;
    default: return EXIT_FAILED;
    }
}

/* Checks the environment variables of the library before any command begins. */
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

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *meant = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < COMMANDS; i++)
        if (cli_nearer(name, commands[i]->name, &least))
            meant = commands[i]->name;
    fprintf(stderr, "paceline: unknown command %s%s%s%s; see paceline --help\n", name,
            meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
    return EXIT_BAD_INPUT;
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c)
{
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

/* `paceline help [COMMAND|data-spec]`, which is `paceline COMMAND --help`, and for bench `paceline
 * help bench WHAT`. */
static int run_help(int argc, char **argv)
{
    if (argc < 3 || is_one_of(argv[2], "help", "version", "--help")) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[2], "data-spec") == 0) {
        data_spec_help();
        return EXIT_DONE;
    }
    const struct command *command = find_command(argv[2]);
    bool part = command == &cmd_bench && argc > 3;
    char *asked[] = {argv[2], part ? argv[3] : "--help", "--help", NULL};
    return command ? command->run(command, part ? 3 : 2, asked) : unknown_command(argv[2]);
}

/* With threads that wait for one another: a driver evaluates, a simulation trains, too. */
static bool does_compute(const struct command *command)
{
    return command != &cmd_model && command != &cmd_data && command != &cmd_convert &&
           command != &cmd_report;
}

/* Open missing standard streams on the null device, so that a file that is opened later does not
 * become stdout or stderr. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* malloc reserves 64 MB of addresses for each thread, of which a limit leaves few. */
static void spare_addresses(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    spare_addresses();
    if (argc < 2) {
        print_help(stderr);
        return EXIT_BAD_INPUT;
    }
    if (is_one_of(argv[1], "--help", "-h", "help"))
        return run_help(argc, argv);
    if (is_one_of(argv[1], "--version", "-V", "version")) {
        printf("paceline %s\n", pl_version());
        return EXIT_DONE;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    secret_heap_install();
    if (does_compute(command))
        wait_policy_choose(argv);
    return environment_fits() ? command->run(command, argc - 1, argv + 1) : EXIT_BAD_INPUT;
}
