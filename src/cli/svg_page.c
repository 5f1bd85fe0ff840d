#include "cli/svg_page.h"

#include "cli/svg_pixels.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

const char svg_first_bytes[] = "<svg data-drawn-by=\"paceline\"";

/* Can a new file be made there? */
static bool can_create(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    if (!slash)
        return access(".", W_OK | X_OK) == 0;
    snprintf(folder, sizeof folder, "%.*s", length, path);
    return access(folder, W_OK | X_OK) == 0;
}

bool svg_may_write(const char *command, const char *option, const char *path, const char *begin)
{
    char found[256] = "";
    size_t length = strlen(begin);
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOENT && can_create(path))
        return true;
    if (!f) {
        fprintf(stderr, "paceline %s: --%s: %s: %s\n", command, option, path, strerror(errno));
        return false;
    }
    size_t n = fread(found, 1, length < sizeof found ? length : sizeof found, f);
    bool failed = ferror(f);
    fclose(f);
    if (!failed && (n == 0 || (n == length && memcmp(found, begin, n) == 0)))
        return true;
    fprintf(stderr,
            "paceline %s: --%s: %s exists and is no file of this command; it is not replaced: give "
            "another name\n",
            command, option, path);
    return false;
}

/* ---- the page ---- */

/* Colours that differ for every eye (Okabe and Ito), brighter where the page is dark. */
const char *const svg_light_colors[SVG_SERIES] = {"#0072b2", "#009e73", "#d55e00", "#cc79a7",
                                                  "#000000", "#e69f00", "#56b4e9", "#8c564b"};
const char *const svg_dark_colors[SVG_SERIES] = {"#3d8fd1", "#2bb98d", "#ec7a35", "#de9cc0",
                                                 "#f0f6fc", "#f0b429", "#8fd0f5", "#b5806f"};

static void write_colors(FILE *out, const char *const color[SVG_SERIES])
{
    for (int i = 0; i < SVG_SERIES; i++)
        fprintf(out, ".s%d{stroke:%s}.t%d{fill:%s}\n", i, color[i], i, color[i]);
}

void svg_put_quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&')
            fprintf(out, "&#%d;", c);
        else
            fputc(c < ' ' ? ' ' : c, out);
    }
}

/* Screen readers name the page by it; a pointer on an element shows it. */
static void write_title(FILE *out, const char *text)
{
    fputs("<title>", out);
    svg_put_quoted(out, text);
    fputs("</title>", out);
}

static void write_style(FILE *out)
{
    fputs("<style>\n"
          "text{font:11px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
          ".page{fill:#fff}.title{font-size:15px;font-weight:600;fill:#1f2328}\n"
          ".head{font-size:12px;font-weight:600;fill:#1f2328}.tick{font-size:10px;fill:#59636e}\n"
          ".note{fill:#59636e}.cell{font-size:10px;fill:#1f2328}.label{fill:#1f2328}\n"
          "path,line,.frame,.ring{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
          ".grid{stroke:#d9dee3;stroke-width:.7}.frame{stroke:#818b98;stroke-width:.8}\n"
          ".band{fill:#0072b2;opacity:.12}.best{fill:none;stroke:#1f2328;stroke-width:1.6}\n"
          ".d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.faint{opacity:.3}\n",
          out);
    write_colors(out, svg_light_colors);
    fputs("@media (prefers-color-scheme:dark){\n"
          ".page{fill:#0d1117}.title,.head,.label{fill:#f0f6fc}.tick,.note{fill:#9198a1}\n"
          ".grid{stroke:#262c36}.frame{stroke:#656c76}.best{stroke:#f0f6fc}\n",
          out);
    write_colors(out, svg_dark_colors);
    fputs("}\n</style>\n", out);
}

bool svg_begin(struct svg_page *page, const char *path, double width, double height,
               const char *title)
{
    *page = (struct svg_page){.out = fopen(path, "w"), .path = path};
    if (!page->out) {
        fprintf(stderr, "paceline: %s: cannot be written: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(page->out,
            "%s xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
            svg_first_bytes, width, height);
    write_title(page->out, title);
    write_style(page->out);
    svg_rect(page, "page", 0, 0, width, height);
    svg_text(page, "title", 20, 26, "start", "%s", title);
    return true;
}

bool svg_begin_png(struct svg_page *page, const char *path, double width, double height,
                   const char *title, double dpi)
{
    *page = (struct svg_page){.path = path, .dpi = dpi};
    if (!raster_create(&page->raster, width, height, dpi / 96)) {
        fprintf(stderr, "paceline: %s: out of memory for %g pixels an inch\n", path, dpi);
        return false;
    }
    svg_text(page, "title", 20, 26, "start", "%s", title);
    return true;
}

bool svg_begin_as(struct svg_page *page, const char *path, double width, double height,
                  const char *title, double dpi)
{
    return dpi > 0 ? svg_begin_png(page, path, width, height, title, dpi)
                   : svg_begin(page, path, width, height, title);
}

bool svg_end(struct svg_page *page)
{
    if (!page->out) {
        bool good = raster_write(&page->raster, page->path, page->dpi);
        raster_release(&page->raster);
        return good;
    }
    fputs("</svg>\n", page->out);
    bool failed = ferror(page->out);
    failed |= fclose(page->out) != 0;
    if (failed)
        fprintf(stderr, "paceline: %s: cannot be written: %s\n", page->path, strerror(errno));
    return !failed;
}

/* ---- elements ---- */

void svg_text(struct svg_page *page, const char *class, double x, double y, const char *anchor,
              const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!page->out) {
        pixels_text(&page->raster, class, x, y, anchor, text);
        return;
    }
    fprintf(page->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y,
            anchor);
    svg_put_quoted(page->out, text);
    fputs("</text>\n", page->out);
}

