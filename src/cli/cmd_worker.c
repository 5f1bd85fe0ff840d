#include "cli/host_address.h"
#include "cli/number.h"
#include "paceline/run.h"

#include <signal.h>
#include <stdio.h>

struct worker_arguments {
    const char *join, *listen, *advertise, *retry, *data_root, *threads;
    bool insecure;
};

enum { RETRY_S = 60, THREADS_MAX = 1024 };

static atomic_bool leave; /* asked for by a signal */

static void on_terminate(int number)
{
    (void)number;
    atomic_store(&leave, true);
}

static const struct option worker_options[] = {
    {"join", OPTION_TEXT, "ADDR", "the driver's address, HOST:PORT (needed)",
     offsetof(struct worker_arguments, join)},
    {"data-root", OPTION_TEXT, "DIR", "open no data outside of it (driver elsewhere: .)",
     offsetof(struct worker_arguments, data_root)},
    {"threads", OPTION_TEXT, "T", "compute threads (as the job says, else one a core)",
     offsetof(struct worker_arguments, threads)},
    {"listen", OPTION_TEXT, "ADDR", "where other workers reach this one (as it reaches the driver)",
     offsetof(struct worker_arguments, listen)},
    {"advertise", OPTION_TEXT, "ADDR",
     "what they connect to to reach it, where a port is forwarded",
     offsetof(struct worker_arguments, advertise)},
    {"retry", OPTION_TEXT, "SECONDS", "how long to look for a driver not there yet, or lost (60)",
     offsetof(struct worker_arguments, retry)},
    {"insecure", OPTION_FLAG, NULL, "allow addresses beyond loopback: nothing is authenticated yet",
     offsetof(struct worker_arguments, insecure)},
    {0},
};

static int work(const struct worker_arguments *arguments, double retry_s, unsigned threads)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_terminate}, NULL);
    const pl_work_options options = {
        .driver = arguments->join,
        .listen = arguments->listen,
        .insecure = arguments->insecure,
        .advertise = arguments->advertise,
        .data_root = arguments->data_root,
        .threads = threads,
        .retry_s = retry_s,
        .leave = &leave,
    };
    int rc = pl_work(engine, &options);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_engine_destroy(engine);
    return code;
}

static int run_worker(const struct command *command, int argc, char **argv)
{
    struct worker_arguments arguments = {0};
    double retry_s = RETRY_S, threads = 0;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, NULL, 0, &count);
    if (end < 0 && !arguments.join) {
        fprintf(stderr, "paceline worker: --join ADDR is missing; see paceline worker --help\n");
        return EXIT_BAD_INPUT;
    }
    if (end < 0)
        end = number_option(command, "retry", arguments.retry, 0, 1e9, &retry_s);
    if (end < 0)
        end = number_option(command, "threads", arguments.threads, 1, THREADS_MAX, &threads);
    char join[HOST_ADDRESS_MAX], listen[HOST_ADDRESS_MAX], advertise[HOST_ADDRESS_MAX];
    if (end < 0)
        end = host_address("worker", "join", arguments.join, join, &arguments.join);
    if (end < 0)
        end = host_address("worker", "listen", arguments.listen, listen, &arguments.listen);
    if (end < 0)
        end = host_address("worker", "advertise", arguments.advertise, advertise,
                           &arguments.advertise);
    return end >= 0 ? end : work(&arguments, retry_s, (unsigned)threads);
}

const struct command cmd_worker = {
    .name = "worker",
    .summary = "Work for a driver (train starts its own workers)",
    .arguments = "--join ADDR",
    .options = worker_options,
    .run = run_worker,
};
