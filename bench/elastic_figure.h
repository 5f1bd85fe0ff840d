/* The figure of elastic_ch4: time over length in six panels, for light and dark pages. */
#ifndef BENCH_ELASTIC_FIGURE_H
#define BENCH_ELASTIC_FIGURE_H

#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum { LINES = 6, PAPERS = 4, SIZES = 14, COLUMNS = 3, ROWS = 2 };

/* A drawing; times in seconds, NAN where there is none. */
struct figure {
    const char *row[ROWS]; /* titles */
    const char *column[COLUMNS];
    const char *line[LINES]; /* the paper's first */
    double floats[SIZES];    /* ascending */
    double seconds[ROWS][COLUMNS][SIZES][LINES];
};

/* ---- geometry: logarithms to pixels ---- */

static const struct {
    double left, top, width, height; /* of the first panel's axes */
    double right, below;             /* from one panel to the next, beyond its axes */
    double band, text, letter;       /* height of winners; of a line of text; width of a letter */
    double total_width, total_height;
    double s_min, s_max; /* seconds at the ends of the axis */
} page = {62, 92, 240, 230, 134, 100, 14, 13, 5.5, 1180, 728, 0.04, 400};

struct panel {
    const struct figure *figure;
    size_t row, column;
    double x, y; /* upper left corner of the axes */
};

static double at_floats(const struct panel *p, double floats)
{
    double from = log10(p->figure->floats[0]), to = log10(p->figure->floats[SIZES - 1]);
    return p->x + page.width * (log10(floats) - from) / (to - from);
}

static double at_seconds(const struct panel *p, double seconds)
{
    return p->y + page.height * log10(page.s_max / seconds) / log10(page.s_max / page.s_min);
}

/* A bit for each of the first `lines` that is the quickest, or not 1 % slower than that. */
static unsigned figure_winners(const double *seconds, size_t lines)
{
    double least = INFINITY;
    unsigned winners = 0;
    for (size_t i = 0; i < lines; i++)
        least = fmin(least, seconds[i]); /* not NAN, if there is another */
    for (size_t i = 0; i < lines; i++)
        winners |= seconds[i] <= least * 1.01 ? 1u << i : 0;
    return winners;
}

/* ---- a panel ---- */

static void draw_x_axis(FILE *out, const struct panel *p)
{
    double bottom = p->y + page.height;
    for (int e = 2; e <= 8; e++) {
        double x = at_floats(p, pow(10, e));
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, p->y, bottom);
        fprintf(out,
                "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">10"
                "<tspan dy=\"-4\" font-size=\"8\">%d</tspan></text>\n",
                x, bottom + 2 * page.band + 18, e);
    }
    fprintf(out,
            "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">"
            "floats in the vector</text>\n",
            p->x + page.width / 2, bottom + 2 * page.band + 35);
}

static void draw_y_axis(FILE *out, const struct panel *p)
{
    static const char *const name[] = {"0.1", "1", "10", "100 s"};
    for (int e = -1; e <= 2; e++) {
        double y = at_seconds(p, pow(10, e));
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", p->x, y, p->x + page.width);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                p->x - 6, y + 3.5, name[e + 1]);
    }
    fprintf(out, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            p->x, p->y, page.width, page.height);
}

static void draw_line(FILE *out, const struct panel *p, size_t line)
{
    const double(*seconds)[LINES] = p->figure->seconds[p->row][p->column];
    char verb = 'M';
    fprintf(out, "<path class=\"line s%zu\" d=\"", line);
    for (size_t i = 0; i < SIZES; i++) {
        if (isnan(seconds[i][line])) {
            verb = 'M';
            continue;
        }
        fprintf(out, "%c%.1f %.1f", verb, at_floats(p, p->figure->floats[i]),
                at_seconds(p, seconds[i][line]));
        verb = 'L';
    }
    fprintf(out, "\"/>\n");
}

/* Labels are at the ends of lines, with room for the text: labels that are too close form a pile
 * around the mean of their positions. */
struct pile {
    double sum; /* of the wanted positions, each less the height above it in the pile */
    size_t count;
};

static void spread(double *y, size_t n)
{
    struct pile pile[LINES];
    size_t piles = 0;
    for (size_t i = 0; i < n; i++) {
        struct pile next = {y[i], 1};
        while (piles > 0) {
            const struct pile above = pile[piles - 1];
            double end = above.sum / (double)above.count + page.text * (double)above.count;
            if (end <= next.sum / (double)next.count)
                break;
            next.sum += above.sum - page.text * (double)(above.count * next.count);
            next.count += above.count;
            piles--;
        }
        pile[piles++] = next;
    }
    for (size_t k = 0, i = 0; k < piles; k++)
        for (size_t j = 0; j < pile[k].count; j++)
            y[i++] = pile[k].sum / (double)pile[k].count + page.text * (double)j;
}

