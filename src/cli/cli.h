/* Declarations that the commands share: the table of options from which each one is parsed and
 * documented, and exit codes. The command line is built on the public headers alone. */
#ifndef PL_CLI_CLI_H
#define PL_CLI_CLI_H

#include "paceline/net.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_BAD_INPUT = 2,
    EXIT_ELSEWHERE = 3, /* the run has ended; its final model is not in the run directory */
    EXIT_BUG = 70,
    EXIT_INTERRUPTED = 130
};

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_LIST };

enum { OPTION_LIST_MAX = 64 };

struct option_list {
    const char *at[OPTION_LIST_MAX];
    size_t count;
};

/* One option: `--name VALUE` stored at `offset` of the command's own struct, as bool, const char *
 * or struct option_list. A table ends with a NULL name. */
struct option {
    const char *name;
    enum option_kind kind;
    const char *value; /* the name of the value in the help; NULL for a flag */
    const char *help;
    size_t offset;
};

struct command {
    const char *name;
    const char *summary;   /* one line, for the list of commands */
    const char *arguments; /* "JOB" */
    const struct option *options;
    int (*run)(const struct command *command, int argc, char **argv);
};

extern const struct command cmd_train, cmd_resume, cmd_sim, cmd_plan, cmd_test, cmd_predict,
    cmd_sample, cmd_model, cmd_data, cmd_convert, cmd_driver, cmd_worker, cmd_keygen, cmd_bench,
    cmd_lr_range, cmd_report;

/* Parse argv[1…] into `into` by the command's table. Arguments that are no options go to
 * `positional`, at most `max`, counted in *count. Returns -1 to continue, or the exit code at which
 * to end: 0 after --help, EXIT_BAD_INPUT after a message. */
int options_parse(const struct command *command, int argc, char **argv, void *into,
                  const char **positional, size_t max, size_t *count);

/* Is `other` a likely correction of `name`, and nearer to it than *least (SIZE_MAX at first)? Sets
 * *least. */
bool cli_nearer(const char *name, const char *other, size_t *least);

/* Prints the kinds and keys of a SPEC as a table on stdout. */
void data_spec_help(void);

void command_help(const struct command *command);

/* The engine of a command: log lines go to stderr. NULL after a message. */
pl_engine *cli_engine(void);

/* A net by its name on the command line: a prototxt, if the name has a slash or a dot, else a net
 * of the zoo. */
int cli_net_spec(pl_engine *engine, const char *text, pl_net_spec **out);

/* The shape of a record, "3x224x224", into three numbers > 0; false for anything else. */
bool cli_record_shape(const char *text, uint32_t shape[3]);

/* Print the engine's message and return the exit code for `status`. */
int cli_fail(const pl_engine *engine, int status);

#endif
