/* Output of train, driver and sim while they run, by output.h: a line for each event that concerns
 * people, and progress; at the end the result on stdout, with --json as one object. */
#ifndef PL_CLI_RUN_OUTPUT_H
#define PL_CLI_RUN_OUTPUT_H

#include "cli/cli.h"
#include "cli/workers_file.h"
#include "paceline/run.h"

#include <cjson/cJSON.h>

enum { PROGRESS_EVERY_S = 2 }; /* off a terminal */

/* Somebody who follows the run, too: receives what the run_output_* below receive. */
struct run_watcher {
    void (*begins)(void *user, const char *directory);
    void (*event)(void *user, const char *line);
    void (*progress)(void *user, const pl_progress *progress);
    void (*tick)(void *user);
    void *user;
};

struct run_output {
    const struct run_watcher *watcher; /* NULL: none */
    bool json;
    bool virtual_time; /* the run's seconds are not ours */
    bool has_ended;    /* this driver has written the run's end */
    bool resumable;    /* there is a checkpoint to resume from */
    cJSON *end;        /* with json: the event of the run's end, until it is printed */
    double best[2];    /* lowest error, or loss, on the validation and the test set so far */
    char directory[2048];
    struct workers_file workers;
};

/* --quiet and --progress, of all commands that run or work. */
struct output_arguments {
    bool quiet;
    const char *progress;
};

/* Rows for a table of options; `type` has a member `output` of struct output_arguments. */
#define OUTPUT_OPTIONS(type)                                                            \
    {"quiet", OPTION_FLAG, NULL, "print only warnings, errors and the result; -q",      \
     offsetof(type, output.quiet)},                                                     \
    {                                                                                   \
        "progress", OPTION_TEXT, "SECONDS", "between lines of progress off a terminal", \
            offsetof(type, output.progress)                                             \
    }

/* Take them up; `every_s`: without --progress. -1 to continue, or EXIT_BAD_INPUT after a
 * message. */
int run_output_configure(const struct command *command, const struct output_arguments *arguments,
                         double every_s);

void run_output_init(struct run_output *output, bool json);

/* For pl_run_options. */
void run_output_begins(void *user, const char *directory);
void run_output_event(void *user, const char *line);
void run_output_progress(void *user, const pl_progress *progress);
void run_output_stopping(void *user, const pl_stopping *stopping);
void run_output_tick(void *user);

/* Print the result of a run, or why there is none; returns the command's exit code. */
int cli_run_ended(const pl_engine *engine, int status, struct run_output *output,
                  const pl_run_report *report);

#endif