double svg_text_width(const char *class, const char *text)
{
    return pixels_text_width(class, text);
}

void svg_line(struct svg_page *page, const char *class, double x1, double y1, double x2, double y2)
{
    if (!page->out) {
        pixels_path(&page->raster, class, (const double[]){x1, x2}, (const double[]){y1, y2}, 2);
        return;
    }
    fprintf(page->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
            class, x1, y1, x2, y2);
}

void svg_path(struct svg_page *page, const char *class, const double *x, const double *y, size_t n)
{
    char verb = 'M';
    if (!page->out) {
        pixels_path(&page->raster, class, x, y, n);
        return;
    }
    fprintf(page->out, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]) && isfinite(y[i]))
            fprintf(page->out, "%c%.1f %.1f", verb, x[i], y[i]);
        verb = isfinite(y[i]) ? 'L' : 'M';
    }
    fputs("\"/>\n", page->out);
}

void svg_rect(struct svg_page *page, const char *class, double x, double y, double width,
              double height)
{
    if (!page->out) {
        pixels_rect(&page->raster, class, x, y, width, height);
        return;
    }
    fprintf(page->out,
            "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class, x,
            y, width, height);
}

void svg_fill(struct svg_page *page, const char *color, double x, double y, double width,
              double height)
{
    if (!page->out) {
        pixels_fill(&page->raster, color, x, y, width, height);
        return;
    }
    fprintf(page->out, "<rect fill=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            color, x, y, width, height);
}

void svg_circle(struct svg_page *page, const char *class, double x, double y, double radius,
                const char *tip)
{
    if (!page->out) {
        pixels_circle(&page->raster, class, x, y, radius);
        return;
    }
    fprintf(page->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", class, x, y,
            radius);
    if (tip) {
        fputc('>', page->out);
        write_title(page->out, tip);
    }
    fputs(tip ? "</circle>\n" : "/>\n", page->out);
}

/* ---- axes ---- */

double svg_place(const struct svg_axis *axis, double value)
{
    double part = axis->logarithmic ? log(value / axis->from) / log(axis->to / axis->from)
                                    : (value - axis->from) / (axis->to - axis->from);
    return axis->at + axis->length * part;
}

/* 1, 2 or 5 times a power of ten. */
static double tick_distance(const struct svg_axis *axis)
{
    static const double mantissa[] = {1, 2, 5, 10};
    double about = (axis->to - axis->from) / axis->ticks, power = pow(10, floor(log10(about)));
    size_t i = 0;
    while (i < 3 && mantissa[i] * power < about * 0.99)
        i++;
    return mantissa[i] * power;
}

double svg_next_tick(const struct svg_axis *axis, double last)
{
    double next;
    if (axis->logarithmic) {
        double first = pow(10, ceil(log10(axis->from) - 1e-9));
        next = isnan(last) ? first : last * 10;
    } else {
        double distance = tick_distance(axis);
        next = isnan(last) ? distance * ceil(axis->from / distance - 1e-9) : last + distance;
        if (fabs(next) < distance * 1e-6)
            next = 0;
    }
    return next <= axis->to + 1e-9 * fabs(axis->to) ? next : NAN;
}

void svg_frame(struct svg_page *page, const struct svg_axis *over, const struct svg_axis *up,
               const char *name)
{
    double bottom = up->at, top = up->at + up->length, right = over->at + over->length;
    for (double t = svg_next_tick(over, NAN); !isnan(t); t = svg_next_tick(over, t)) {
        double x = svg_place(over, t);
        svg_line(page, "grid", x, top, x, bottom);
        svg_text(page, "tick", x, bottom + 16, "middle", "%.10g", t);
    }
    for (double t = svg_next_tick(up, NAN); !isnan(t); t = svg_next_tick(up, t)) {
        double y = svg_place(up, t);
        svg_line(page, "grid", over->at, y, right, y);
        svg_text(page, "tick", over->at - 6, y + 3.5, "end", "%.10g", t);
    }
    svg_rect(page, "frame", over->at, top, over->length, -up->length);
    svg_text(page, "tick", over->at + over->length / 2, bottom + 34, "middle", "%s", name);
}
