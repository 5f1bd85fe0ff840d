#include "cli/cli.h"
#include "paceline/run.h"

#include <stdio.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct worker_arguments {
    const char *join, *listen, *advertise, *retry;
    bool insecure;
};

enum { RETRY_S = 60 };

static atomic_bool leave; /* asked for by a signal */

static void on_terminate(int number)
{
    (void)number;
    atomic_store(&leave, true);
}

/* false: no number of seconds. */
static bool parse_seconds(const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && *out >= 0 && *out <= 1e9;
}

static const struct option worker_options[] = {
    {"join", OPTION_TEXT, "ADDR", "the driver's address, HOST:PORT (needed)",
     offsetof(struct worker_arguments, join)},
    {"listen", OPTION_TEXT, "ADDR", "where other workers reach this one (127.0.0.1)",
     offsetof(struct worker_arguments, listen)},
    {"advertise", OPTION_TEXT, "ADDR",
     "what they connect to to reach it, where a port is forwarded",
     offsetof(struct worker_arguments, advertise)},
    {"retry", OPTION_TEXT, "SECONDS", "how long to try to come again to a lost driver (60)",
     offsetof(struct worker_arguments, retry)},
    {"insecure", OPTION_FLAG, NULL, "allow addresses beyond loopback: nothing is authenticated yet",
     offsetof(struct worker_arguments, insecure)},
    {0},
};

static int run_worker(const struct command *command, int argc, char **argv)
{
    struct worker_arguments arguments = {0};
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, NULL, 0, &count);
    if (end >= 0)
        return end;
    if (!arguments.join) {
        fprintf(stderr, "paceline worker: --join ADDR is missing; see paceline worker --help\n");
        return EXIT_BAD_INPUT;
    }
    double retry_s = RETRY_S;
    if (arguments.retry && !parse_seconds(arguments.retry, &retry_s)) {
        fprintf(stderr, "paceline worker: --retry: expected seconds, not %s\n", arguments.retry);
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_terminate}, NULL);
    const pl_work_options options = {
        .driver = arguments.join,
        .listen = arguments.listen,
        .insecure = arguments.insecure,
        .advertise = arguments.advertise,
        .retry_s = retry_s,
        .leave = &leave,
    };
    int rc = pl_work(engine, &options);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_worker = {
    .name = "worker",
    .summary = "Work for a driver (train starts its own workers)",
    .arguments = "--join ADDR",
    .options = worker_options,
    .run = run_worker,
};
