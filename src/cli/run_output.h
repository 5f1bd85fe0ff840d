/* What train, driver and sim print while they run: a progress line on a terminal, plain lines when
 * piped, the last event alone on stdout with --json. */
#ifndef PL_CLI_RUN_OUTPUT_H
#define PL_CLI_RUN_OUTPUT_H

#include "cli/cli.h"
#include "cli/workers_file.h"
#include "paceline/run.h"

struct run_output {
    bool json;
    bool terminal;   /* stderr is one */
    bool open_line;  /* a progress line stands unfinished */
    char last[2048]; /* the newest event */
    double printed;  /* time of the last plain progress line */
    struct workers_file workers;
};

void run_output_init(struct run_output *output, bool json);

/* For pl_run_options. */
void run_output_event(void *user, const char *line);
void run_output_progress(void *user, const pl_progress *progress);

/* Print the result of a run, or why there is none; returns the command's exit code. */
int cli_run_ended(const pl_engine *engine, int status, struct run_output *output,
                  const pl_run_report *report);

/* Set by SIGINT and SIGTERM once run_catch_signals has been called; a second one ends the process.
 */
extern atomic_bool run_interrupted;
void run_catch_signals(void);

#endif
