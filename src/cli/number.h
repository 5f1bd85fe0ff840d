/* Numbers among a command's options. */
#ifndef PL_CLI_NUMBER_H
#define PL_CLI_NUMBER_H

#include "cli/cli.h"

/* The value of --OPTION, `text`, from `least` to `most`; NULL leaves *out as it is. Returns -1 to
 * continue, or EXIT_BAD_INPUT after a message. */
int number_option(const struct command *command, const char *option, const char *text, double least,
                  double most, double *out);

/* The ending of a plural: nothing for one thing, else `end`: "s", "es". */
static inline const char *number_plural(double n, const char *end)
{
    return n == 1 ? "" : end;
}

#endif
