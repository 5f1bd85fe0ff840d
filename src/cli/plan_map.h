/* `paceline plan --map`: SparkNet's maps of a job, measured by training. */
#ifndef PL_CLI_PLAN_MAP_H
#define PL_CLI_PLAN_MAP_H

#include <stdbool.h>

/* Do the arguments ask for a map? */
bool plan_map_is_asked(int argc, char **argv);

/* The command with its own options; returns its exit code. */
int plan_map_run(int argc, char **argv);

#endif
