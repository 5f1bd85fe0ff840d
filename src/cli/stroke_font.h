/* A font of strokes, for raster.c: each glyph is a few polylines on a small grid, drawn for this
 * program. ASCII and the multiplication sign; other characters are boxes. */
#ifndef PL_CLI_STROKE_FONT_H
#define PL_CLI_STROKE_FONT_H

#include <stddef.h>

/* On the grid: the baseline, and the heights of capitals and of small letters above it. */
enum { STROKE_BASELINE = 2, STROKE_CAPITAL = 7, STROKE_SMALL = 5 };

/* Pairs of digits, x and y from below, of a polyline; a blank ends it. Equal pairs are a dot. */
const char *stroke_glyph(const char *text, size_t *bytes);

/* Where the glyph begins, and how far the next one is from there. */
double stroke_left(const char *glyph);
double stroke_advance(const char *glyph);

#endif
