#include "cli/map_drawing.h"

#include "cli/number.h"
#include "cli/svg_page.h"
#include "paceline/averaging.h"

#include <inttypes.h>
#include <math.h>

enum {
    CELL_WIDTH = 46,
    CELL_HEIGHT = 26,
    HEAD_WIDTH = 180, /* of a heat map's heading */
    LEFT = 56,
    TOP = 84,
    GAP = 70, /* to the next panel */
    COLUMNS = 2,
    CURVE_HEIGHT = 220,
    CURVE_POINTS = 121,
};

struct drawing {
    struct svg_page page;
    const struct map_cells *map;
    double width, height; /* of a heat map */
    double most;          /* the speed-up of the strongest colour */
};

/* From red for a fourth, over white for 1, to blue for the most workers, by logarithm. */
static void color_of(const struct drawing *d, double speedup, char out[8])
{
    static const double slow[3] = {224, 82, 74}, even[3] = {246, 246, 240},
                        fast[3] = {92, 160, 226};
    double part = speedup >= 1 ? log(speedup) / log(d->most) : log(speedup) / log(0.25);
    const double *to = speedup >= 1 ? fast : slow;
    int rgb[3];
    part = fmin(part, 1);
    for (int i = 0; i < 3; i++)
        rgb[i] = (int)(even[i] + (to[i] - even[i]) * part + 0.5);
    snprintf(out, 8, "#%02x%02x%02x", (unsigned)rgb[0] & 0xff, (unsigned)rgb[1] & 0xff,
             (unsigned)rgb[2] & 0xff);
}

static void draw_cell(struct drawing *d, const struct map_cell *cell, double exchange, double x,
                      double y)
{
    char color[8];
    double speedup = map_cells_speedup(d->map, cell, exchange);
    if (isnan(speedup)) {
        svg_rect(&d->page, "frame", x + 0.5, y + 0.5, CELL_WIDTH - 1, CELL_HEIGHT - 1);
        return;
    }
    color_of(d, speedup, color);
    svg_fill(&d->page, color, x + 0.5, y + 0.5, CELL_WIDTH - 1, CELL_HEIGHT - 1);
    svg_text(&d->page, "cell", x + CELL_WIDTH / 2.0, y + CELL_HEIGHT / 2.0 + 3.5, "middle",
             "%s%.2f", cell->is_reached ? "" : "<", speedup);
}

/* As in Fig. 3: one worker on top, τ = 1 on the right. The best τ of each row has a frame. */
static void draw_map(struct drawing *d, double exchange, double left, double top)
{
    const struct map_cells *m = d->map;
    svg_text(&d->page, "head", left, top - 10, "start",
             exchange == 0 ? "S = 0: exchanges take no time" : "S = %g step%s", exchange,
             number_plural(exchange, "s"));
    for (size_t k = 0; k < m->rows; k++) {
        double y = top + CELL_HEIGHT * (double)k;
        size_t best = SIZE_MAX;
        double most = map_cells_best(m, m->workers[k], exchange, &best);
        svg_text(&d->page, "tick", left - 6, y + CELL_HEIGHT / 2.0 + 3.5, "end", "%" PRIu32,
                 m->workers[k]);
        for (size_t i = 0; i < m->columns; i++) {
            double x = left + CELL_WIDTH * (double)(m->columns - 1 - i);
            size_t at = map_cells_find(m, m->workers[k], m->tau[i]);
            draw_cell(d, &m->cell[at], exchange, x, y);
            if (m->workers[k] > 1 && i == best && !isnan(most))
                svg_rect(&d->page, "best", x + 1.5, y + 1.5, CELL_WIDTH - 3, CELL_HEIGHT - 3);
        }
    }
    for (size_t i = 0; i < m->columns; i++)
        svg_text(&d->page, "tick", left + CELL_WIDTH * ((double)(m->columns - 1 - i) + 0.5),
                 top + d->height + 14, "middle", "%" PRIu32, m->tau[i]);
    svg_text(&d->page, "tick", left + d->width / 2, top + d->height + 28, "middle",
             "steps between averages, τ");
    svg_text(&d->page, "tick", left - 6, top - 10, "end", "K");
}

/* ---- Fig. 4 ---- */

/* The speed-up of so many workers over S: averaging with the best τ for each S, and divided
 * batches. */
static void draw_curve(struct drawing *d, uint32_t workers, double left, double top)
{
    const struct svg_axis over = {0.01, 1000, left, CELL_WIDTH * 10, true, 0};
    const struct svg_axis up = {0, workers, top + CURVE_HEIGHT, -CURVE_HEIGHT, false, 5};
    double x[CURVE_POINTS], average[CURVE_POINTS], divided[CURVE_POINTS];
    size_t tau;
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        double s = over.from * pow(over.to / over.from, (double)i / (CURVE_POINTS - 1));
        x[i] = svg_place(&over, s);
        average[i] = svg_place(&up, map_cells_best(d->map, workers, s, &tau));
        divided[i] = svg_place(&up, pl_dividing_speedup(workers, s));
    }
    svg_text(&d->page, "head", left, top - 26, "start",
             "%" PRIu32 " workers: speed-up over one worker", workers);
    svg_text(&d->page, "t0", left, top - 8, "start", "averaging, with the best τ for each S");
    svg_text(&d->page, "t2", left + 220, top - 8, "start", "each batch divided (1/(1/K + S))");
    svg_frame(&d->page, &over, &up, "time of an exchange, S, in steps of one worker");
    svg_path(&d->page, "s2", x, divided, CURVE_POINTS);
    svg_path(&d->page, "s0", x, average, CURVE_POINTS);
}

bool map_drawing_write(const char *path, const char *name, const struct map_cells *map)
{
    struct drawing d = {.map = map,
                        .width = fmax(CELL_WIDTH * (double)map->columns, HEAD_WIDTH),
                        .height = CELL_HEIGHT * (double)map->rows};
    uint32_t most = map->workers[map->rows - 1];
    size_t lines = (map->exchanges + COLUMNS - 1) / COLUMNS;
    size_t abreast = map->exchanges < COLUMNS ? map->exchanges : COLUMNS;
    double across = LEFT + (d.width + GAP) * (double)abreast;
    double down = TOP + (d.height + GAP) * (double)lines;
    char title[256];
    d.most = fmax(most, 2);
    snprintf(title, sizeof title, "Speed-up of averaging: %s, to an error of %g", name,
             map->target);
    if (!svg_begin(&d.page, path, fmax(across, LEFT + CELL_WIDTH * 10 + GAP),
                   down + 40 + CURVE_HEIGHT + 50, title))
        return false;
    svg_text(&d.page, "note", 20, 46, "start",
             "N_a/((τ + S)·M_a), in steps of one worker, which needs %" PRIu64
             " (SparkNet, Fig. 3 and 4)",
             map->cell[0].steps);
    for (size_t i = 0; i < map->exchanges; i++)
        draw_map(&d, map->exchange[i], LEFT + (d.width + GAP) * (double)(i % COLUMNS),
                 TOP + (d.height + GAP) * (double)(i / COLUMNS));
    draw_curve(&d, most, LEFT, down + 30);
    return svg_end(&d.page);
}
