#include "cli/report_pictures.h"

#include "cli/report_timeline.h"
#include "cli/svg_page.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WIDTH = 640, TOP = 42, LEFT = 70, RIGHT = 24, PLOT_HEIGHT = 300, BOTTOM = 52 };
enum { PATH_BYTES = 4096, CURVES_MAX = 3, LABEL_BYTES = 320 };

/* The legend's rows, and in them a stroke, a gap, the text, and a gap. */
enum { ROW = 18, STROKE = 26, GAP = 6, SPACE = 18 };

/* From this quotient of the greatest and the least value on the axis is logarithmic. */
#define LOGARITHMIC 200

/* A file, and the curves that are drawn together in it. */
static const struct picture {
    const char *file, *title;
    enum run_curve curve[CURVES_MAX];
    int curves;
} pictures[] = {
    {"error", "error", {CURVE_VALIDATION_ERROR, CURVE_TEST_ERROR}, 2},
    {"loss", "loss", {CURVE_TRAIN_LOSS, CURVE_VALIDATION_LOSS, CURVE_TEST_LOSS}, 3},
    {"rate", "learning rate", {CURVE_RATE}, 1},
    {"batch", "batch of all workers, samples", {CURVE_BATCH}, 1},
    {"workers", "workers", {CURVE_WORKERS}, 1},
    {"throughput", "throughput, samples/s", {CURVE_SPEED}, 1},
    {"exchange", "duration of an exchange, s", {CURVE_EXCHANGE}, 1},
    {"waited", "longest wait in an exchange, s", {CURVE_WAITED}, 1},
};

enum { PICTURES = sizeof pictures / sizeof *pictures };

static void path_of(const char *folder, const char *file, double dpi, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s.%s", folder, file, dpi > 0 ? "png" : "svg");
}

static bool may_write(const char *folder, const char *file, double dpi)
{
    char path[PATH_BYTES];
    path_of(folder, file, dpi, path);
    return dpi > 0 ? raster_may_write("report", path)
                   : svg_may_write("report", "svg", path, svg_first_bytes);
}

bool report_pictures_may_write(const char *folder, double dpi)
{
    bool fits = strlen(folder) + 32 <= PATH_BYTES;
    if (!fits || (mkdir(folder, 0777) != 0 && errno != EEXIST)) {
        fprintf(stderr,
                "paceline report: --%s: %s: %s; give a folder that can be made or written\n",
                dpi > 0 ? "png" : "svg", folder, fits ? strerror(errno) : "the path is too long");
        return false;
    }
    bool may = may_write(folder, "timeline", dpi);
    for (int i = 0; i < PICTURES && may; i++)
        may = may_write(folder, pictures[i].file, dpi);
    return may;
}

/* ---- one picture ---- */

struct drawing {
    struct svg_page page;
    const struct picture *picture;
    const struct report_run *run;
    size_t runs;
    enum report_axis axis;
    struct svg_axis over, up;
};

static double find_along(const struct run_point *point, enum report_axis axis)
{
    return axis == REPORT_TIME ? point->t : axis == REPORT_EPOCHS ? point->epoch : point->samples;
}

static const struct run_series *series_of(const struct drawing *d, size_t run, int curve)
{
    return &d->run[run].summary->curve[d->picture->curve[curve]];
}

/* The least and the greatest numbers of all curves. false: fewer than two points of one. */
static bool find_ranges(const struct drawing *d, double over[2], double up[2])
{
    bool drawn = false;
    over[0] = up[0] = INFINITY;
    over[1] = up[1] = -INFINITY;
    for (size_t i = 0; i < d->runs; i++)
        for (int k = 0; k < d->picture->curves; k++) {
            const struct run_series *series = series_of(d, i, k);
            size_t finite = 0;
            for (size_t j = 0; j < series->count; j++) {
                double x = find_along(&series->point[j], d->axis), y = series->point[j].value;
                if (!isfinite(x) || !isfinite(y))
                    continue;
                finite++;
                over[0] = fmin(over[0], x), over[1] = fmax(over[1], x);
                up[0] = fmin(up[0], y), up[1] = fmax(up[1], y);
            }
            drawn |= finite > 1;
        }
    return drawn && over[1] > over[0];
}

static void set_axes(struct drawing *d, double top, const double over[2], const double up[2])
{
    bool logarithmic = up[0] > 0 && up[1] / up[0] >= LOGARITHMIC;
    double least = up[0] < 0 ? up[0] : 0, most = up[1] > least ? up[1] : least + 1;
    d->over = (struct svg_axis){over[0] > 0 && over[0] < over[1] / 4 ? 0 : over[0],
                                over[1],
                                LEFT,
                                WIDTH - LEFT - RIGHT,
                                false,
                                6};
    d->up = (struct svg_axis){logarithmic ? up[0] / 1.1 : least,
                              logarithmic ? up[1] * 1.1 : most + 0.05 * (most - least),
                              top + PLOT_HEIGHT,
                              -PLOT_HEIGHT,
                              logarithmic,
                              5};
}

