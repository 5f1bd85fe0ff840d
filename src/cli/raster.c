#include "cli/raster.h"

#include "cli/stroke_font.h"

#include <errno.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 20000 };

/* Capitals are so high in a line of height 1. */
#define CAPITAL 0.7

bool raster_create(struct raster *r, double width, double height, double scale)
{
    *r = (struct raster){.scale = scale};
    double w = ceil(width * scale), h = ceil(height * scale);
    if (!(w >= 1 && w <= SIDE_MAX && h >= 1 && h <= SIDE_MAX))
        return false;
    r->width = (unsigned)w;
    r->height = (unsigned)h;
    r->rgb = malloc((size_t)r->width * r->height * 3);
    if (r->rgb)
        memset(r->rgb, 255, (size_t)r->width * r->height * 3);
    return r->rgb != NULL;
}

void raster_release(struct raster *r)
{
    free(r->rgb);
    r->rgb = NULL;
}

static void blend_pixel(struct raster *r, const struct raster_ink *ink, unsigned x, unsigned y,
                        double cover)
{
    uint8_t *pixel = r->rgb + ((size_t)y * r->width + x) * 3;
    double part = cover * ink->opacity;
    for (int c = 0; c < 3; c++)
        pixel[c] = (uint8_t)lround(pixel[c] + (ink->rgb[c] - pixel[c]) * part);
}

/* The pixels from `from` to `to` that there are. */
struct span {
    unsigned first, end;
};

static struct span span_of(double from, double to, unsigned size)
{
    double first = floor(fmin(fmax(from, 0), size)), end = ceil(fmin(fmax(to, 0), size));
    return (struct span){(unsigned)first, (unsigned)end};
}

static double limit_to_one(double part)
{
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

/* A line with round ends, of which a pixel is covered by its distance. Coordinates in pixels. */
static void draw_line(struct raster *r, const struct raster_ink *ink, double x1, double y1,
                      double x2, double y2)
{
    double half = fmax(ink->width * r->scale, 1) / 2, dx = x2 - x1, dy = y2 - y1;
    double length2 = dx * dx + dy * dy;
    struct span over = span_of(fmin(x1, x2) - half - 1, fmax(x1, x2) + half + 1, r->width);
    struct span down = span_of(fmin(y1, y2) - half - 1, fmax(y1, y2) + half + 1, r->height);
    for (unsigned y = down.first; y < down.end; y++)
        for (unsigned x = over.first; x < over.end; x++) {
            double px = x + 0.5 - x1, py = y + 0.5 - y1;
            double along = length2 > 0 ? limit_to_one((px * dx + py * dy) / length2) : 0;
            double cover = limit_to_one(half + 0.5 - hypot(px - along * dx, py - along * dy));
            if (cover > 0)
                blend_pixel(r, ink, x, y, cover);
        }
}

/* The part of a line that the dashes leave; `done` is the length of the path before it. */
static void draw_dashes(struct raster *r, const struct raster_ink *ink, const double from[2],
                        const double to[2], double done)
{
    double length = hypot(to[0] - from[0], to[1] - from[1]);
    double on = ink->dash[0] * r->scale, period = on + ink->dash[1] * r->scale;
    for (double begin = -fmod(done, period); begin < length; begin += period) {
        double a = fmax(begin, 0) / length, b = fmin(begin + on, length) / length;
        if (b > a)
            draw_line(r, ink, from[0] + a * (to[0] - from[0]), from[1] + a * (to[1] - from[1]),
                      from[0] + b * (to[0] - from[0]), from[1] + b * (to[1] - from[1]));
    }
}

void raster_path(struct raster *r, const struct raster_ink *ink, const double *x, const double *y,
                 size_t n)
{
    double done = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const double from[] = {x[i] * r->scale, y[i] * r->scale};
        const double to[] = {x[i + 1] * r->scale, y[i + 1] * r->scale};
        if (!isfinite(from[0] + from[1] + to[0] + to[1]))
            continue;
        if (ink->dash[0] > 0)
            draw_dashes(r, ink, from, to, done);
        else
            draw_line(r, ink, from[0], from[1], to[0], to[1]);
        done += hypot(to[0] - from[0], to[1] - from[1]);
    }
}

