#include "cli/map_cells.h"

#include "paceline/averaging.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 512 };

const char map_cells_head[] = "workers,tau,steps,rounds,reached,error,speedup,target,every,job\n";

void map_cells_lay_out(struct map_cells *map)
{
    map->cells = 0;
    map->cell[map->cells++] = (struct map_cell){.workers = 1, .tau = 1};
    for (size_t k = 0; k < map->rows; k++)
        for (size_t i = 0; map->workers[k] > 1 && i < map->columns; i++)
            map->cell[map->cells++] =
                (struct map_cell){.workers = map->workers[k], .tau = map->tau[i]};
}

size_t map_cells_find(const struct map_cells *map, uint32_t workers, uint32_t tau)
{
    if (workers == 1)
        return 0;
    for (size_t i = 1; i < map->cells; i++)
        if (map->cell[i].workers == workers && map->cell[i].tau == tau)
            return i;
    return SIZE_MAX;
}

double map_cells_speedup(const struct map_cells *map, const struct map_cell *cell, double exchange)
{
    const struct map_cell *alone = &map->cell[0];
    if (!cell->is_done || !alone->is_done || !alone->is_reached)
        return NAN;
    if (cell == alone)
        return 1;
    double rounds = (double)cell->steps / cell->tau;
    return pl_averaging_speedup((double)alone->steps, cell->tau, rounds, exchange);
}

double map_cells_best(const struct map_cells *map, uint32_t workers, double exchange, size_t *tau)
{
    double best = NAN;
    for (size_t i = 0; i < map->columns; i++) {
        size_t at = map_cells_find(map, workers, map->tau[i]);
        if (at == SIZE_MAX || !map->cell[at].is_reached)
            continue;
        double speedup = map_cells_speedup(map, &map->cell[at], exchange);
        if (!isnan(speedup) && !(best >= speedup)) {
            best = speedup;
            *tau = i;
        }
    }
    return best;
}

/* ---- the file ---- */

struct map_row {
    struct map_cell cell;
    double target;
    uint32_t every;
    uint64_t job;
};

static bool read_row(const char *line, struct map_row *row)
{
    struct map_cell *c = &row->cell;
    unsigned reached;
    double rounds, speedup;
    int end = 0;
    *row = (struct map_row){0};
    int n = sscanf(
        line, "%" SCNu32 ",%" SCNu32 ",%" SCNu64 ",%lf,%u,%lf,%lf,%lf,%" SCNu32 ",%" SCNx64 "%n",
        &c->workers, &c->tau, &c->steps, &rounds, &reached, &c->error, &speedup, &row->target,
        &row->every, &row->job, &end);
    c->is_done = true;
    c->is_reached = reached == 1;
    return n == 10 && line[end] == '\n' && c->workers > 0 && c->tau > 0 && c->steps > 0 &&
           reached <= 1;
}

/* Takes a row of these axes into the map; keeps one of others in `others`. */
static bool take_row(struct map_cells *map, const char *path, int number, const char *line,
                     FILE *others)
{
    struct map_row row;
    if (!read_row(line, &row)) {
        fprintf(stderr,
                "paceline plan: --csv: %s:%d: expected a row of the map; remove the line, or give "
                "another file\n",
                path, number);
        return false;
    }
    if (row.target != map->target || row.every != map->every || row.job != map->job) {
        fprintf(stderr,
                "paceline plan: --csv: %s:%d: is of another job, target or --every: give another "
                "file\n",
                path, number);
        return false;
    }
    size_t at = map_cells_find(map, row.cell.workers, row.cell.tau);
    if (at == SIZE_MAX)
        fputs(line, others);
    else
        map->cell[at] = row.cell;
    return true;
}

bool map_cells_read(struct map_cells *map, const char *path, char **others)
{
    char line[LINE_BYTES];
    size_t bytes = 0;
    *others = NULL;
    FILE *f = fopen(path, "r"), *rest = open_memstream(others, &bytes);
    bool good = rest != NULL;
    for (int number = 1; good && f && fgets(line, sizeof line, f); number++)
        good = number == 1 ? strcmp(line, map_cells_head) == 0
                           : take_row(map, path, number, line, rest);
    if (f)
        fclose(f);
    if (rest)
        fclose(rest);
    return good;
}

static void write_row(const struct map_cells *map, const struct map_cell *c, FILE *f)
{
    double speedup = map_cells_speedup(map, c, 0);
    fprintf(f,
            "%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%.0f,%d,%.6g,%.6g,%.17g,%" PRIu32 ",%016" PRIx64
            "\n",
            c->workers, c->tau, c->steps, ceil((double)c->steps / c->tau), c->is_reached, c->error,
            isnan(speedup) ? 0 : speedup, map->target, map->every, map->job);
}

bool map_cells_write(const struct map_cells *map, const char *path, const char *others)
{
    char made[4096];
    bool fits = snprintf(made, sizeof made, "%s.new", path) < (int)sizeof made;
    FILE *f = fits ? fopen(made, "w") : NULL;
    bool good = f;
    if (f) {
        fputs(map_cells_head, f);
        for (size_t i = 0; i < map->cells; i++)
            if (map->cell[i].is_done)
                write_row(map, &map->cell[i], f);
        fputs(others ? others : "", f);
        good = !ferror(f);
        good = fclose(f) == 0 && good;
    }
    if (good && rename(made, path) == 0)
        return true;
    fprintf(stderr, "paceline plan: --csv: %s: cannot be written: %s\n", path,
            fits ? strerror(errno) : "its name is too long");
    return false;
}
