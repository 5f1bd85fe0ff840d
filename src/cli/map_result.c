#include "cli/map_result.h"

#include "cli/number.h"
#include "paceline/averaging.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Averaging against divided batches, for most workers. */
enum verdict { ONE_WORKER, AVERAGING, DIVIDING };

struct comparison {
    uint32_t workers, tau;
    double average, divided; /* speed-ups */
    enum verdict verdict;
};

/* false: not known, or there is one worker only */
static bool compare_methods(const struct map_cells *map, double exchange, struct comparison *out)
{
    size_t tau = 0;
    uint32_t workers = map->workers[map->rows - 1];
    double average = map_cells_best(map, workers, exchange, &tau);
    double divided = pl_dividing_speedup(workers, exchange);
    *out = (struct comparison){workers, map->tau[tau], average, divided, ONE_WORKER};
    if (average > 1 || divided > 1)
        out->verdict = average >= divided ? AVERAGING : DIVIDING;
    return workers > 1 && !isnan(average);
}

/* ---- for people ---- */

static void print_row(const struct map_cells *map, uint32_t workers, double exchange)
{
    printf("%7" PRIu32, workers);
    for (size_t i = 0; i < map->columns; i++) {
        const struct map_cell *cell = &map->cell[map_cells_find(map, workers, map->tau[i])];
        double speedup = map_cells_speedup(map, cell, exchange);
        char text[32] = "";
        if (!isnan(speedup))
            snprintf(text, sizeof text, "%s%.2f", cell->is_reached ? "" : "<", speedup);
        printf(" %8s", text);
    }
    printf("\n");
}

static void print_map(const struct map_cells *map)
{
    for (size_t s = 0; s < map->exchanges; s++) {
        printf("%sspeed-up where an exchange takes %g step%s of one worker\n      K", s ? "\n" : "",
               map->exchange[s], number_plural(map->exchange[s], "s"));
        for (size_t i = 0; i < map->columns; i++)
            printf(" %4s%-4" PRIu32, "tau ", map->tau[i]);
        printf("\n");
        for (size_t k = 0; k < map->rows; k++)
            print_row(map, map->workers[k], map->exchange[s]);
    }
}

static void print_comparisons(const struct map_cells *map)
{
    static const char *const words[] = {"one worker is faster", "averaging pays", "dividing pays"};
    for (size_t s = 0; s < map->exchanges; s++) {
        struct comparison c;
        if (compare_methods(map, map->exchange[s], &c))
            printf("S %g, %" PRIu32 " workers: averaging every %" PRIu32
                   " steps gives %.2f, divided batches %.2f: %s\n",
                   map->exchange[s], c.workers, c.tau, c.average, c.divided, words[c.verdict]);
    }
}

void map_result_print(const struct map_cells *map, const char *set)
{
    print_map(map);
    printf("\none worker needs %" PRIu64 " steps to a %s error of %g; evaluated every %" PRIu32
           " steps or round; < : not reached\n",
           map->cell[0].steps, set, map->target, map->every);
    print_comparisons(map);
}

/* ---- JSON ---- */

static cJSON *cell_json(const struct map_cells *map, const struct map_cell *cell)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "workers", cell->workers);
    cJSON_AddNumberToObject(o, "tau", cell->tau);
    cJSON_AddNumberToObject(o, "steps", (double)cell->steps);
    cJSON_AddNumberToObject(o, "rounds", ceil((double)cell->steps / cell->tau));
    cJSON_AddBoolToObject(o, "reached", cell->is_reached);
    cJSON_AddNumberToObject(o, "error", cell->error);
    cJSON *speedups = cJSON_AddArrayToObject(o, "speedup");
    for (size_t s = 0; s < map->exchanges; s++)
        cJSON_AddItemToArray(speedups,
                             cJSON_CreateNumber(map_cells_speedup(map, cell, map->exchange[s])));
    return o;
}

static cJSON *comparison_json(double exchange, const struct comparison *c)
{
    static const char *const words[] = {"one_worker", "averaging", "dividing"};
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "exchange", exchange);
    cJSON_AddNumberToObject(o, "workers", c->workers);
    cJSON_AddNumberToObject(o, "tau", c->tau);
    cJSON_AddNumberToObject(o, "averaging", c->average);
    cJSON_AddNumberToObject(o, "dividing", c->divided);
    cJSON_AddStringToObject(o, "best", words[c->verdict]);
    return o;
}

void map_result_json(const struct map_cells *map, const char *set, bool interrupted)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "set", set);
    cJSON_AddNumberToObject(o, "target", map->target);
    cJSON_AddNumberToObject(o, "every", map->every);
    cJSON_AddNumberToObject(o, "steps_alone", (double)map->cell[0].steps);
    cJSON_AddItemToObject(o, "exchange",
                          cJSON_CreateDoubleArray(map->exchange, (int)map->exchanges));
    cJSON *cells = cJSON_AddArrayToObject(o, "cells");
    for (size_t i = 0; i < map->cells; i++)
        if (map->cell[i].is_done)
            cJSON_AddItemToArray(cells, cell_json(map, &map->cell[i]));
    cJSON *comparisons = cJSON_AddArrayToObject(o, "comparisons");
    for (size_t s = 0; s < map->exchanges; s++) {
        struct comparison c;
        if (compare_methods(map, map->exchange[s], &c))
            cJSON_AddItemToArray(comparisons, comparison_json(map->exchange[s], &c));
    }
    cJSON_AddBoolToObject(o, "interrupted", interrupted);
    char *text = cJSON_PrintUnformatted(o);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(o);
}
