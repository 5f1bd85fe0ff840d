/* `paceline driver`: drives a run whose workers somebody else starts, here or on other machines. */
#include "cli/host_address.h"
#include "cli/job_options.h"
#include "cli/number.h"
#include "cli/run_output.h"

#include <stdio.h>

struct driver_arguments {
    struct job_options job;
    const char *out, *listen, *trace, *wait, *max_mbit, *workers_file;
    bool insecure, resume, json;
};

enum { WAIT_S = 600 };

static const struct option driver_options[] = {
    {"listen", OPTION_TEXT, "ADDR", "where workers reach the driver, HOST:PORT (127.0.0.1:0)",
     offsetof(struct driver_arguments, listen)},
    {"insecure", OPTION_FLAG, NULL, "allow addresses beyond loopback: nothing is authenticated yet",
     offsetof(struct driver_arguments, insecure)},
    {"wait", OPTION_TEXT, "SECONDS", "how long to wait for workers while none stirs (600)",
     offsetof(struct driver_arguments, wait)},
    {"max-mbit", OPTION_TEXT, "N", "send no more than N Mbit/s, and be sent no more",
     offsetof(struct driver_arguments, max_mbit)},
    JOB_OPTIONS(struct driver_arguments),
    {"out", OPTION_TEXT, "DIR", "run directory (runs/NAME-NNN)",
     offsetof(struct driver_arguments, out)},
    {"trace", OPTION_TEXT, "FILE", "write where each node's time went, for ui.perfetto.dev",
     offsetof(struct driver_arguments, trace)},
    {"workers-file", OPTION_TEXT, "FILE",
     "its number is how many workers there are to be: may change",
     offsetof(struct driver_arguments, workers_file)},
    {"resume", OPTION_FLAG, NULL, "go on from the newest checkpoint of --out, or of the newest run",
     offsetof(struct driver_arguments, resume)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct driver_arguments, json)},
    {0},
};

static void tell_worker(const char *address, const char *interface)
{
    fprintf(stderr, "    paceline worker --join %s%s%s%s\n", address,
            host_address_is_far(address) ? " --insecure" : "", interface ? "   # by " : "",
            interface ? interface : "");
}

/* What whoever starts the workers needs to know: one line to copy. */
static void on_listens(void *user, const char *address)
{
    (void)user;
    fprintf(stderr, "waits for workers; start each so, in the folder that holds its data or with "
                    "--data-root DIR:\n");
    if (host_address_is_any(address))
        host_address_each(address, tell_worker);
    else
        tell_worker(address, NULL);
}

struct driver_numbers {
    double wait_s, max_mbit;
};

static int drive(const struct driver_arguments *arguments, const char *path,
                 const struct driver_numbers *numbers)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    static struct run_output output;
    pl_run_report report;
    run_output_init(&output, arguments->json);
    output.workers.path = arguments->workers_file;
    int rc = job_options_load(engine, path, &arguments->job, &job);
    if (rc == PL_OK) {
        run_catch_signals();
        const pl_run_options options = {
            .out = arguments->out,
            .resume = arguments->resume,
            .event = run_output_event,
            .progress = run_output_progress,
            .user = &output,
            .trace = arguments->trace,
            .stop = &run_interrupted,
            .workers = &output.workers.workers,
            .listens = on_listens,
            .patience_s = numbers->wait_s,
            .max_mbit = numbers->max_mbit,
            .listen = arguments->listen,
            .insecure = arguments->insecure,
        };
        rc = pl_run(engine, job, &options, &report);
    }
    int code = cli_run_ended(engine, rc, &output, &report);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

static int run_driver(const struct command *command, int argc, char **argv)
{
    struct driver_arguments arguments = {0};
    const char *path = NULL;
    char listen[HOST_ADDRESS_MAX];
    struct driver_numbers numbers = {.wait_s = WAIT_S};
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end < 0)
        end = job_options_check(command, &arguments.job, count);
    if (end < 0)
        end = number_option(command, "wait", arguments.wait, 0.001, 1e9, &numbers.wait_s);
    if (end < 0)
        end = number_option(command, "max-mbit", arguments.max_mbit, 0.01, 1e6, &numbers.max_mbit);
    if (end < 0)
        end = host_address("driver", "listen", arguments.listen, listen, &arguments.listen);
    return end >= 0 ? end : drive(&arguments, path, &numbers);
}

const struct command cmd_driver = {
    .name = "driver",
    .summary = "Drive a job whose workers are started by hand, or by another engine",
    .arguments = "JOB|SOLVER --listen ADDR",
    .options = driver_options,
    .run = run_driver,
};
