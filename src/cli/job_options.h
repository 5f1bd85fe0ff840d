/* The options that train, driver, sim and bench share: a job file and what overrides it. */
#ifndef PL_CLI_JOB_OPTIONS_H
#define PL_CLI_JOB_OPTIONS_H

#include "cli/cli.h"
#include "paceline/job.h"

struct job_options {
    const char *solver, *weights;
    const char *strategy, *workers, *seed, *threads, *kernels, *precision;
    const char *data, *test_data;
    const char *epochs, *steps, *lr, *batch;
    struct option_list set, unset;
    bool deterministic;
    const char *run; /* a run directory, whose job is used; NULL: the job file, or solver */
};

/* Rows for a table of options; `type` has a member `job` of struct job_options. */
#define JOB_OPTION(type, name, kind, value, help, field)   \
    {                                                      \
        name, kind, value, help, offsetof(type, job.field) \
    }
#define JOB_OPTIONS(type)                                                                         \
    JOB_OPTION(type, "solver", OPTION_TEXT, "FILE", "a Caffe solver, in place of a job", solver), \
        JOB_CHANGE_OPTIONS(type)

/* Options that override a job that is known otherwise. */
#define JOB_CHANGE_OPTIONS(type)                                                              \
    JOB_OPTION(type, "workers", OPTION_TEXT, "K", "how many workers", workers),               \
        JOB_OPTION(type, "strategy", OPTION_TEXT, "NAME", "this strategy, with its defaults", \
                   strategy),                                                                 \
        JOB_FIELD_OPTIONS(type)

/* The same without workers and strategy. */
#define JOB_FIELD_OPTIONS(type)                                                                \
    JOB_OPTION(type, "set", OPTION_LIST, "FIELD=VALUE", "set any field of the job", set),      \
        JOB_OPTION(type, "unset", OPTION_LIST, "FIELD", "take back a field that the job sets", \
                   unset),                                                                     \
        JOB_OPTION(type, "data", OPTION_TEXT, "SPEC",                                          \
                   "training data, KIND:PATH[?scale=...]: see `help data-spec`", data),        \
        JOB_OPTION(type, "weights", OPTION_TEXT, "FILE", "begin with these, layer by layer",   \
                   weights),                                                                   \
        JOB_OPTION(type, "test-data", OPTION_TEXT, "SPEC", "test data", test_data),            \
        JOB_OPTION(type, "seed", OPTION_TEXT, "S", "seed of all that is random", seed),        \
        JOB_OPTION(type, "threads", OPTION_TEXT, "T", "compute threads a worker", threads),    \
        JOB_OPTION(type, "kernels", OPTION_TEXT, "K", "ref, dnnl or auto", kernels),           \
        JOB_OPTION(type, "precision", OPTION_TEXT, "P", "f32 or bf16, of images in training",  \
                   precision),                                                                 \
        JOB_OPTION(type, "deterministic", OPTION_FLAG, NULL, "pin every automatic choice",     \
                   deterministic)

/* More, for commands that train. */
#define JOB_RUN_OPTIONS(type)                                                                \
    JOB_OPTION(type, "epochs", OPTION_TEXT, "E", "end after N epochs (1)", epochs),          \
        JOB_OPTION(type, "steps", OPTION_TEXT, "N", "end after N steps of a worker", steps), \
        JOB_OPTION(type, "lr", OPTION_TEXT, "R", "the learning rate, solver.base_lr", lr),   \
        JOB_OPTION(type, "batch", OPTION_TEXT, "N", "records of a worker's step (64)", batch)

/* Load the job file, the solver where `path` is NULL, or the job of `options->run`, and apply the
 * overrides: --unset first,
 * --set last. */
int job_options_load(pl_engine *engine, const char *path, const struct job_options *options,
                     pl_job **out);

/* --force-change and --take-over are of a run that continues, and would do nothing for another:
 * EXIT_BAD_INPUT after a message, -1 to continue. */
int resume_options_check(const struct command *command, bool resume, bool force_change,
                         bool take_over);

/* One file of the two: EXIT_BAD_INPUT after a message, -1 to continue. */
int job_options_check(const struct command *command, const struct job_options *options,
                      size_t files);

#endif
