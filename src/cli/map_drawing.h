/* SparkNet's Fig. 3 and 4 of measured cells: a heat map of K and τ for each exchange time S, and
 * the speed-up of most workers over S. */
#ifndef PL_CLI_MAP_DRAWING_H
#define PL_CLI_MAP_DRAWING_H

#include "cli/map_cells.h"

/* Draw the cells that are done into an SVG file; `name` is the job's file. false after a
 * message. */
bool map_drawing_write(const char *path, const char *name, const struct map_cells *map);

#endif
