#include "cli/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int number_option(const struct command *command, const char *option, const char *text, double least,
                  double most, double *out)
{
    char *end;
    if (!text)
        return -1;
    errno = 0;
    double value = strtod(text, &end);
    if (errno == 0 && end != text && *end == '\0' && value >= least && value <= most) {
        *out = value;
        return -1;
    }
    fprintf(stderr, "paceline %s: --%s: expected a number from %g to %g, not %s\n", command->name,
            option, least, most, text);
    return EXIT_BAD_INPUT;
}
