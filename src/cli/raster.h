/* A picture of pixels, with anti-aliased lines, and text in a font of strokes; and its file. */
#ifndef PL_CLI_RASTER_H
#define PL_CLI_RASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raster {
    unsigned width, height; /* pixels */
    double scale;           /* pixels for a unit of the coordinates below */
    uint8_t *rgb;           /* owned */
};

/* Colour, opacity and width of what is drawn; `dash`: lengths on and off, 0: solid. */
struct raster_ink {
    uint8_t rgb[3];
    double opacity, width;
    double dash[2];
};

enum raster_anchor { RASTER_START, RASTER_MIDDLE, RASTER_END };

/* White. false: out of memory. */
bool raster_create(struct raster *r, double width, double height, double scale);
void raster_release(struct raster *r);

/* A polyline through n points, broken where one is not finite. */
void raster_path(struct raster *r, const struct raster_ink *ink, const double *x, const double *y,
                 size_t n);
void raster_fill(struct raster *r, const struct raster_ink *ink, double x, double y, double width,
                 double height);
void raster_disc(struct raster *r, const struct raster_ink *ink, double x, double y, double radius);

/* Text at x, y, its baseline; `size` is the height of a line. */
void raster_text(struct raster *r, const struct raster_ink *ink, double x, double y,
                 enum raster_anchor anchor, double size, const char *text);
double raster_text_width(double size, const char *text);

/* Write a PNG of so many pixels an inch. A text chunk names this program, by which
 * raster_may_write knows its files: may `path` be written? false after a message on stderr. */
bool raster_write(const struct raster *r, const char *path, double dpi);
bool raster_may_write(const char *command, const char *path);

#endif
