#include "data/picture.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

/* SCANS_MAX: more than any encoder makes; each costs a pass over all coefficients. EDGE: so many
 * columns at the edges of a crop may differ from those of the whole picture, since the decoder
 * interpolates colours across them. ACROSS_MAX: where more pixels share a colour, libjpeg-turbo
 * 2.1 crops a shrunk picture wrongly. */
enum { SCANS_MAX = 200, EDGE = 2, ACROSS_MAX = 2 };

/* One picture under way. Values that may change between setjmp and longjmp live here, not in
 * locals. */
struct jpeg {
    struct jpeg_decompress_struct in; /* its client_data points here */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct jpeg_source_mgr source; /* of a probe */
    jmp_buf failed;
    int status;
    char text[JMSG_LENGTH_MAX];
    const struct part_of *part; /* of a probe: what it reads, and how far it is */
    uint64_t at;
    uint8_t window[PICTURE_HEAD];
    Paceline__Data__Color color;
    struct scratch *scratch;
    struct raw_want want;
    uint8_t *pixels;
};

/* ---- errors: none prints, ends the process, or goes unseen ---- */

static _Noreturn void fail_jpeg(struct jpeg *j, int status)
{
    j->status = status;
    longjmp(j->failed, 1);
}

static void on_error(j_common_ptr in)
{
    struct jpeg *j = in->client_data;
    in->err->format_message(in, j->text);
    fail_jpeg(j, in->err->msg_code == JERR_OUT_OF_MEMORY ? ERR_NOMEM : ERR_INPUT);
}

/* Warnings say that pixels are made up, but for those of things that pixels do not hang on. */
static void on_warning(j_common_ptr in, int level)
{
    if (level >= 0)
        return;
    switch (in->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL: return;
    default: on_error(in);
    }
}

static void ignore_message(j_common_ptr in)
{
    (void)in;
}

static void on_progress(j_common_ptr in)
{
    struct jpeg *j = in->client_data;
    if (j->in.input_scan_number <= SCANS_MAX)
        return;
    snprintf(j->text, sizeof j->text, "more than %d scans", SCANS_MAX);
    fail_jpeg(j, ERR_INPUT);
}

static void set_up(struct jpeg *j)
{
    j->in.err = jpeg_std_error(&j->errors);
    j->in.client_data = j;
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_warning;
    j->errors.output_message = ignore_message;
    j->progress.progress_monitor = on_progress;
}

static int finish_jpeg(struct jpeg *j, int rc, struct err *err)
{
    jpeg_destroy_decompress(&j->in);
    return rc == OK ? OK : err_set(err, rc, "JPEG: %s", j->text);
}

/* ---- probing ---- */

static void source_begin(j_decompress_ptr in)
{
    (void)in;
}

static boolean source_fill(j_decompress_ptr in)
{
    struct jpeg *j = in->client_data;
    size_t n = part_left(j->part, j->at, sizeof j->window);
    if (n == 0)
        snprintf(j->text, sizeof j->text, "broken off before its picture begins");
    else if (part_read(j->part, j->at, j->window, n) != OK)
        snprintf(j->text, sizeof j->text, "cannot be read");
    if (j->text[0])
        fail_jpeg(j, n == 0 ? ERR_INPUT : ERR_IO);
    j->at += n;
    j->source.next_input_byte = j->window;
    j->source.bytes_in_buffer = n;
    return TRUE;
}

static void source_skip(j_decompress_ptr in, long n)
{
    struct jpeg *j = in->client_data;
    size_t skip = n > 0 ? (size_t)n : 0, have = j->source.bytes_in_buffer;
    size_t within = skip < have ? skip : have;
    j->source.next_input_byte += within;
    j->source.bytes_in_buffer -= within;
    j->at += skip - within;
}

static void source_end(j_decompress_ptr in)
{
    (void)in;
}

static int probe_jpeg(struct jpeg *j)
{
    if (setjmp(j->failed))
        return j->status;
    jpeg_create_decompress(&j->in);
    j->source = (struct jpeg_source_mgr){
        .init_source = source_begin,
        .fill_input_buffer = source_fill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = source_end,
    };
    j->in.src = &j->source;
    jpeg_read_header(&j->in, TRUE);
    return OK;
}

int picture_jpeg_probe(const struct part_of *part, struct picture *out, struct err *err)
{
    struct jpeg j = {.part = part};
    set_up(&j);
    int rc = probe_jpeg(&j);
    size_t H = j.in.image_height, W = j.in.image_width;
    rc = finish_jpeg(&j, rc, err);
    return rc == OK ? picture_check_size("JPEG", H, W, out, err) : rc;
}

/* ---- decoding ---- */

static uint8_t scaled_product(unsigned a, unsigned b)
{
    return (uint8_t)((a * b + 127) / 255);
}

