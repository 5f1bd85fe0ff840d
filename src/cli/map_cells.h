/* The cells of SparkNet's map: for K workers and τ steps between averages, the steps to a target
 * error. A table of them is a CSV file, from which a map continues. */
#ifndef PL_CLI_MAP_CELLS_H
#define PL_CLI_MAP_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAP_AXIS_MAX = 32 };

struct map_cell {
    uint32_t workers, tau; /* one worker: τ is 1, and its rounds are steps */
    bool is_done;
    bool is_reached; /* the target; else `steps` is the limit */
    uint64_t steps;  /* of a worker, until the first evaluation at or below the target */
    double error;    /* the newest */
};

struct map_cells {
    uint32_t workers[MAP_AXIS_MAX], tau[MAP_AXIS_MAX]; /* ascending; the first has 1 */
    double exchange[MAP_AXIS_MAX];                     /* S, in steps of one worker */
    size_t rows, columns, exchanges;
    double target;
    uint32_t every;                                        /* steps between evaluations, at least */
    uint64_t job;                                          /* hash of its text */
    struct map_cell cell[1 + MAP_AXIS_MAX * MAP_AXIS_MAX]; /* one worker's, then by K and τ */
    size_t cells;
};

/* The cells of the axes, none of them done. */
void map_cells_lay_out(struct map_cells *map);

/* The place of a cell of these axes; of one worker any τ has the same. SIZE_MAX: there is none. */
size_t map_cells_find(const struct map_cells *map, uint32_t workers, uint32_t tau);

/* The speed-up over one worker where an exchange takes S steps; one worker's is 1. NAN: not known.
 * Where the target was not reached it is the most that the speed-up may be. */
double map_cells_speedup(const struct map_cells *map, const struct map_cell *cell, double exchange);

/* The highest speed-up of so many workers over all τ, whose place is *tau; NAN: none is known. */
double map_cells_best(const struct map_cells *map, uint32_t workers, double exchange, size_t *tau);

/* The first line of its files. */
extern const char map_cells_head[];

/* Take the cells of the file that are of these axes, if there is a file. Rows of other axes are
 * kept in `others`, lines that the caller frees. false after a message: a row is damaged, or of
 * another job, target or `every`. */
bool map_cells_read(struct map_cells *map, const char *path, char **others);

/* Replace the file by the cells that are done, and those lines. false after a message. */
bool map_cells_write(const struct map_cells *map, const char *path, const char *others);

#endif
