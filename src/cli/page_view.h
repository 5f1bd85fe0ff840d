/* The live page of a run as options and callbacks of the commands that drive one. */
#ifndef PL_CLI_PAGE_VIEW_H
#define PL_CLI_PAGE_VIEW_H

#include "cli/run_arguments.h"

#define PAGE_OPTIONS                                                                             \
    RUN_OPTION("page", OPTION_TEXT, "[ADDR:]PORT",                                               \
               "show the run as a page while it trains, with /metrics and /healthz (127.0.0.1)", \
               page),                                                                            \
        RUN_OPTION("page-token", OPTION_TEXT, "FILE",                                            \
                   "file with the token of the page's viewers (beyond loopback one is drawn)",   \
                   page_token)

/* run_with_workers, or with `drives` run_as_driver, with the page that the arguments name, if any:
 * it is served from before the run begins until its viewers have its end. */
int page_view_run(const struct command *command, struct run_arguments *arguments, const char *path,
                  bool drives);

#endif
