#include "data/sheet.h"

#include "data/resize.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { PAPER = 255 };

struct canvas {
    uint8_t *pixels; /* H x W x C, owned */
    size_t H, W, C;
};

/* ---- a cell ---- */

/* Bounds of the shown values: the one that becomes black, and the one that becomes white. */
static void value_bounds(const float *x, size_t n, bool stretched, float *least, float *most)
{
    *least = 0;
    *most = 255;
    if (!stretched)
        return;
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t k = 0; k < n; k++) {
        *least = fminf(*least, x[k]);
        *most = fmaxf(*most, x[k]);
    }
}

static uint8_t shade_of(float value, float least, float most)
{
    float part = most > least ? (value - least) / (most - least) : 0.5f;
    return (uint8_t)lrintf(255 * fminf(fmaxf(part, 0), 1));
}

/* How large the record becomes: h x w pixels, each of them `factor` times itself along both sides.
 */
static void fit_cell(const struct raw *raw, size_t side, size_t *h, size_t *w, size_t *factor)
{
    size_t longer = raw->H > raw->W ? raw->H : raw->W;
    *factor = side >= longer ? side / longer : 1;
    *h = side >= longer ? raw->H : raw->H * side / longer;
    *w = side >= longer ? raw->W : raw->W * side / longer;
    *h = *h > 0 ? *h : 1;
    *w = *w > 0 ? *w : 1;
}

/* Paint x, (C, h, w), into the middle of the cell with this upper left corner. */
static void paint_cell(const struct sheet *sheet, const float *x, size_t h, size_t w, size_t factor,
                       bool stretched, struct canvas *canvas, size_t top, size_t left)
{
    float least, most;
    value_bounds(x, canvas->C * h * w, stretched, &least, &most);
    top += (sheet->side - h * factor) / 2;
    left += (sheet->side - w * factor) / 2;
    for (size_t y = 0; y < h * factor; y++) {
        uint8_t *at = canvas->pixels + ((top + y) * canvas->W + left) * canvas->C;
        for (size_t k = 0; k < w * factor; k++)
            for (size_t c = 0; c < canvas->C; c++) {
                size_t from = sheet->bgr ? canvas->C - 1 - c : c;
                *at++ = shade_of(x[(from * h + y / factor) * w + k / factor], least, most);
            }
    }
}

static int draw_record(const struct sheet *sheet, size_t i, struct scratch *scratch,
                       struct canvas *canvas, struct err *err)
{
    struct raw raw;
    bool stretched = false;
    int rc = sheet->read(sheet->user, i, &raw, &stretched, err);
    if (rc != OK)
        return rc;
    size_t h, w, factor, columns = sheet->columns;
    fit_cell(&raw, sheet->side, &h, &w, &factor);
    float *x = scratch_get(scratch, SCRATCH_PIXELS, raw.C * h * w * sizeof *x);
    const struct window window = {.h = h, .w = w, .H = h, .W = w};
    if (!x || resize_window(&raw, &window, NULL, scratch, x) != OK)
        return err_set(err, ERR_NOMEM, "sheet: out of memory");
    size_t top = SHEET_GAP + i / columns * (sheet->side + SHEET_GAP);
    size_t left = SHEET_GAP + i % columns * (sheet->side + SHEET_GAP);
    paint_cell(sheet, x, h, w, factor, stretched, canvas, top, left);
    return OK;
}

/* ---- the file ---- */

/* Values that may change between setjmp and longjmp live here. */
struct writing {
    png_structp out;
    png_infop info;
    jmp_buf failed;
    struct buf *png;
};

static void on_error(png_structp out, png_const_charp text)
{
    (void)text;
    longjmp(((struct writing *)png_get_error_ptr(out))->failed, 1);
}

static void on_warning(png_structp out, png_const_charp text)
{
    (void)out;
    (void)text;
}

static void write_bytes(png_structp out, png_bytep bytes, size_t n)
{
    struct writing *w = png_get_io_ptr(out);
    buf_put(w->png, bytes, n);
}

static void ignore_flush(png_structp out)
{
    (void)out;
}

/* Nothing but memory can be short. */
static int encode_png(const struct canvas *canvas, struct writing *w)
{
    if (setjmp(w->failed))
        return ERR_NOMEM;
    w->out = png_create_write_struct(PNG_LIBPNG_VER_STRING, w, on_error, on_warning);
    w->info = w->out ? png_create_info_struct(w->out) : NULL;
    if (!w->info)
        return ERR_NOMEM;
    png_set_write_fn(w->out, w, write_bytes, ignore_flush);
    png_set_IHDR(w->out, w->info, (uint32_t)canvas->W, (uint32_t)canvas->H, 8,
                 canvas->C == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->out, w->info);
    for (size_t y = 0; y < canvas->H; y++)
        png_write_row(w->out, canvas->pixels + y * canvas->W * canvas->C);
    png_write_end(w->out, NULL);
    return w->png->failed ? ERR_NOMEM : OK;
}

/* ---- the sheet ---- */

static int make_canvas(const struct sheet *sheet, struct canvas *canvas, struct err *err)
{
    size_t rows = (sheet->count + sheet->columns - 1) / sheet->columns;
    size_t cell = sheet->side + SHEET_GAP;
    if (rows > SHEET_PIXELS_MAX / cell || sheet->columns > SHEET_PIXELS_MAX / cell ||
        rows * cell + SHEET_GAP > SHEET_PIXELS_MAX / (sheet->columns * cell + SHEET_GAP))
        return err_set(err, ERR_INPUT,
                       "sheet: %zu x %zu cells of %zu pixels are more than %d pixels", rows,
                       sheet->columns, sheet->side, SHEET_PIXELS_MAX);
    *canvas = (struct canvas){
        .H = rows * cell + SHEET_GAP,
        .W = sheet->columns * cell + SHEET_GAP,
        .C = sheet->coloured ? 3 : 1,
    };
    canvas->pixels = malloc(canvas->H * canvas->W * canvas->C);
    if (!canvas->pixels)
        return err_set(err, ERR_NOMEM, "sheet: out of memory");
    memset(canvas->pixels, PAPER, canvas->H * canvas->W * canvas->C);
    return OK;
}

int sheet_png(const struct sheet *sheet, struct buf *png, struct err *err)
{
    struct sheet laid = *sheet;
    struct canvas canvas;
    struct scratch scratch = {0};
    struct writing writing = {.png = png};
    while (sheet->columns == 0 && laid.columns * laid.columns < sheet->count)
        laid.columns++;
    int rc = make_canvas(&laid, &canvas, err);
    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < laid.count; i++)
        rc = draw_record(&laid, i, &scratch, &canvas, err);
    if (rc == OK && encode_png(&canvas, &writing) != OK)
        rc = err_set(err, ERR_NOMEM, "sheet: out of memory");
    png_destroy_write_struct(&writing.out, &writing.info);
    scratch_release(&scratch);
    free(canvas.pixels);
    return rc;
}
