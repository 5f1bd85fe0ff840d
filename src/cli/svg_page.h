/* Drawings as SVG files, in the colours of light and of dark pages; or as PNG files, of the light
 * page. */
#ifndef PL_CLI_SVG_PAGE_H
#define PL_CLI_SVG_PAGE_H

#include "cli/raster.h"

#include <stdbool.h>
#include <stdio.h>

/* One drawing. Elements have a class of the page's style: "title", "head", "tick", "note", "grid",
 * "label", "frame", "band", "ring", or of a series: "s0" to "s7" (strokes), "t0" to "t7" (text and
 * dots of these colours), with them "d0" to "d2" (solid and two dashes) and "faint". */
struct svg_page {
    FILE *out;        /* NULL: a PNG file, */
    const char *path; /* borrowed */
    struct raster raster;
    double dpi;
};

enum { SVG_SERIES = 8, SVG_DASHES = 3 };

/* The colours of the series, "#rrggbb", on a light and on a dark page. */
extern const char *const svg_light_colors[SVG_SERIES], *const svg_dark_colors[SVG_SERIES];

/* Text of an element of SVG or HTML. */
void svg_put_quoted(FILE *out, const char *text);

/* May `path` be written? It may if there is no such file in a folder that there is, or one that
 * begins with `begin`, which an earlier call of the command wrote. false after a message, which
 * begins with the command and option. */
bool svg_may_write(const char *command, const char *option, const char *path, const char *begin);

/* The first bytes of every drawing of svg_begin, for svg_may_write. */
extern const char svg_first_bytes[];

/* Create the file, with style and title. false after a message. */
bool svg_begin(struct svg_page *page, const char *path, double width, double height,
               const char *title);

/* The same for a PNG file of `dpi` pixels an inch, of which the drawing has 96 units. */
bool svg_begin_png(struct svg_page *page, const char *path, double width, double height,
                   const char *title, double dpi);

/* A PNG file of `dpi` pixels an inch; 0: an SVG file. */
bool svg_begin_as(struct svg_page *page, const char *path, double width, double height,
                  const char *title, double dpi);

/* Text at x, y, its baseline; `anchor` is start, middle or end. It is quoted. */
__attribute__((format(printf, 6, 7))) void svg_text(struct svg_page *page, const char *class,
                                                    double x, double y, const char *anchor,
                                                    const char *format, ...);

/* The width of such a text in a PNG file. */
double svg_text_width(const char *class, const char *text);

/* A straight line; a polyline through n points, broken where a y is not finite. */
void svg_line(struct svg_page *page, const char *class, double x1, double y1, double x2, double y2);
void svg_path(struct svg_page *page, const char *class, const double *x, const double *y, size_t n);

void svg_rect(struct svg_page *page, const char *class, double x, double y, double width,
              double height);

/* The same in a colour of its own, "#rrggbb". */
void svg_fill(struct svg_page *page, const char *color, double x, double y, double width,
              double height);

/* A dot, or with the class "ring" a circle; a pointer on it shows `tip`, if that is not NULL. */
void svg_circle(struct svg_page *page, const char *class, double x, double y, double radius,
                const char *tip);

/* Complete the file. false after a message, also where an earlier write failed. */
bool svg_end(struct svg_page *page);

/* ---- axes ---- */

/* Values from `from` to `to`, at `at` and for `length` pixels on; logarithmic or not. */
struct svg_axis {
    double from, to;
    double at, length; /* length < 0: upwards */
    bool logarithmic;
    double ticks; /* about so many; of a logarithmic axis one for each power of ten */
};

double svg_place(const struct svg_axis *axis, double value);

/* The next tick after `last` (NAN: the first one); NAN: there is none. Ticks are powers of ten, or
 * 1, 2 and 5 times such. */
double svg_next_tick(const struct svg_axis *axis, double last);

/* The frame of two axes, with the grid and the numbers of their ticks; `name` is what is below. */
void svg_frame(struct svg_page *page, const struct svg_axis *over, const struct svg_axis *up,
               const char *name);

#endif
