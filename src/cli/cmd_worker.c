#include "cli/host_address.h"
#include "cli/number.h"
#include "paceline/run.h"

#include <signal.h>
#include <stdio.h>

struct worker_arguments {
    const char *join, *listen, *advertise, *retry, *data_root, *threads, *max_mbit, *nice;
    bool insecure;
};

enum { RETRY_S = 60, THREADS_MAX = 1024 };

static atomic_bool leave, paused; /* asked for by signals */

static void on_terminate(int number)
{
    (void)number;
    atomic_store(&leave, true);
}

static void on_pause(int number)
{
    atomic_store(&paused, number == SIGUSR1);
}

static const struct option worker_options[] = {
    {"join", OPTION_TEXT, "ADDR[,ADDR]",
     "the driver's HOST:PORT (needed), and where it may come back",
     offsetof(struct worker_arguments, join)},
    {"data-root", OPTION_TEXT, "DIR", "open no data outside of it (driver elsewhere: .)",
     offsetof(struct worker_arguments, data_root)},
    {"threads", OPTION_TEXT, "T", "compute threads (as the job says, else one a core)",
     offsetof(struct worker_arguments, threads)},
    {"nice", OPTION_TEXT, "N", "niceness of what computes, 0 to 19 (0)",
     offsetof(struct worker_arguments, nice)},
    {"max-mbit", OPTION_TEXT, "N", "send no more than N Mbit/s, and be sent no more",
     offsetof(struct worker_arguments, max_mbit)},
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

struct worker_numbers {
    double retry_s, threads, max_mbit, nice;
};

static int work(const struct worker_arguments *arguments, const struct worker_numbers *numbers)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_terminate}, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_pause}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_pause}, NULL);
    const pl_work_options options = {
        .driver = arguments->join,
        .listen = arguments->listen,
        .insecure = arguments->insecure,
        .advertise = arguments->advertise,
        .data_root = arguments->data_root,
        .threads = (unsigned)numbers->threads,
        .max_mbit = numbers->max_mbit,
        .nice = (int)numbers->nice,
        .pause = &paused,
        .retry_s = numbers->retry_s,
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
    struct worker_numbers numbers = {.retry_s = RETRY_S};
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, NULL, 0, &count);
    if (end < 0 && !arguments.join) {
        fprintf(stderr, "paceline worker: --join ADDR is missing; see paceline worker --help\n");
        return EXIT_BAD_INPUT;
    }
    if (end < 0)
        end = number_option(command, "retry", arguments.retry, 0, 1e9, &numbers.retry_s);
    if (end < 0)
        end =
            number_option(command, "threads", arguments.threads, 1, THREADS_MAX, &numbers.threads);
    if (end < 0)
        end = number_option(command, "max-mbit", arguments.max_mbit, 0.01, 1e6, &numbers.max_mbit);
    if (end < 0)
        end = number_option(command, "nice", arguments.nice, 0, 19, &numbers.nice);
    char join[HOST_ADDRESSES_MAX], listen[HOST_ADDRESS_MAX], advertise[HOST_ADDRESS_MAX];
    if (end < 0)
        end = host_addresses("worker", "join", arguments.join, join, &arguments.join);
    if (end < 0)
        end = host_address("worker", "listen", arguments.listen, listen, &arguments.listen);
    if (end < 0)
        end = host_address("worker", "advertise", arguments.advertise, advertise,
                           &arguments.advertise);
    return end >= 0 ? end : work(&arguments, &numbers);
}

const struct command cmd_worker = {
    .name = "worker",
    .summary = "Work for a driver; SIGTERM leaves the run, SIGUSR1 pauses, SIGUSR2 resumes",
    .arguments = "--join ADDR",
    .options = worker_options,
    .run = run_worker,
};
