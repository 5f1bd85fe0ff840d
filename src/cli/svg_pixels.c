#include "cli/svg_pixels.h"

#include "cli/svg_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct style {
    const char *color;
    double opacity, size, width;
    double dash[2];
    bool filled;
};

/* As the style sheet of svg_page.c has them; later names of a class overrule earlier ones. */
static void apply_name(struct style *style, const char *name, size_t length)
{
    static const struct {
        const char *name;
        struct style style;
    } named[] = {
        {"title", {"#1f2328", 1, 15, 1.7, {0}, false}},
        {"head", {"#1f2328", 1, 12, 1.4, {0}, false}},
        {"tick", {"#59636e", 1, 10, 0.9, {0}, false}},
        {"note", {"#59636e", 1, 11, 1, {0}, false}},
        {"cell", {"#1f2328", 1, 10, 0.9, {0}, false}},
        {"label", {"#1f2328", 1, 11, 1, {0}, false}},
        {"grid", {"#d9dee3", 1, 0, 0.7, {0}, false}},
        {"frame", {"#818b98", 1, 0, 0.8, {0}, false}},
        {"page", {"#ffffff", 1, 0, 0, {0}, true}},
        {"band", {"#0072b2", 0.12, 0, 0, {0}, true}},
        {"best", {"#1f2328", 1, 0, 1.6, {0}, false}},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strlen(named[i].name) == length && memcmp(named[i].name, name, length) == 0)
            *style = named[i].style;
    if (length == 5 && memcmp(name, "faint", 5) == 0)
        style->opacity = 0.3;
    if (length != 2 || name[1] < '0' || name[1] >= '0' + SVG_SERIES)
        return;
    if (name[0] == 's' || name[0] == 't')
        style->color = svg_light_colors[name[1] - '0'];
    if (name[0] == 's')
        style->width = 1.8;
    if (name[0] == 'd' && name[1] > '0') {
        style->dash[0] = name[1] == '1' ? 7 : 2;
        style->dash[1] = 3;
    }
}

static struct style style_of(const char *class)
{
    struct style style = {.color = "#1f2328", .opacity = 1, .size = 11, .width = 1};
    for (size_t length; *class; class += length + (class[length] == ' ')) {
        length = strcspn(class, " ");
        apply_name(&style, class, length);
    }
    return style;
}

static struct raster_ink ink_of(const struct style *style)
{
    struct raster_ink ink = {
        .opacity = style->opacity, .width = style->width, .dash = {style->dash[0], style->dash[1]}};
    unsigned long color = strtoul(style->color + 1, NULL, 16);
    for (int c = 0; c < 3; c++)
        ink.rgb[c] = (uint8_t)(color >> (16 - 8 * c) & 255);
    return ink;
}

void pixels_text(struct raster *r, const char *class, double x, double y, const char *anchor,
                 const char *text)
{
    const struct style style = style_of(class);
    const struct raster_ink ink = ink_of(&style);
    enum raster_anchor at = strcmp(anchor, "middle") == 0 ? RASTER_MIDDLE
                            : strcmp(anchor, "end") == 0  ? RASTER_END
                                                          : RASTER_START;
    raster_text(r, &ink, x, y, at, style.size, text);
}

double pixels_text_width(const char *class, const char *text)
{
    return raster_text_width(style_of(class).size, text);
}

void pixels_path(struct raster *r, const char *class, const double *x, const double *y, size_t n)
{
    const struct style style = style_of(class);
    const struct raster_ink ink = ink_of(&style);
    raster_path(r, &ink, x, y, n);
}

void pixels_rect(struct raster *r, const char *class, double x, double y, double width,
                 double height)
{
    const struct style style = style_of(class);
    const struct raster_ink ink = ink_of(&style);
    const double right = x + width, low = y + height;
    if (style.filled)
        raster_fill(r, &ink, x, y, width, height);
    else
        raster_path(r, &ink, (const double[]){x, right, right, x, x},
                    (const double[]){y, y, low, low, y}, 5);
}

void pixels_fill(struct raster *r, const char *color, double x, double y, double width,
                 double height)
{
    const struct raster_ink ink = ink_of(&(struct style){.color = color, .opacity = 1});
    raster_fill(r, &ink, x, y, width, height);
}

void pixels_circle(struct raster *r, const char *class, double x, double y, double radius)
{
    enum { SIDES = 24 };
    const struct style style = style_of(class);
    const struct raster_ink ink = ink_of(&style);
    double px[SIDES + 1], py[SIDES + 1];
    if (strncmp(class, "ring", 4) != 0) {
        raster_disc(r, &ink, x, y, radius);
        return;
    }
    for (int i = 0; i <= SIDES; i++) {
        double angle = 2 * 3.14159265358979323846 * i / SIDES;
        px[i] = x + radius * cos(angle);
        py[i] = y + radius * sin(angle);
    }
    raster_path(r, &ink, px, py, SIDES + 1);
}
