#include "cli/report_timeline.h"

#include "cli/svg_page.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 960, TOP = 42, LEFT = 118, RIGHT = 24, BOTTOM = 52, LEGEND = 26 };
enum { ROW = 17, BAR = 12, STRIP = 3, NODE_GAP = 8, ROWS_MAX = 64, BLOCK = 11, SPACE = 16 };

/* Bars that are shorter than a reader can see are this wide. */
#define LEAST_WIDTH 1

/* Those of the page (page.js), on white. */
static const char *const colors[PURPOSES] = {
    [PURPOSE_DATA] = "#e69f00",     [PURPOSE_COPY] = "#cc79a7",      [PURPOSE_UPDATE] = "#0072b2",
    [PURPOSE_EVALUATE] = "#8c564b", [PURPOSE_COMPUTE] = "#0072b2",   [PURPOSE_WAIT] = "#818b98",
    [PURPOSE_EXCHANGE] = "#a6dccc", [PURPOSE_SEND] = "#1f2328",      [PURPOSE_REDUCE] = "#009e73",
    [PURPOSE_PREPARE] = "#d55e00",  [PURPOSE_BROADCAST] = "#56b4e9", [PURPOSE_OTHER] = "#c9d1d9",
};

struct timeline {
    struct svg_page page;
    const struct trace_summary *trace;
    struct trace_window window;
    struct svg_axis over;
    double row[ROWS_MAX + 1]; /* tops, and the end of the last */
    size_t rows;
};

/* Rows stand together by node. Those that have no place are left out. */
static void place_rows(struct timeline *t)
{
    double y = TOP + LEGEND;
    uint16_t node = 0;
    for (size_t i = 0; i < t->window.bars && t->rows < ROWS_MAX; i++) {
        if (!trace_window_begins_row(&t->window, i))
            continue;
        y += t->rows > 0 && t->window.bar[i].node != node ? NODE_GAP : 0;
        node = t->window.bar[i].node;
        t->row[t->rows++] = y;
        y += ROW;
    }
    t->row[t->rows] = y;
}

static void draw_name(struct timeline *t, const struct trace_bar *bar, double y)
{
    char name[TRACE_ROW_BYTES];
    trace_window_row(t->trace, bar, name);
    if (bar->node == 0)
        svg_text(&t->page, "tick", LEFT - 8, y + BAR - 1, "end", "driver: %s", name);
    else
        svg_text(&t->page, "tick", LEFT - 8, y + BAR - 1, "end", "worker %u: %s", bar->node - 1u,
                 name);
}

static void draw_bar(struct timeline *t, const struct trace_bar *bar, double y)
{
    double from = svg_place(&t->over, fmax(bar->start, t->window.begin));
    double to = svg_place(&t->over, fmin(bar->end, t->window.end));
    double height = trace_bar_is_strip(bar) ? STRIP : BAR;
    y += bar->purpose == PURPOSE_SEND ? BAR - STRIP : 0;
    svg_fill(&t->page, colors[bar->purpose], from, y, fmax(LEAST_WIDTH, to - from), height);
}

static void draw_bars(struct timeline *t)
{
    size_t row = 0;
    for (size_t i = 0; i < t->window.bars; i++) {
        const struct trace_bar *bar = &t->window.bar[i];
        row += trace_window_begins_row(&t->window, i);
        if (row > t->rows)
            return;
        if (trace_window_begins_row(&t->window, i))
            draw_name(t, bar, t->row[row - 1]);
        draw_bar(t, bar, t->row[row - 1]);
    }
}

static void draw_legend(struct timeline *t)
{
    bool drawn[PURPOSES] = {false};
    double x = LEFT;
    for (size_t i = 0; i < t->window.bars; i++)
        drawn[t->window.bar[i].purpose] = true;
    drawn[PURPOSE_COMPUTE] |= drawn[PURPOSE_UPDATE];
    drawn[PURPOSE_UPDATE] = false;
    for (int i = 0; i < PURPOSES; i++) {
        const char *label = trace_purpose_drawn[i];
        if (!drawn[i])
            continue;
        svg_fill(&t->page, colors[i], x, TOP, BLOCK, BLOCK);
        svg_text(&t->page, "label", x + BLOCK + 5, TOP + BLOCK - 1, "start", "%s", label);
        x += BLOCK + 5 + svg_text_width("label", label) + SPACE;
    }
}

static void draw_axis(struct timeline *t)
{
    double bottom = t->row[t->rows] + 2;
    for (double at = svg_next_tick(&t->over, NAN); !isnan(at); at = svg_next_tick(&t->over, at)) {
        double x = svg_place(&t->over, at);
        svg_line(&t->page, "grid", x, TOP + LEGEND - 6, x, bottom);
        svg_text(&t->page, "tick", x, bottom + 16, "middle", "%.10g", at);
    }
    svg_text(&t->page, "tick", (LEFT + WIDTH - RIGHT) / 2.0, bottom + 34, "middle", "time, s");
}

bool report_timeline_write(const char *path, const struct trace_summary *trace, double dpi)
{
    struct timeline t = {.trace = trace};
    if (!trace_window_choose(trace, &t.window)) {
        fprintf(stderr, "paceline report: %s: out of memory\n", path);
        return false;
    }
    place_rows(&t);
    t.over = (struct svg_axis){t.window.begin, t.window.end, LEFT, WIDTH - LEFT - RIGHT, false, 8};
    bool good = svg_begin_as(&t.page, path, WIDTH, t.row[t.rows] + BOTTOM,
                             "what each node did, from the middle of the run", dpi);
    if (good) {
        draw_axis(&t);
        draw_bars(&t);
        draw_legend(&t);
        good = svg_end(&t.page);
    }
    trace_window_release(&t.window);
    return good;
}
