#include "cli/plan_svg.h"

#include "cli/cli.h"
#include "cli/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRATEGIES_MAX = 32, COLORS = 8, DASHES = 3, X_TICKS_MAX = 16, Y_TICKS = 8 };

static const struct {
    double left, top, width, height; /* of the axes */
    double legend, line;             /* from the axes to the legend; between its lines */
    double total_width, total_height;
} page = {80, 52, 480, 320, 24, 20, 740, 440};

/* Colours that differ for every eye (Okabe and Ito), on white. */
static const char *const color[COLORS] = {"#000000", "#0072b2", "#d55e00", "#009e73",
                                          "#cc79a7", "#e69f00", "#56b4e9", "#8c564b"};
static const char *const dash[DASHES] = {"none", "7 3", "2 3"};

struct drawing {
    FILE *out;
    const pl_plan_report *report;
    uint32_t least, most; /* workers */
    double top;           /* samples/s at the upper end of its axis */
    double step;          /* samples/s between two ticks */
    const char *strategy[STRATEGIES_MAX];
    size_t strategies;
};

/* ---- scales ---- */

static double x_of(const struct drawing *d, double workers)
{
    double span = d->most > d->least ? d->most - d->least : 1;
    return page.left + page.width * (workers - d->least) / span;
}

static double y_of(const struct drawing *d, double samples_per_s)
{
    return page.top + page.height * (1 - samples_per_s / d->top);
}

/* The smallest of 1, 2, 5 and 10 times a power of ten that is not below. */
static double round_step(double least)
{
    static const double steps[] = {1, 2, 5};
    double power = pow(10, floor(log10(least)));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * power >= least)
            return steps[i] * power;
    return 10 * power;
}

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
    double most = 0;
    d->least = r->row[0].workers;
    d->most = r->row[r->rows - 1].workers;
    for (size_t i = 0; i < r->rows; i++) {
        const pl_plan_row *row = &r->row[i];
        most = fmax(most, fmax(row->samples_per_s, row->trial.samples_per_s));
        if (find_strategy(d, row->strategy) == d->strategies && d->strategies < STRATEGIES_MAX)
            d->strategy[d->strategies++] = row->strategy;
    }
    d->step = round_step(fmax(most, 1e-9) / Y_TICKS);
    d->top = d->step * fmax(1, ceil(most / d->step));
}

/* ---- axes ---- */