/* The class of a curve: a colour for each run, or in a picture of one run for each curve, and
 * dashes for the second and third curve. */
static void class_of(const struct drawing *d, size_t run, int curve, char out[16])
{
    size_t color = d->runs > 1 ? run : (size_t)curve;
    snprintf(out, 16, "s%zu d%d", color % SVG_SERIES, curve);
}

static bool draw_curve(struct drawing *d, size_t run, int curve)
{
    const struct run_series *given = series_of(d, run, curve);
    struct run_series series = {0};
    if (given->count == 0)
        return true;
    bool good = run_series_copy(given, &series);
    run_series_reduce(&series, 8 * WIDTH);
    double *x = malloc(series.count * sizeof *x), *y = malloc(series.count * sizeof *y);
    good = good && x && y;
    for (size_t i = 0; good && i < series.count; i++) {
        x[i] = svg_place(&d->over, find_along(&series.point[i], d->axis));
        y[i] = svg_place(&d->up, series.point[i].value);
    }
    char class[16];
    class_of(d, run, curve, class);
    if (good)
        svg_path(&d->page, class, x, y, series.count);
    free(x);
    free(y);
    run_series_release(&series);
    return good;
}

static void label_of(const struct drawing *d, size_t run, int curve, char out[LABEL_BYTES])
{
    const char *label = run_curve_labels[d->picture->curve[curve]];
    if (d->runs == 1)
        snprintf(out, LABEL_BYTES, "%s", label);
    else if (d->picture->curves == 1)
        snprintf(out, LABEL_BYTES, "%s", d->run[run].name);
    else
        snprintf(out, LABEL_BYTES, "%s: %s", d->run[run].name, label);
}

/* Draw the legend's entries row by row from `top` on, or with no page only find their places.
 * Returns the height of the rows. */
static double draw_legend(struct drawing *d, double top, bool draws)
{
    double x = LEFT, y = top;
    int entries = 0;
    for (size_t i = 0; i < d->runs; i++)
        for (int k = 0; k < d->picture->curves; k++) {
            char label[LABEL_BYTES], class[16];
            if (series_of(d, i, k)->count == 0)
                continue;
            label_of(d, i, k, label);
            class_of(d, i, k, class);
            double width = STROKE + GAP + svg_text_width("label", label);
            if (entries++ > 0 && x + width > WIDTH - RIGHT) {
                x = LEFT;
                y += ROW;
            }
            if (draws) {
                svg_line(&d->page, class, x, y - 4, x + STROKE, y - 4);
                svg_text(&d->page, "label", x + STROKE + GAP, y, "start", "%s", label);
            }
            x += width + SPACE;
        }
    return y + ROW - top;
}

/* A picture of one curve of one run needs no legend. */
static bool draw_picture(struct drawing *d, const char *path, double dpi, const double over[2],
                         const double up[2])
{
    static const char *const names[] = {"time, s", "epochs", "samples"};
    bool legend = d->runs > 1 || d->picture->curves > 1;
    double top = TOP + (legend ? draw_legend(d, TOP, false) : 0);
    if (!svg_begin_as(&d->page, path, WIDTH, top + PLOT_HEIGHT + BOTTOM, d->picture->title, dpi))
        return false;
    set_axes(d, top, over, up);
    svg_frame(&d->page, &d->over, &d->up, names[d->axis]);
    bool good = true;
    for (size_t i = 0; i < d->runs; i++)
        for (int k = 0; k < d->picture->curves; k++)
            good = draw_curve(d, i, k) && good;
    if (legend)
        draw_legend(d, TOP + 6, true);
    if (!good)
        fprintf(stderr, "paceline report: %s: out of memory\n", path);
    return svg_end(&d->page) && good;
}

bool report_pictures_write(const char *folder, const struct report_run *run, size_t count,
                           enum report_axis axis, double dpi)
{
    bool good = true;
    char path[PATH_BYTES];
    for (int i = 0; i < PICTURES && good; i++) {
        struct drawing d = {.picture = &pictures[i], .run = run, .runs = count, .axis = axis};
        double over[2], up[2];
        path_of(folder, pictures[i].file, dpi, path);
        if (find_ranges(&d, over, up))
            good = draw_picture(&d, path, dpi, over, up);
    }
    size_t traced = 0;
    while (traced < count && !run[traced].trace)
        traced++;
    path_of(folder, "timeline", dpi, path);
    return good && (traced == count || report_timeline_write(path, run[traced].trace, dpi));
}
