/* `paceline data verify`: every record decoded, broken ones listed. */
#ifndef PL_CLI_DATA_VERIFY_H
#define PL_CLI_DATA_VERIFY_H

#include "paceline/data.h"

/* Of a folder that holds two sets both are verified, or the training set alone. Prints at most
 * `most` problems (0: all). Returns the command's exit code: EXIT_BAD_INPUT when a record is
 * broken, EXIT_INTERRUPTED after Ctrl-C, with the number of records checked. */
int data_verify(pl_engine *engine, const char *spec, bool training, size_t most, bool json);

#endif