static void draw_labels(FILE *out, const struct panel *p)
{
    const double *last = p->figure->seconds[p->row][p->column][SIZES - 1];
    size_t order[LINES], n = 0;
    double y[LINES], x = p->x + page.width;
    for (size_t i = 0; i < LINES; i++) {
        if (isnan(last[i]))
            continue;
        size_t k = n++;
        for (; k > 0 && last[order[k - 1]] < last[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t k = 0; k < n; k++)
        y[k] = at_seconds(p, last[order[k]]);
    spread(y, n);
    for (size_t k = 0; k < n; k++) {
        fprintf(out, "<path class=\"lead s%zu\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", order[k], x,
                at_seconds(p, last[order[k]]), x + 10, y[k]);
        fprintf(out, "<text class=\"t%zu\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", order[k], x + 13,
                y[k] + 4, p->figure->line[order[k]]);
    }
}

/* ---- who wins ---- */

/* Half way, as the axis has it, between a size and the one before; the ends of the axis beyond. */
static double border(const struct panel *p, size_t size)
{
    const double *floats = p->figure->floats;
    if (size == 0 || size == SIZES)
        return p->x + (size ? page.width : 0);
    return at_floats(p, sqrt(floats[size - 1] * floats[size]));
}

/* Winners share the height of their band. */
static void draw_share(FILE *out, const struct panel *p, unsigned winners, double left,
                       double width, double y)
{
    size_t count = 0, letters = 0, last = 0;
    for (size_t i = 0; i < LINES; i++)
        count += winners >> i & 1;
    for (size_t i = 0, k = 0; i < LINES; i++) {
        if (!(winners >> i & 1))
            continue;
        double height = page.band / (double)count;
        fprintf(out,
                "<rect class=\"f%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", i,
                left, y + height * (double)k++, width, height);
        last = i;
    }
    const char *name = p->figure->line[last];
    while (name[letters])
        letters++;
    if (count == 1 && (double)letters * page.letter < width)
        fprintf(out, "<text class=\"won\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                left + width / 2, y + page.band - 3.5, name);
}

/* A band below the axes, for the first `lines` of all. */
static void draw_winners(FILE *out, const struct panel *p, size_t lines, double y, const char *of)
{
    const double(*seconds)[LINES] = p->figure->seconds[p->row][p->column];
    fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            p->x - 6, y + page.band - 3.5, of);
    for (size_t from = 0, to; from < SIZES; from = to) {
        unsigned winners = figure_winners(seconds[from], lines);
        for (to = from + 1; to < SIZES && figure_winners(seconds[to], lines) == winners; to++)
            ;
        draw_share(out, p, winners, border(p, from), border(p, to) - border(p, from), y);
    }
}

static void draw_panel(FILE *out, const struct panel *p)
{
    draw_x_axis(out, p);
    draw_y_axis(out, p);
    for (size_t i = 0; i < LINES; i++)
        draw_line(out, p, i);
    draw_labels(out, p);
    draw_winners(out, p, LINES, p->y + page.height + 2, "of six");
    draw_winners(out, p, PAPERS, p->y + page.height + 3 + page.band, "of four");
}

/* ---- the page ---- */

/* Six colours that differ for every eye, a shade for each page; winners' names are in the page's
 * own colour. */
static void draw_style(FILE *out)
{
    static const char *const light[LINES] = {"#57606a", "#0969da", "#8250df",
                                             "#1a7f37", "#bc4c00", "#bf3989"};
    static const char *const dark[LINES] = {"#9ea7b3", "#58a6ff", "#bc8cff",
                                            "#3fb950", "#f0883e", "#f778ba"};
    fputs("<style>\n"
          "text{font:11px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
          ".page{fill:#fff}.title{font-size:15px;font-weight:600;fill:#1f2328}\n"
          ".head{font-size:12px;font-weight:600;fill:#1f2328}.tick{font-size:10px;fill:#59636e}\n"
          ".note{fill:#59636e}.won{font-size:10px;font-weight:600;fill:#fff}\n"
          ".grid,.frame,.line,.lead{fill:none}.grid{stroke:#d9dee3;stroke-width:.7}\n"
          ".frame{stroke:#818b98;stroke-width:.8}.line{stroke-width:1.8;stroke-linejoin:round}\n"
          ".lead{stroke-width:.8}\n",
          out);
    for (size_t i = 0; i < LINES; i++)
        fprintf(out, ".s%zu{stroke:%s}.t%zu,.f%zu{fill:%s}\n", i, light[i], i, i, light[i]);
    fputs("@media (prefers-color-scheme:dark){\n"
          ".page{fill:#0d1117}.title,.head{fill:#f0f6fc}.tick,.note{fill:#9198a1}\n"
          ".won{fill:#0d1117}.grid{stroke:#262c36}.frame{stroke:#656c76}\n",
          out);
    for (size_t i = 0; i < LINES; i++)
        fprintf(out, ".s%zu{stroke:%s}.t%zu,.f%zu{fill:%s}\n", i, dark[i], i, i, dark[i]);
    fputs("}\n</style>\n", out);
}

static void figure_draw(FILE *out, const struct figure *f, const char *title, const char *meta)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
            "aria-label=\"%s\">\n",
            page.total_width, page.total_height, title);
    draw_style(out);
    fprintf(out, "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n", page.total_width,
            page.total_height);
    fprintf(out, "<text class=\"title\" x=\"%.0f\" y=\"26\">%s</text>\n", page.left - 42, title);
    fprintf(out, "<text class=\"note\" x=\"%.0f\" y=\"46\">%s</text>\n", page.left - 42, meta);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t column = 0; column < COLUMNS; column++) {
            const struct panel p = {f, row, column,
                                    page.left + (double)column * (page.width + page.right),
                                    page.top + (double)row * (page.height + page.below)};
            fprintf(out, "<text class=\"head\" x=\"%.1f\" y=\"%.1f\">%s, %s</text>\n", p.x, p.y - 9,
                    f->column[column], f->row[row]);
            draw_panel(out, &p);
        }
    fputs("</svg>\n", out);
}

#endif
