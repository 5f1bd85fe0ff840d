#include "cli/job_options.h"
#include "paceline/run.h"

#include <signal.h>
#include <stdio.h>

struct train_arguments {
    struct job_options job;
    bool json;
};

static const struct option train_options[] = {
    JOB_OPTIONS(struct train_arguments),
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout",
     offsetof(struct train_arguments, json)},
    {0},
};

static atomic_bool interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    atomic_store(&interrupted, true);
}

struct listener {
    char end[1024]; /* the last event */
};

static void on_event(void *user, const char *line)
{
    struct listener *listener = user;
    snprintf(listener->end, sizeof listener->end, "%s", line);
    fprintf(stderr, "%s\n", line);
}

static int train(const struct train_arguments *arguments, const char *path)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_job *job = NULL;
    struct listener listener = {{0}};
    pl_run_report report;
    int rc = job_options_load(engine, path, &arguments->job, &job);
    if (rc == PL_OK) {
        struct sigaction action = {.sa_handler = on_interrupt};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        pl_run_options options = {on_event, &listener, &interrupted};
        rc = pl_run(engine, job, &options, &report);
    }
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK && arguments->json)
        printf("%s\n", listener.end);
    if (rc == PL_OK && atomic_load(&interrupted))
        code = EXIT_INTERRUPTED;
    pl_job_free(job);
    pl_engine_destroy(engine);
    return code;
}

static int run_train(const struct command *command, int argc, char **argv)
{
    struct train_arguments arguments = {0};
    const char *path;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end >= 0)
        return end;
    if (count != 1) {
        fprintf(stderr, "paceline train: a job file is missing; see paceline train --help\n");
        return EXIT_BAD_INPUT;
    }
    return train(&arguments, path);
}

const struct command cmd_train = {
    .name = "train",
    .summary = "Train a job on this machine",
    .arguments = "JOB",
    .options = train_options,
    .run = run_train,
};
