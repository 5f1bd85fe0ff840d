/* The elements of a drawing (svg_page.h) as pixels, in the styles of a light page. */
#ifndef PL_CLI_SVG_PIXELS_H
#define PL_CLI_SVG_PIXELS_H

#include "cli/raster.h"

void pixels_text(struct raster *r, const char *class, double x, double y, const char *anchor,
                 const char *text);
double pixels_text_width(const char *class, const char *text);
void pixels_path(struct raster *r, const char *class, const double *x, const double *y, size_t n);
void pixels_rect(struct raster *r, const char *class, double x, double y, double width,
                 double height);
void pixels_fill(struct raster *r, const char *color, double x, double y, double width,
                 double height);
void pixels_circle(struct raster *r, const char *class, double x, double y, double radius);

#endif