static void draw_axes(const struct drawing *d)
{
    double bottom = page.top + page.height, right = page.left + page.width;
    uint32_t every = (uint32_t)round_step(fmax(1, (d->most - d->least) / (double)X_TICKS_MAX));
    for (double y = 0; y < d->top + d->step / 2; y += d->step) {
        fprintf(d->out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", page.left, y_of(d, y),
                right);
        fprintf(d->out, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%.10g</text>\n", page.left - 6,
                y_of(d, y) + 4, y);
    }
    for (uint32_t k = (d->least + every - 1) / every * every; k <= d->most; k += every) {
        fprintf(d->out, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x_of(d, k), page.top,
                bottom);
        fprintf(d->out, "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">%u</text>\n", x_of(d, k),
                bottom + 16, k);
    }
    fprintf(d->out,
            "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            page.left, page.top, page.width, page.height);
    fprintf(d->out, "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">workers</text>\n",
            page.left + page.width / 2, bottom + 38);
    fprintf(d->out,
            "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\" transform=\"rotate(-90 %.1f %.1f)\">"
            "samples/s of all workers</text>\n",
            18.0, page.top + page.height / 2, 18.0, page.top + page.height / 2);
}

/* ---- lines ---- */

/* One machine alone is a level that several have to exceed. */
static void draw_line(const struct drawing *d, size_t strategy)
{
    const pl_plan_report *r = d->report;
    char verb = 'M';
    fprintf(d->out, "<path class=\"line s%zu\" d=\"", strategy);
    for (size_t i = 0; i < r->rows; i++) {
        const pl_plan_row *row = &r->row[i];
        if (strcmp(row->strategy, d->strategy[strategy]) != 0)
            continue;
        fprintf(d->out, "%c%.1f %.1f", verb, x_of(d, row->workers), y_of(d, row->samples_per_s));
        verb = 'L';
        if (i == r->single)
            fprintf(d->out, "H%.1f", page.left + page.width);
    }
    fputs("\"/>\n", d->out);
}

static void draw_point(const struct drawing *d, const pl_plan_row *row)
{
    size_t strategy = find_strategy(d, row->strategy);
    double x = x_of(d, row->workers);
    fprintf(d->out,
            "<circle class=\"f%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>%s, %u worker%s: "
            "%.0f samples/s predicted</title></circle>\n",
            strategy, x, y_of(d, row->samples_per_s), row->strategy, row->workers,
            number_plural(row->workers, "s"), row->samples_per_s);
    if (row->trial.samples_per_s > 0)
        fprintf(d->out,
                "<circle class=\"ring s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"><title>%s, %u "
                "worker%s: %.0f samples/s simulated</title></circle>\n",
                strategy, x, y_of(d, row->trial.samples_per_s), row->strategy, row->workers,
                number_plural(row->workers, "s"), row->trial.samples_per_s);
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
static void draw_legend(const struct drawing *d)
{
    size_t order[STRATEGIES_MAX];
    double x = page.left + page.width + page.legend, y = page.top + 6;
    for (size_t i = 0; i < d->strategies; i++) {
        size_t k = i;
        for (; k > 0 && last_speed(d, order[k - 1]) < last_speed(d, i); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t i = 0; i < d->strategies; i++, y += page.line) {
        fprintf(d->out, "<path class=\"line s%zu\" d=\"M%.1f %.1fh28\"/>\n", order[i], x, y);
        fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 34, y + 4,
                d->strategy[order[i]]);
    }
    if (d->report->simulated_s > 0) {
        fprintf(d->out, "<circle class=\"ring s0\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", x + 14, y);
        fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\">simulated</text>\n", x + 34, y + 4);
    }
}

/* ---- the page ---- */

static void draw_style(const struct drawing *d)
{
    fputs("<style>\n"
          "text{font:12px sans-serif;fill:#24292f}.title{font-size:15px;font-weight:bold}\n"
          ".end{text-anchor:end}.middle{text-anchor:middle}\n"
          ".grid,.frame,.line,.ring{fill:none}.grid{stroke:#e3e6ea}.frame{stroke:#6e7781}\n"
          ".line,.ring{stroke-width:1.8}\n",
          d->out);
    for (size_t i = 0; i < d->strategies; i++)
        fprintf(d->out, ".s%zu{stroke:%s}.line.s%zu{stroke-dasharray:%s}.f%zu{fill:%s}\n", i,
                color[i % COLORS], i, dash[i % DASHES], i, color[i % COLORS]);
    fputs("</style>\n", d->out);
}

static void draw_page(const struct drawing *d)
{
    const pl_plan_report *r = d->report;
    fprintf(d->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
            "<title>samples/s over the number of workers, by strategy</title>\n",
            page.total_width, page.total_height, page.total_width, page.total_height);
    draw_style(d);
    fprintf(d->out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n", page.total_width,
            page.total_height);
    fprintf(d->out,
            "<text class=\"title\" x=\"%.1f\" y=\"24\">Predicted speed by strategy</text>\n",
            page.left);
    if (r->best != SIZE_MAX)
        fprintf(d->out,
                "<text x=\"%.1f\" y=\"42\">best: %s with %u worker%s, %.0f samples/s</text>\n",
                page.left, r->row[r->best].strategy, r->row[r->best].workers,
                number_plural(r->row[r->best].workers, "s"), r->row[r->best].samples_per_s);
    draw_axes(d);
    /* Lines that coincide stay visible: dashes are above what is solid. */
    for (size_t i = 0; i < DASHES; i++)
        for (size_t k = i; k < d->strategies; k += DASHES)
            draw_line(d, k);
    for (size_t i = 0; i < r->rows; i++)
        draw_point(d, &r->row[i]);
    draw_legend(d);
    fputs("</svg>\n", d->out);
}

int plan_svg_write(const pl_plan_report *report, const char *path)
{
    struct drawing d = {.out = fopen(path, "w"), .report = report};
    bool written = d.out;
    int error = errno;
    if (written) {
        measure_drawing(&d);
        draw_page(&d);
        written = !ferror(d.out);
        written = fclose(d.out) == 0 && written;
        error = errno;
    }
    if (written)
        return EXIT_DONE;
    fprintf(stderr, "paceline plan: --svg: %s: cannot be written: %s\n", path, strerror(error));
    return EXIT_FAILED;
}
