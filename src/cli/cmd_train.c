#include "cli/auto_strategy.h"
#include "cli/host_address.h"
#include "cli/key_option.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/page_view.h"
#include "cli/plan_survey.h"
#include "cli/run_arguments.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "cli/workers.h"

#include <stdio.h>
#include <stdlib.h>

static const struct option train_options[] = {
    JOB_OPTIONS(struct run_arguments),
    OUTPUT_OPTIONS(struct run_arguments),
    JOB_RUN_OPTIONS(struct run_arguments),
    {"dry-run", OPTION_FLAG, NULL, "check job, data and net, print the whole job, take no step",
     offsetof(struct run_arguments, dry_run)},
    {"out", OPTION_TEXT, "DIR", "run directory (runs/NAME-NNN)",
     offsetof(struct run_arguments, out)},
    {"trace", OPTION_TEXT, "FILE", "write where each node's time went, for ui.perfetto.dev",
     offsetof(struct run_arguments, trace)},
    {"listen", OPTION_TEXT, "ADDR",
     "where workers reach the driver, HOST[:PORT] (127.0.0.1, any port; port " HOST_PORT ")",
     offsetof(struct run_arguments, listen)},
    {"insecure", OPTION_FLAG, NULL, INSECURE_HELP, offsetof(struct run_arguments, insecure)},
    {"key", OPTION_TEXT, "FILE", KEY_OPTION_HELP, offsetof(struct run_arguments, key_file)},
    {"wait", OPTION_TEXT, "SECONDS",
     "how long to wait for workers while none arrives (patience_seconds)",
     offsetof(struct run_arguments, wait)},
    {"workers-file", OPTION_TEXT, "FILE",
     "its number is how many workers there are to be: may change",
     offsetof(struct run_arguments, workers_file)},
    CACHE_OPTION,
    PAGE_OPTIONS,
    {"resume", OPTION_FLAG, NULL, "resume the run in --out, or the newest of that name",
     offsetof(struct run_arguments, resume)},
    RESUME_OPTIONS,
    {"snapshot", OPTION_TEXT, "FILE", "resume from a .solverstate of Caffe's",
     offsetof(struct run_arguments, snapshot)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct run_arguments, json)},
    {0},
};

/* The argument of a run's callbacks. */
struct training {
    struct run_output output; /* first, since the output's callbacks get its address */
    struct workers workers;
};

static int start_workers(void *user, uint32_t count, const char *address)
{
    return workers_start(&((struct training *)user)->workers, count, address);
}

static uint32_t count_lost_workers(void *user)
{
    return workers_lost(&((struct training *)user)->workers);
}

/* Workers that this command starts use a key of this run. If workers may also be started by hand,
 * for the given address, the key is one that they can read. */
static int find_key(const struct run_arguments *arguments, const char **key)
{
    *key = NULL;
    if (arguments->key_file)
        return key_option_read("train", arguments->key_file, key);
    if (!arguments->listen)
        return key_option_draw("train", key);
    return host_address_is_far(arguments->listen) ? -1 : key_option_own("train", key);
}

/* With all that it leaves to defaults. */
static int print_job(const pl_engine *engine, const pl_job *job)
{
    char *text;
    int rc = pl_job_text(job, &text);
    if (rc != PL_OK)
        return cli_fail(engine, rc);
    output_finish();
    printf("%s", text);
    free(text);
    return EXIT_DONE;
}

/* For the strategy `auto`, with workers of its own, which end before the run starts others. */
static int choose_strategy(pl_engine *engine, const struct run_arguments *arguments,
                           struct training *training, pl_job **job, char reason[CHOICE_TEXT_MAX])
{
    const pl_run_options survey = {
        .size = sizeof survey,
        .event = survey_event,
        .user = training,
        .stop = &signals_stop,
        .start_workers = start_workers,
        .workers_lost = count_lost_workers,
        .patience_s = arguments->wait_s,
        .listen = arguments->listen,
        .insecure = arguments->insecure,
        .key = training->workers.key,
    };
    int rc = auto_strategy_choose(engine, job, NULL, &survey, reason);
    workers_end(&training->workers);
    training->workers.lost = 0;
    return rc;
}

int run_with_workers(const struct run_arguments *arguments, const char *path)
{
    const char *key;
    int end = find_key(arguments, &key);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    static struct training training;
    pl_run_report report;
    training.workers.insecure = arguments->insecure;
    training.workers.key = key;
    training.workers.cache = arguments->cache;
    run_output_init(&training.output, arguments->json);
    training.output.watcher = arguments->watcher;
    training.output.workers.path = arguments->workers_file;
    char reason[CHOICE_TEXT_MAX] = "";
    int rc = job_options_load(engine, path, &arguments->job, &job);
    signals_catch_run();
    if (rc == PL_OK && !arguments->resume)
        rc = choose_strategy(engine, arguments, &training, &job, reason);
    if (rc == PL_OK) {
        const pl_run_options options = {
            .size = sizeof options,
            .out = arguments->out,
            .dry_run = arguments->dry_run,
            .resume = arguments->resume,
            .force_change = arguments->force_change,
            .take_over = arguments->take_over,
            .snapshot = arguments->snapshot,
            .begins = run_output_begins,
            .event = run_output_event,
            .progress = run_output_progress,
            .stopping = run_output_stopping,
            .tick = run_output_tick,
            .user = &training,
            .trace = arguments->trace,
            .stop = &signals_stop,
            .workers = &training.output.workers.workers,
            .start_workers = start_workers,
            .workers_lost = count_lost_workers,
            .patience_s = arguments->wait_s,
            .listen = arguments->listen,
            .insecure = arguments->insecure,
            .key = key,
            .chosen = reason[0] ? reason : NULL,
        };
        rc = pl_run(engine, job, &options, &report);
        workers_end(&training.workers);
    }
    int code = rc == PL_OK && arguments->dry_run
                   ? print_job(engine, job)
                   : cli_run_ended(engine, rc, &training.output, &report);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

static int run_train(const struct command *command, int argc, char **argv)
{
    struct run_arguments arguments = {0};
    char listen[HOST_ADDRESS_MAX];
    const char *path = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end < 0)
        end = number_option(command, "wait", arguments.wait, 0.001, 1e9, &arguments.wait_s);
    if (end >= 0)
        return end;
    end = host_address(command->name, "listen", arguments.listen, HOST_PORT, listen,
                       &arguments.listen);
    if (end < 0)
        end = run_arguments_check(command, &arguments, count);
    if (end < 0 && arguments.dry_run && (arguments.resume || arguments.json)) {
        fprintf(stderr, "paceline train: --dry-run %s; see paceline train --help\n",
                arguments.resume ? "is for a run that begins, not with --resume"
                                 : "prints the job as text, not with --json");
        return EXIT_BAD_INPUT;
    }
    return end >= 0 ? end : page_view_run(command, &arguments, path, false);
}

const struct command cmd_train = {
    .name = "train",
    .summary = "Train a job on this machine",
    .arguments = "JOB|SOLVER",
    .options = train_options,
    .run = run_train,
};
