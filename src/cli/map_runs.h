/* Measures cells of SparkNet's map: each is a simulation, `paceline sim`, in a process of its own,
 * several at a time. A cell ends at the target error or at its limit of steps. */
#ifndef PL_CLI_MAP_RUNS_H
#define PL_CLI_MAP_RUNS_H

#include "cli/map_cells.h"
#include "paceline/flag.h"

#include <sys/types.h>

enum { MAP_RUNS_MAX = 64 };

struct map_run {
    pid_t pid; /* 0: none */
    size_t cell;
};

struct map_runs {
    char folder[512]; /* for the runs' files; made by open, removed by close */
    struct map_run run[MAP_RUNS_MAX];
    size_t parallel;
};

/* false after a message. */
bool map_runs_open(struct map_runs *runs, size_t parallel);

/* Ends the simulations that run. */
void map_runs_close(struct map_runs *runs);

/* Is there a free place? */
bool map_runs_has_room(const struct map_runs *runs);
size_t map_runs_count(const struct map_runs *runs);

/* Start a cell by the text of its job. false after a message. */
bool map_runs_start(struct map_runs *runs, size_t cell, uint32_t workers, const char *job);

/* Wait for up to 50 ms for a simulation to end, and fill in its cell of the map. *ended is its
 * place, or SIZE_MAX. A run that diverged has not reached the target. -1 to continue; after a
 * message the exit code of a run that failed. */
int map_runs_poll(struct map_runs *runs, struct map_cells *map, size_t *ended);

#endif
