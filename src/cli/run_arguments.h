/* The options of a run for train, driver and resume, and how these commands begin it. */
#ifndef PL_CLI_RUN_ARGUMENTS_H
#define PL_CLI_RUN_ARGUMENTS_H

#include "cli/job_options.h"
#include "cli/run_output.h"

struct run_arguments {
    struct job_options job;
    struct output_arguments output;
    const char *out, *listen, *trace, *snapshot, *workers_file;
    const char *cache; /* of train, resume */
    const char *page, *page_token;
    const struct run_watcher *watcher; /* of page_view_run; NULL: none */
    const char *wait;
    const char *max_mbit; /* of driver */
    double wait_s;        /* of train */
    const char *key_file;
    bool dry_run; /* of train */
    bool insecure, resume, force_change, take_over, json;
};

/* Rows for a table of options. */
#define RUN_OPTION(name, kind, value, help, field)                     \
    {                                                                  \
        name, kind, value, help, offsetof(struct run_arguments, field) \
    }
/* Of a run whose workers the command starts. */
#define CACHE_OPTION                        \
    RUN_OPTION("cache", OPTION_TEXT, "DIR", \
               "where workers of a job with `cache: disk` keep records (/var/tmp)", cache)
/* Of a run that continues. */
#define RESUME_OPTIONS                                                               \
    RUN_OPTION("force-change", OPTION_FLAG, NULL,                                    \
               "resume although the job makes it another run: net, data, seed, ...", \
               force_change),                                                        \
        RUN_OPTION("take-over", OPTION_FLAG, NULL,                                   \
                   "resume although the run's driver is alive, which ends", take_over)

/* Check that the arguments name exactly one job: a file, a solver, or a run to continue; and take
 * the output options. EXIT_BAD_INPUT after a message, -1 to continue. */
int run_arguments_check(const struct command *command, struct run_arguments *arguments,
                        size_t files);

/* Begin the run, or continue with it, and return the command's exit code: with workers that it
 * starts; or for workers started elsewhere. `path`: the job file; NULL: `job` says. */
int run_with_workers(const struct run_arguments *arguments, const char *path);
int run_as_driver(const struct command *command, struct run_arguments *arguments, const char *path);

#endif
