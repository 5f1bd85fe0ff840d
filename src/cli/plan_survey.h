/* `plan --listen`: the machines of a plan are measured, on workers that are started by hand. */
#ifndef PL_CLI_PLAN_SURVEY_H
#define PL_CLI_PLAN_SURVEY_H

#include "cli/cli.h"
#include "cli/key_option.h"
#include "paceline/plan.h"

struct survey_arguments {
    const char *listen, *key_file, *wait, *max_mbit, *emit;
    bool insecure;
};

/* Rows for a table of options; `type` has a member `survey` of struct survey_arguments. */
#define SURVEY_OPTION(type, name, kind, value, help, field)   \
    {                                                         \
        name, kind, value, help, offsetof(type, survey.field) \
    }
#define SURVEY_OPTIONS(type)                                                                       \
    SURVEY_OPTION(type, "listen", OPTION_TEXT, "ADDR",                                             \
                  "measure the machines: workers reach this command at HOST[:PORT]", listen),      \
        SURVEY_OPTION(type, "insecure", OPTION_FLAG, NULL, INSECURE_HELP, insecure),               \
        SURVEY_OPTION(type, "key", OPTION_TEXT, "FILE", KEY_OPTION_HELP, key_file),                \
        SURVEY_OPTION(type, "wait", OPTION_TEXT, "SECONDS",                                        \
                      "how long to wait for workers while none arrives (patience_seconds)", wait), \
        SURVEY_OPTION(type, "max-mbit", OPTION_TEXT, "N",                                          \
                      "send no more than N Mbit/s, and be sent no more", max_mbit),                \
        SURVEY_OPTION(type, "emit", OPTION_TEXT, "FILE",                                           \
                      "a new file for what was measured: a cluster file for later plans", emit)

/* Check the options, of which none may be without `listen`. -1 to continue, or EXIT_BAD_INPUT after
 * a message. */
int survey_read(const struct command *command, const struct survey_arguments *arguments);

/* pl_run_options.event of a survey: prints a machine as it has been measured, and warnings. */
void survey_event(void *user, const char *line);

/* Measure `workers` workers (0: those of the job), and print a line for each. Errors of pl_survey;
 * PL_ERR_IO after a message: the file of --emit cannot be written. */
int survey_run(pl_engine *engine, const pl_job *job, uint32_t workers, pl_cluster **out);

#endif