/* Inks, which Adobe's programs write inverted, to light. */
static void rgb_of_inks(uint8_t *p, size_t n, bool inverted)
{
    for (size_t i = 0; i < n; i++) {
        unsigned flip = inverted ? 0 : 255, key = p[4 * i + 3] ^ flip;
        for (size_t c = 0; c < 3; c++)
            p[3 * i + c] = scaled_product(p[4 * i + c] ^ flip, key);
    }
}

/* The columns that are wanted, and some around them, whose first is returned. */
static size_t crop_columns(struct jpeg *j)
{
    struct jpeg_decompress_struct *in = &j->in;
    size_t left = j->want.left < EDGE ? 0 : j->want.left - EDGE;
    size_t right = j->want.right + EDGE;
    if ((left == 0 && right >= in->output_width) || in->max_h_samp_factor > ACROSS_MAX)
        return 0;
    JDIMENSION first = (JDIMENSION)left, n = (JDIMENSION)min_size(right, in->output_width) - first;
    jpeg_crop_scanline(in, &first, &n);
    return first;
}

static void read_rows(struct jpeg *j, size_t C)
{
    struct jpeg_decompress_struct *in = &j->in;
    size_t W = in->output_width, first = crop_columns(j), n = in->output_width;
    size_t bottom = min_size(j->want.bottom, in->output_height), last = in->output_height - 1;
    bool inks = in->out_color_space == JCS_CMYK;
    uint8_t *row = inks ? scratch_get(j->scratch, SCRATCH_ROWS, 4 * n) : NULL;
    if (inks && !row) {
        snprintf(j->text, sizeof j->text, "out of memory");
        fail_jpeg(j, ERR_NOMEM);
    }
    jpeg_skip_scanlines(in, (JDIMENSION)j->want.top);
    while (in->output_scanline <= last) {
        if (in->output_scanline == bottom && bottom < last)
            jpeg_skip_scanlines(in, (JDIMENSION)(last - bottom));
        uint8_t *to = j->pixels + (in->output_scanline * W + first) * C;
        jpeg_read_scanlines(in, inks ? &row : &to, 1);
        if (inks) {
            rgb_of_inks(row, n, in->saw_Adobe_marker);
            picture_from_rgb(row, n, j->color, to);
        }
    }
}

/* Everything, unless the caller wants less of a picture of this size. */
static void choose_want(struct jpeg *j, const struct picture *size)
{
    const struct raw_want *want = j->scratch->want;
    PL_ASSERT(!want || want->shrink <= SHRINK_MAX);
    bool fits = want && want->H == size->H && want->W == size->W;
    j->want = fits ? *want : (struct raw_want){size->H, size->W, 0, 0, size->H, 0, size->W};
}

static int decode_jpeg(struct jpeg *j, const uint8_t *bytes, size_t len, struct picture *size)
{
    struct jpeg_decompress_struct *in = &j->in;
    struct err why = {0};
    if (setjmp(j->failed))
        return j->status;
    jpeg_create_decompress(in);
    in->progress = &j->progress;
    jpeg_mem_src(in, bytes, len);
    jpeg_read_header(in, TRUE);
    if (picture_check_size("a picture", in->image_height, in->image_width, size, &why) != OK) {
        snprintf(j->text, sizeof j->text, "%.*s", (int)sizeof j->text - 1, why.text);
        return ERR_INPUT;
    }
    bool inks = in->jpeg_color_space == JCS_CMYK || in->jpeg_color_space == JCS_YCCK;
    in->out_color_space = inks                                      ? JCS_CMYK
                          : j->color == PACELINE__DATA__COLOR__gray ? JCS_GRAYSCALE
                          : j->color == PACELINE__DATA__COLOR__bgr  ? JCS_EXT_BGR
                                                                    : JCS_RGB;
    in->dct_method = JDCT_ISLOW; /* has the same bits on every machine */
    choose_want(j, size);
    in->scale_num = 1;
    in->scale_denom = 1u << j->want.shrink;
    size_t C = picture_channels(j->color);
    size_t H = shrunk_side(size->H, j->want.shrink), W = shrunk_side(size->W, j->want.shrink);
    j->pixels = scratch_get(j->scratch, SCRATCH_PIXELS, H * W * C);
    if (!j->pixels) {
        snprintf(j->text, sizeof j->text, "out of memory");
        return ERR_NOMEM;
    }
    jpeg_start_decompress(in);
    PL_ASSERT(in->output_height == H && in->output_width == W);
    read_rows(j, C);
    jpeg_finish_decompress(in);
    return OK;
}

int picture_jpeg_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                        struct scratch *scratch, struct raw *raw, struct err *err)
{
    struct jpeg j = {.color = color, .scratch = scratch};
    struct picture size = {0};
    set_up(&j);
    int rc = finish_jpeg(&j, decode_jpeg(&j, bytes, len, &size), err);
    if (rc == OK)
        *raw = (struct raw){j.pixels, RAW_INTERLEAVED, picture_channels(color),
                            size.H,   size.W,          j.want.shrink};
    return rc;
}
