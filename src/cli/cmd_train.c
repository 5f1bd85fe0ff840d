#include "cli/job_options.h"
#include "cli/run_output.h"
#include "cli/workers.h"

#include <stdio.h>

struct train_arguments {
    struct job_options job;
    const char *out, *listen, *trace, *snapshot, *workers_file;
    bool insecure, resume, json;
};

static const struct option train_options[] = {
    JOB_OPTIONS(struct train_arguments),
    {"out", OPTION_TEXT, "DIR", "run directory (runs/NAME-NNN)",
     offsetof(struct train_arguments, out)},
    {"trace", OPTION_TEXT, "FILE", "write where each node's time went, for ui.perfetto.dev",
     offsetof(struct train_arguments, trace)},
    {"listen", OPTION_TEXT, "ADDR", "where workers reach the driver (127.0.0.1)",
     offsetof(struct train_arguments, listen)},
    {"insecure", OPTION_FLAG, NULL, "allow addresses beyond loopback: nothing is authenticated yet",
     offsetof(struct train_arguments, insecure)},
    {"workers-file", OPTION_TEXT, "FILE",
     "its number is how many workers there are to be: may change",
     offsetof(struct train_arguments, workers_file)},
    {"resume", OPTION_FLAG, NULL, "go on from the newest checkpoint of --out, or of the newest run",
     offsetof(struct train_arguments, resume)},
    {"snapshot", OPTION_TEXT, "FILE", "go on from a .solverstate of Caffe's",
     offsetof(struct train_arguments, snapshot)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct train_arguments, json)},
    {0},
};

/* What a run's callbacks are given. */
struct training {
    struct run_output output; /* first: it is what the output's callbacks take */
    struct workers workers;
};

static int start_workers(void *user, uint32_t count, const char *address)
{
    return workers_start(&((struct training *)user)->workers, count, address);
}

static bool has_lost_workers(void *user)
{
    return workers_lost(&((struct training *)user)->workers);
}

static int train(const struct train_arguments *arguments, const char *path)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    static struct training training;
    pl_run_report report;
    training.workers.insecure = arguments->insecure;
    run_output_init(&training.output, arguments->json);
    training.output.workers.path = arguments->workers_file;
    int rc = job_options_load(engine, path, &arguments->job, &job);
    if (rc == PL_OK) {
        run_catch_signals();
        const pl_run_options options = {
            .out = arguments->out,
            .resume = arguments->resume,
            .snapshot = arguments->snapshot,
            .event = run_output_event,
            .progress = run_output_progress,
            .user = &training,
            .trace = arguments->trace,
            .stop = &run_interrupted,
            .workers = &training.output.workers.workers,
            .start_workers = start_workers,
            .workers_lost = has_lost_workers,
            .listen = arguments->listen,
            .insecure = arguments->insecure,
        };
        rc = pl_run(engine, job, &options, &report);
        workers_end(&training.workers);
    }
    int code = cli_run_ended(engine, rc, &training.output, &report);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

static int run_train(const struct command *command, int argc, char **argv)
{
    struct train_arguments arguments = {0};
    const char *path = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end >= 0)
        return end;
    end = job_options_check(command, &arguments.job, count);
    return end >= 0 ? end : train(&arguments, path);
}

const struct command cmd_train = {
    .name = "train",
    .summary = "Train a job on this machine",
    .arguments = "JOB|SOLVER",
    .options = train_options,
    .run = run_train,
};
