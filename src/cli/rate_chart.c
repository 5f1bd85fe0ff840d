#include "cli/rate_chart.h"

#include "cli/svg_page.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 420, LEFT = 64, TOP = 64, RIGHT = 60, BOTTOM = 64 };

struct chart {
    struct svg_page page;
    const pl_lr_range_report *report;
    struct svg_axis rate, loss, accuracy;
    double *x, *y; /* room for a line */
};

/* Up to a third above the highest smoothed loss before the rise at the end, which is not the news;
 * a loss above that leaves the frame. */
static double loss_ceiling(const pl_lr_range_report *r)
{
    double most = 0;
    for (size_t i = 0; i < r->steps && (i == 0 || r->step[i].rate <= r->least); i++)
        most = fmax(most, r->step[i].smoothed);
    return most > 0 ? most * 4 / 3 : 1;
}

static void set_axes(struct chart *c, bool linear)
{
    const pl_lr_range_report *r = c->report;
    double bottom = HEIGHT - BOTTOM, height = HEIGHT - BOTTOM - TOP, width = WIDTH - LEFT - RIGHT;
    double last = r->step[r->steps - 1].rate, first = r->step[0].rate;
    c->rate = (struct svg_axis){first, last > first ? last : first * 10, LEFT, width, !linear, 5};
    c->loss = (struct svg_axis){0, loss_ceiling(r), bottom, -height, false, 5};
    c->accuracy = (struct svg_axis){0, 1, bottom, -height, false, 4};
}

static void draw_axes(struct chart *c)
{
    svg_frame(&c->page, &c->rate, &c->loss, "learning rate");
    for (int i = 0; i <= 4 && *c->report->accuracy_set; i++)
        svg_text(&c->page, "tick", WIDTH - RIGHT + 6, svg_place(&c->accuracy, i / 4.0) + 3.5,
                 "start", "%d %%", 25 * i);
}

static void draw_range(struct chart *c)
{
    const pl_lr_range_report *r = c->report;
    if (!r->found)
        return;
    double low = svg_place(&c->rate, r->low), high = svg_place(&c->rate, r->high);
    svg_rect(&c->page, "band", low, TOP, high - low, HEIGHT - BOTTOM - TOP);
    svg_text(&c->page, "head", (low + high) / 2, TOP + 32, "middle", "%.2g to %.2g", r->low,
             r->high);
}

static void draw_losses(struct chart *c)
{
    const pl_lr_range_report *r = c->report;
    for (size_t i = 0; i < r->steps; i++) {
        c->x[i] = svg_place(&c->rate, r->step[i].rate);
        bool inside = r->step[i].smoothed <= c->loss.to;
        c->y[i] = inside ? svg_place(&c->loss, r->step[i].smoothed) : NAN;
        if (r->step[i].loss <= c->loss.to)
            svg_circle(&c->page, "t0 faint", c->x[i], svg_place(&c->loss, r->step[i].loss), 1.3,
                       NULL);
    }
    svg_path(&c->page, "s0", c->x, c->y, r->steps);
}

static void draw_accuracy(struct chart *c)
{
    const pl_lr_range_report *r = c->report;
    size_t n = 0;
    for (size_t i = 0; i < r->steps; i++) {
        if (r->step[i].accuracy < 0)
            continue;
        c->x[n] = svg_place(&c->rate, r->step[i].rate);
        c->y[n++] = svg_place(&c->accuracy, r->step[i].accuracy);
    }
    svg_path(&c->page, "s2", c->x, c->y, n);
    for (size_t i = 0; i < n; i++)
        svg_circle(&c->page, "t2", c->x[i], c->y[i], 2.4, NULL);
}

static void draw_legend(struct chart *c)
{
    svg_text(&c->page, "t0", LEFT, TOP - 10, "start", "training loss: each step, and smoothed");
    if (*c->report->accuracy_set)
        svg_text(&c->page, "t2", WIDTH - RIGHT, TOP - 10, "end", "accuracy, %zu %s records",
                 c->report->accuracy_records, c->report->accuracy_set);
}

bool rate_chart_write(const char *path, const char *name, const pl_lr_range_report *report,
                      bool linear)
{
    struct chart c = {.report = report};
    char title[256];
    c.x = malloc(report->steps * sizeof *c.x);
    c.y = malloc(report->steps * sizeof *c.y);
    snprintf(title, sizeof title, "Learning-rate range test of %s", name);
    bool good = c.x && c.y;
    if (!good)
        fprintf(stderr, "paceline: out of memory for a drawing of %zu steps\n", report->steps);
    good = good && svg_begin(&c.page, path, WIDTH, HEIGHT, title);
    if (good) {
        set_axes(&c, linear);
        draw_range(&c);
        draw_axes(&c);
        draw_losses(&c);
        draw_accuracy(&c);
        draw_legend(&c);
        good = svg_end(&c.page);
    }
    free(c.x), free(c.y);
    return good;
}
