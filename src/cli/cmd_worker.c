#include "cli/host_address.h"
#include "cli/key_option.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "cli/work_output.h"
#include "paceline/run.h"

#include <stdio.h>
#include <string.h>

struct worker_arguments {
    const char *join, *listen, *advertise, *retry, *data_root, *data_urls, *threads, *max_mbit,
        *nice, *key_file, *cache, *run_directory;
    bool insecure, one_machine;
    struct output_arguments output;
};

enum { RETRY_S = 60, THREADS_MAX = 1024, WORKER_EVERY_S = 10 };

static const struct option worker_options[] = {
    {"join", OPTION_TEXT, "ADDR[,ADDR]",
     "the driver's HOST[:PORT] (needed; port " HOST_PORT "), and where it may return",
     offsetof(struct worker_arguments, join)},
    {"key", OPTION_TEXT, "FILE", KEY_OPTION_HELP, offsetof(struct worker_arguments, key_file)},
    {"data-root", OPTION_TEXT, "DIR", "open data only below it (driver elsewhere: .)",
     offsetof(struct worker_arguments, data_root)},
    {"cache", OPTION_TEXT, "DIR", "where a job with `cache: disk` keeps records (/var/tmp)",
     offsetof(struct worker_arguments, cache)},
    {"run-directory", OPTION_TEXT, "DIR",
     "the run's directory, if this machine has it: its state goes there when the driver is lost",
     offsetof(struct worker_arguments, run_directory)},
    {"one-machine", OPTION_FLAG, NULL,
     "all workers are on this machine: a memory_budget of 50% is for all together",
     offsetof(struct worker_arguments, one_machine)},
    {"data-urls", OPTION_TEXT, "URL", "open URLs that begin so, too: https://host/data/",
     offsetof(struct worker_arguments, data_urls)},
    {"threads", OPTION_TEXT, "T", "compute threads (the job's number, else one a core)",
     offsetof(struct worker_arguments, threads)},
    {"nice", OPTION_TEXT, "N", "niceness of compute threads, 0 to 19 (0)",
     offsetof(struct worker_arguments, nice)},
    {"max-mbit", OPTION_TEXT, "N", "send no more than N Mbit/s, and be sent no more",
     offsetof(struct worker_arguments, max_mbit)},
    {"listen", OPTION_TEXT, "ADDR", "where other workers reach this one (as it reaches the driver)",
     offsetof(struct worker_arguments, listen)},
    {"advertise", OPTION_TEXT, "ADDR", "address that others connect to, if a port is forwarded",
     offsetof(struct worker_arguments, advertise)},
    {"retry", OPTION_TEXT, "SECONDS",
     "how long to wait for a driver that is not up yet, or lost (60)",
     offsetof(struct worker_arguments, retry)},
    {"insecure", OPTION_FLAG, NULL, INSECURE_HELP, offsetof(struct worker_arguments, insecure)},
    OUTPUT_OPTIONS(struct worker_arguments),
    {0},
};

struct worker_numbers {
    double retry_s, threads, max_mbit, nice;
};

static bool has_far(const char *addresses)
{
    for (const char *at = addresses; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (host_address_is_far(at))
            return true;
    return false;
}

/* Of several drivers, one of which is on another host, none is shown this user's own. */
static int find_key(const struct worker_arguments *arguments, const char **key)
{
    *key = NULL;
    if (arguments->key_file)
        return key_option_read("worker", arguments->key_file, key);
    return has_far(arguments->join) ? -1 : key_option_own("worker", key);
}

static int work_once(const struct worker_arguments *arguments, const struct worker_numbers *numbers,
                     const char *key)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    signals_catch_worker();
    const pl_work_options options = {
        .size = sizeof options,
        .progress = work_output_progress,
        .tick = work_output_tick,
        .driver = arguments->join,
        .listen = arguments->listen,
        .insecure = arguments->insecure,
        .key = key,
        .advertise = arguments->advertise,
        .data_root = arguments->data_root,
        .cache_directory = arguments->cache,
        .run_directory = arguments->run_directory,
        .one_machine = arguments->one_machine,
        .data_urls = arguments->data_urls,
        .threads = (unsigned)numbers->threads,
        .max_mbit = numbers->max_mbit,
        .nice = (int)numbers->nice,
        .pause = &signals_pause,
        .retry_s = numbers->retry_s,
        .leave = &signals_leave,
    };
    int rc = pl_work(engine, &options);
    output_finish();
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_engine_destroy(engine);
    return code;
}

/* A worker that names its own machine listens where other machines reach it, too. */
static const char *join_beyond(const char *typed, const char *numbers, char out[HOST_ADDRESSES_MAX])
{
    char own[HOST_ADDRESS_MAX];
    const char *beyond =
        host_address_own(own) ? host_addresses_beyond(typed, numbers, own, out) : NULL;
    return beyond ? beyond : numbers;
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
        end = run_output_configure(command, &arguments.output, WORKER_EVERY_S);
    if (end < 0)
        end = number_option(command, "retry", arguments.retry, 0, 1e9, &numbers.retry_s);
    if (end < 0)
        end =
            number_option(command, "threads", arguments.threads, 1, THREADS_MAX, &numbers.threads);
    if (end < 0)
        end = number_option(command, "max-mbit", arguments.max_mbit, 0.01, 1e6, &numbers.max_mbit);
    if (end < 0)
        end = number_option(command, "nice", arguments.nice, 0, 19, &numbers.nice);
    const char *typed = arguments.join;
    char beyond[HOST_ADDRESSES_MAX];
    char join[HOST_ADDRESSES_MAX], listen[HOST_ADDRESS_MAX], advertise[HOST_ADDRESS_MAX];
    const char *key = NULL;
    if (end < 0)
        end = host_addresses("worker", "join", arguments.join, join, &arguments.join);
    if (end < 0 && arguments.key_file && !arguments.listen)
        arguments.join = join_beyond(typed, arguments.join, beyond);
    if (end < 0)
        end = host_address("worker", "listen", arguments.listen, "0", listen, &arguments.listen);
    if (end < 0)
        end = host_address("worker", "advertise", arguments.advertise, NULL, advertise,
                           &arguments.advertise);
    if (end < 0)
        end = find_key(&arguments, &key);
    return end >= 0 ? end : work_once(&arguments, &numbers, key);
}

const struct command cmd_worker = {
    .name = "worker",
    .summary =
        "Work for a driver; Ctrl-C or SIGTERM leaves the run, SIGUSR1 pauses, SIGUSR2 resumes",
    .arguments = "--join ADDR",
    .options = worker_options,
    .run = run_worker,
};
