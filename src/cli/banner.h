/* The banner of a run, from its `start` event, for people. */
#ifndef PL_CLI_BANNER_H
#define PL_CLI_BANNER_H

#include <cjson/cJSON.h>

/* Lines on stderr, unless output is quiet. `directory` may be "": there is none. */
void banner_print(const cJSON *start, const char *directory);

#endif
