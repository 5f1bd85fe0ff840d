/* The result of `paceline plan --map`: tables for people, or one JSON object. */
#ifndef PL_CLI_MAP_RESULT_H
#define PL_CLI_MAP_RESULT_H

#include "cli/map_cells.h"

/* `set`: the records whose error has the target, "test" or "validation". */
void map_result_print(const struct map_cells *map, const char *set);

/* `interrupted`: cells are missing. */
void map_result_json(const struct map_cells *map, const char *set, bool interrupted);

#endif
