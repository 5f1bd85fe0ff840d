#include "cli/plan_svg.h"

#include "cli/number.h"
#include "cli/svg_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 740,
    HEIGHT = 440,
    LEFT = 80,
    TOP = 78,
    RIGHT = 180, /* the legend */
    BOTTOM = 52,
    LEGEND = 24, /* from the axes to it */
    LINE = 20,   /* between its lines */
    X_TICKS = 15,
    Y_TICKS = 8,
    STRATEGIES_MAX = 32,
};

struct drawing {
    struct svg_page page;
    const pl_plan_report *report;
    struct svg_axis workers, speed;
    const char *strategy[STRATEGIES_MAX];
    size_t strategies;
    double *x, *y; /* room for a line */
};

static size_t find_strategy(const struct drawing *d, const char *name)
{
    size_t i = 0;
    while (i < d->strategies && strcmp(d->strategy[i], name) != 0)
        i++;
    return i;
}

static void measure_drawing(struct drawing *d)
{
    const pl_plan_report *r = d->report;
    double most = 0, least = r->row[0].workers, span = r->row[r->rows - 1].workers - least;
    for (size_t i = 0; i < r->rows; i++) {
        const pl_plan_row *row = &r->row[i];
        most = fmax(most, fmax(row->samples_per_s, row->trial.samples_per_s));
        if (find_strategy(d, row->strategy) == d->strategies && d->strategies < STRATEGIES_MAX)
            d->strategy[d->strategies++] = row->strategy;
    }
    span = fmax(span, 1);
    d->workers = (struct svg_axis){
        .from = least,
        .to = least + span,
        .at = LEFT,
        .length = WIDTH - LEFT - RIGHT,
        .ticks = fmin(span, X_TICKS), /* of whole numbers */
    };
    d->speed = (struct svg_axis){
        .to = most > 0 ? most * 1.05 : 1,
        .at = HEIGHT - BOTTOM,
        .length = TOP + BOTTOM - HEIGHT,
        .ticks = Y_TICKS,
    };
}

/* "s" or "t", with the number of the strategy's colour and of its dash. */
static void class_of(char out[32], const char *kind, size_t strategy)
{
    snprintf(out, 32, "%s%zu d%zu", kind, strategy % SVG_SERIES, strategy % SVG_DASHES);
}

/* ---- lines ---- */

/* One machine alone is a level that several have to exceed. */
static void draw_line(struct drawing *d, size_t strategy)
{
    const pl_plan_report *r = d->report;
    size_t n = 0;
    char class[32];
    for (size_t i = 0; i < r->rows; i++) {
        if (strcmp(r->row[i].strategy, d->strategy[strategy]) != 0)
            continue;
        d->x[n] = svg_place(&d->workers, r->row[i].workers);
        d->y[n++] = svg_place(&d->speed, r->row[i].samples_per_s);
        if (i == r->single) {
            d->x[n] = svg_place(&d->workers, d->workers.to);
            d->y[n] = d->y[n - 1];
            n++;
        }
    }
    class_of(class, "s", strategy);
    svg_path(&d->page, class, d->x, d->y, n);
}

static void draw_speed(struct drawing *d, const pl_plan_row *row, const char *class, double speed,
                       double radius, const char *source)
{
    char tip[128];
    snprintf(tip, sizeof tip, "%s, %u worker%s: %.0f samples/s %s", row->strategy, row->workers,
             number_plural(row->workers, "s"), speed, source);
    svg_circle(&d->page, class, svg_place(&d->workers, row->workers), svg_place(&d->speed, speed),
               radius, tip);
}

static void draw_point(struct drawing *d, const pl_plan_row *row)
{
    size_t color = find_strategy(d, row->strategy) % SVG_SERIES;
    char dot[32], ring[32];
    snprintf(dot, sizeof dot, "t%zu", color);
    snprintf(ring, sizeof ring, "ring s%zu", color);
    draw_speed(d, row, dot, row->samples_per_s, 2.5, "predicted");
    if (row->trial.samples_per_s > 0)
        draw_speed(d, row, ring, row->trial.samples_per_s, 6, "simulated");
}

/* ---- the legend ---- */

/* Of the row with most workers. */
static double last_speed(const struct drawing *d, size_t strategy)
{
    const pl_plan_report *r = d->report;
    for (size_t i = r->rows; i > 0; i--)
        if (strcmp(r->row[i - 1].strategy, d->strategy[strategy]) == 0)
            return r->row[i - 1].samples_per_s;
    return 0;
}

/* In the order in which the lines end, from the top. */
static void draw_legend(struct drawing *d)
{
    size_t order[STRATEGIES_MAX];
    double x = WIDTH - RIGHT + LEGEND, y = TOP + 6;
    char class[32];
    for (size_t i = 0; i < d->strategies; i++) {
        size_t k = i;
        for (; k > 0 && last_speed(d, order[k - 1]) < last_speed(d, i); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t i = 0; i < d->strategies; i++, y += LINE) {
        class_of(class, "s", order[i]);
        svg_line(&d->page, class, x, y, x + 28, y);
        svg_text(&d->page, "label", x + 34, y + 4, "start", "%s", d->strategy[order[i]]);
    }
    if (d->report->simulated_s > 0) {
        svg_circle(&d->page, "ring s4", x + 14, y, 6, NULL);
        svg_text(&d->page, "label", x + 34, y + 4, "start", "simulated");
    }
}

/* ---- the page ---- */

static void draw_page(struct drawing *d)
{
    const pl_plan_report *r = d->report;
    if (r->best != SIZE_MAX)
        svg_text(&d->page, "note", 20, 46, "start", "best: %s with %u worker%s, %.0f samples/s",
                 r->row[r->best].strategy, r->row[r->best].workers,
                 number_plural(r->row[r->best].workers, "s"), r->row[r->best].samples_per_s);
    svg_text(&d->page, "tick", LEFT, TOP - 8, "start", "samples/s of all workers");
    svg_frame(&d->page, &d->workers, &d->speed, "workers");
    /* Lines that coincide stay visible: dashes are above what is solid. */
    for (size_t i = 0; i < SVG_DASHES; i++)
        for (size_t k = i; k < d->strategies; k += SVG_DASHES)
            draw_line(d, k);
    for (size_t i = 0; i < r->rows; i++)
        draw_point(d, &r->row[i]);
    draw_legend(d);
}

bool plan_svg_write(const char *path, const pl_plan_report *report)
{
    struct drawing d = {.report = report};
    d.x = malloc((report->rows + 1) * sizeof *d.x);
    d.y = malloc((report->rows + 1) * sizeof *d.y);
    bool good = d.x && d.y;
    if (!good)
        fprintf(stderr, "paceline: out of memory for a drawing of %zu rows\n", report->rows);
    good = good && svg_begin(&d.page, path, WIDTH, HEIGHT,
                             "Predicted samples/s over the number of workers, by strategy");
    if (good) {
        measure_drawing(&d);
        draw_page(&d);
        good = svg_end(&d.page);
    }
    free(d.x), free(d.y);
    return good;
}
