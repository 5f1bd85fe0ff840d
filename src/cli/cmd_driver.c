/* `paceline driver`: drives a run whose workers are started by hand, here or on other machines. */
#include "cli/auto_strategy.h"
#include "cli/driver_address.h"
#include "cli/key_option.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/page_view.h"
#include "cli/run_output.h"
#include "cli/signals.h"

#include <stdio.h>
#include <stdlib.h>

static const struct option driver_options[] = {
    {"listen", OPTION_TEXT, "ADDR",
     "where workers reach the driver, HOST[:PORT] (127.0.0.1:" HOST_PORT ")",
     offsetof(struct run_arguments, listen)},
    {"insecure", OPTION_FLAG, NULL, INSECURE_HELP, offsetof(struct run_arguments, insecure)},
    {"key", OPTION_TEXT, "FILE", KEY_OPTION_HELP, offsetof(struct run_arguments, key_file)},
    {"wait", OPTION_TEXT, "SECONDS",
     "how long to wait for workers while none arrives (patience_seconds)",
     offsetof(struct run_arguments, wait)},
    {"max-mbit", OPTION_TEXT, "N", "send no more than N Mbit/s, and be sent no more",
     offsetof(struct run_arguments, max_mbit)},
    JOB_OPTIONS(struct run_arguments),
    OUTPUT_OPTIONS(struct run_arguments),
    JOB_RUN_OPTIONS(struct run_arguments),
    {"out", OPTION_TEXT, "DIR", "run directory (runs/NAME-NNN)",
     offsetof(struct run_arguments, out)},
    {"trace", OPTION_TEXT, "FILE", "write where each node's time went, for ui.perfetto.dev",
     offsetof(struct run_arguments, trace)},
    {"workers-file", OPTION_TEXT, "FILE",
     "its number is how many workers there are to be: may change",
     offsetof(struct run_arguments, workers_file)},
    PAGE_OPTIONS,
    {"resume", OPTION_FLAG, NULL, "resume the run in --out, or the newest of that name",
     offsetof(struct run_arguments, resume)},
    RESUME_OPTIONS,
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct run_arguments, json)},
    {0},
};

struct driver_numbers {
    double wait_s, max_mbit;
};

static int drive_run(const struct run_arguments *arguments, const char *path,
                     const struct driver_numbers *numbers, const struct driver_address *address)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    static struct run_output output;
    pl_run_report report;
    run_output_init(&output, arguments->json);
    output.watcher = arguments->watcher;
    output.workers.path = arguments->workers_file;
    char reason[CHOICE_TEXT_MAX] = "";
    int rc = job_options_load(engine, path, &arguments->job, &job);
    if (rc == PL_OK && !arguments->resume)
        rc = auto_strategy_choose(engine, &job, NULL, NULL, reason);
    if (rc == PL_OK) {
        signals_catch_run();
        const pl_run_options options = {
            .size = sizeof options,
            .out = arguments->out,
            .resume = arguments->resume,
            .force_change = arguments->force_change,
            .take_over = arguments->take_over,
            .begins = run_output_begins,
            .event = run_output_event,
            .progress = run_output_progress,
            .stopping = run_output_stopping,
            .tick = run_output_tick,
            .user = &output,
            .trace = arguments->trace,
            .stop = &signals_stop,
            .workers = &output.workers.workers,
            .listens = driver_address_print,
            .patience_s = numbers->wait_s,
            .max_mbit = numbers->max_mbit,
            .listen = address->listen,
            .port = (unsigned short)atoi(HOST_PORT),
            .insecure = arguments->insecure,
            .key = address->key,
            .chosen = reason[0] ? reason : NULL,
        };
        rc = pl_run(engine, job, &options, &report);
    }
    int code = cli_run_ended(engine, rc, &output, &report);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

int run_as_driver(const struct command *command, struct run_arguments *arguments, const char *path)
{
    static struct driver_address address;
    struct driver_numbers numbers = {0};
    int end = number_option(command, "wait", arguments->wait, 0.001, 1e9, &numbers.wait_s);
    if (end < 0)
        end = number_option(command, "max-mbit", arguments->max_mbit, 0.01, 1e6, &numbers.max_mbit);
    if (end < 0)
        end = driver_address_read(command, arguments->listen, arguments->key_file, &address);
    return end >= 0 ? end : drive_run(arguments, path, &numbers, &address);
}

static int run_driver(const struct command *command, int argc, char **argv)
{
    struct run_arguments arguments = {0};
    const char *path = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end < 0)
        end = run_arguments_check(command, &arguments, count);
    return end >= 0 ? end : page_view_run(command, &arguments, path, true);
}

const struct command cmd_driver = {
    .name = "driver",
    .summary = "Drive a job whose workers are started by hand, or by another engine",
    .arguments = "JOB|SOLVER --listen ADDR",
    .options = driver_options,
    .run = run_driver,
};