void raster_fill(struct raster *r, const struct raster_ink *ink, double x, double y, double width,
                 double height)
{
    double left = x * r->scale, top = y * r->scale;
    double right = left + width * r->scale, bottom = top + height * r->scale;
    struct span over = span_of(left, right, r->width), down = span_of(top, bottom, r->height);
    for (unsigned j = down.first; j < down.end; j++)
        for (unsigned i = over.first; i < over.end; i++) {
            double across = fmin(right, i + 1.0) - fmax(left, i);
            blend_pixel(r, ink, i, j,
                        limit_to_one(across * (fmin(bottom, j + 1.0) - fmax(top, j))));
        }
}

void raster_disc(struct raster *r, const struct raster_ink *ink, double x, double y, double radius)
{
    struct raster_ink dot = *ink;
    dot.width = 2 * radius;
    draw_line(r, &dot, x * r->scale, y * r->scale, x * r->scale, y * r->scale);
}

/* ---- text ---- */

static double unit_of(double size)
{
    return size * CAPITAL / STROKE_CAPITAL;
}

double raster_text_width(double size, const char *text)
{
    double units = 0;
    for (size_t bytes; *text; text += bytes)
        units += stroke_advance(stroke_glyph(text, &bytes));
    return units * unit_of(size);
}

/* The glyph's origin is at x, y. */
static void draw_glyph(struct raster *r, const struct raster_ink *ink, double x, double y,
                       double unit, const char *glyph)
{
    double left = stroke_left(glyph), px = NAN, py = NAN;
    for (const char *at = glyph; *at; at += *at == ' ' ? 1 : 2) {
        if (*at == ' ') {
            px = NAN;
            continue;
        }
        double nx = (x + (at[0] - '0' - left) * unit) * r->scale;
        double ny = (y - (at[1] - '0' - STROKE_BASELINE) * unit) * r->scale;
        if (isfinite(px))
            draw_line(r, ink, px, py, nx, ny);
        px = nx;
        py = ny;
    }
}

void raster_text(struct raster *r, const struct raster_ink *ink, double x, double y,
                 enum raster_anchor anchor, double size, const char *text)
{
    double unit = unit_of(size), width = raster_text_width(size, text);
    width -= 2 * unit; /* the gap behind the last glyph */
    x -= anchor == RASTER_MIDDLE ? width / 2 : anchor == RASTER_END ? width : 0;
    for (size_t bytes; *text; text += bytes) {
        const char *glyph = stroke_glyph(text, &bytes);
        draw_glyph(r, ink, x, y, unit, glyph);
        x += stroke_advance(glyph) * unit;
    }
}

/* ---- the file ---- */

static const char program[] = "paceline";

static bool write_png(const struct raster *r, FILE *file, double dpi)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    png_uint_32 per_metre = (png_uint_32)lround(dpi / 0.0254);
    char key[] = "Software", text[sizeof program];
    memcpy(text, program, sizeof text);
    png_text made_by = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = key, .text = text};
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return false;
    }
    png_init_io(png, file);
    png_set_IHDR(png, info, r->width, r->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_pHYs(png, info, per_metre, per_metre, PNG_RESOLUTION_METER);
    png_set_text(png, info, &made_by, 1);
    png_write_info(png, info);
    for (unsigned y = 0; y < r->height; y++)
        png_write_row(png, r->rgb + (size_t)y * r->width * 3);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return true;
}

bool raster_write(const struct raster *r, const char *path, double dpi)
{
    errno = 0;
    FILE *file = fopen(path, "wb");
    bool good = file && write_png(r, file, dpi);
    int error = errno;
    if (file && fclose(file) != 0 && good) {
        good = false;
        error = errno;
    }
    if (!good)
        fprintf(stderr, "paceline: %s: cannot be written: %s\n", path,
                error ? strerror(error) : "out of memory");
    return good;
}

bool raster_may_write(const char *command, const char *path)
{
    /* Behind the signature are the sizes and the resolution, 33 and 21 bytes long. */
    enum { TEXT_AT = 8 + 25 + 21 + 8 };
    char head[TEXT_AT + sizeof "Software" + sizeof program - 1] = "";
    FILE *file = fopen(path, "rb");
    if (!file && errno == ENOENT)
        return true;
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    if (n == sizeof head && memcmp(head + TEXT_AT, "Software\0paceline", 17) == 0)
        return true;
    fprintf(stderr,
            "paceline %s: %s exists and is no file of this command; it is not replaced: give "
            "another folder\n",
            command, path);
    return false;
}
