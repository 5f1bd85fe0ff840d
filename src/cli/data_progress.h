/* Progress of a command over all records of a data set, and its end by Ctrl-C. */
#ifndef PL_CLI_DATA_PROGRESS_H
#define PL_CLI_DATA_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* From now on the first Ctrl-C ends the work in good order, the second one ends the process. The
 * clock of the progress starts. */
void data_progress_begin(void);

/* A callback with any `user`; false after Ctrl-C. */
bool data_progress_report(void *user, size_t done, size_t total);

bool data_progress_interrupted(void);

#endif
