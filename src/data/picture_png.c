#include "data/picture.h"

#include "base/bytes.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

enum {
    SIGNATURE = 8,
    CHUNK_HEAD = 8, /* length · type, */
    CHUNK = 12,     /* and, behind the content, a checksum */
    IHDR_END = SIGNATURE + 8 + 13,
    CHUNK_BYTES_MAX = 1 << 23,
};

/* One picture under way. Values that may change between setjmp and longjmp live here, not in
 * locals. */
struct png {
    png_structp in;
    png_infop info;
    jmp_buf failed;
    int status;
    char text[160];
    const uint8_t *bytes;
    size_t left;
    Paceline__Data__Color color;
    struct scratch *scratch;
    uint8_t *pixels;
    struct picture size;
};

/* IHDR comes first: length · "IHDR" · width · height · depth, and more. */
int picture_png_probe(const uint8_t *head, size_t head_len, struct picture *out, struct err *err)
{
    if (head_len < IHDR_END)
        return err_set(err, ERR_INPUT, "PNG: %zu bytes, broken off within its header", head_len);
    if (bytes_be32(head + SIGNATURE) != 13 || memcmp(head + SIGNATURE + 4, "IHDR", 4) != 0)
        return err_set(err, ERR_INPUT, "PNG: does not begin with a header");
    size_t W = bytes_be32(head + SIGNATURE + 8), H = bytes_be32(head + SIGNATURE + 12);
    return picture_check_size("PNG", H, W, out, err);
}

static _Noreturn void fail_png(struct png *p, int status, const char *text)
{
    p->status = status;
    snprintf(p->text, sizeof p->text, "%s", text);
    longjmp(p->failed, 1);
}

static void on_error(png_structp in, png_const_charp text)
{
    fail_png(png_get_error_ptr(in), ERR_INPUT, text);
}

static void on_warning(png_structp in, png_const_charp text)
{
    (void)in;
    (void)text;
}

static void read_bytes(png_structp in, png_bytep to, size_t n)
{
    struct png *p = png_get_io_ptr(in);
    if (n > p->left)
        fail_png(p, ERR_INPUT, "broken off");
    memcpy(to, p->bytes, n);
    p->bytes += n;
    p->left -= n;
}

/* Whatever it holds, three or one of eight bits come out. */
static void set_form(struct png *p)
{
    png_set_expand(p->in); /* palettes, and grey of fewer bits than eight */
    png_set_strip_16(p->in);
    png_set_strip_alpha(p->in);
    if (p->color != PACELINE__DATA__COLOR__gray)
        png_set_gray_to_rgb(p->in);
    if (p->color == PACELINE__DATA__COLOR__bgr)
        png_set_bgr(p->in);
}

static void read_rows(struct png *p, size_t C)
{
    size_t H = p->size.H, row_bytes = p->size.W * C;
    png_bytep *row = scratch_get(p->scratch, SCRATCH_ROWS, H * sizeof *row);
    p->pixels = scratch_get(p->scratch, SCRATCH_PIXELS, H * row_bytes);
    if (!row || !p->pixels)
        fail_png(p, ERR_NOMEM, "out of memory");
    if (png_get_rowbytes(p->in, p->info) != row_bytes)
        fail_png(p, ERR_INPUT, "its rows are of a form that it does not say");
    for (size_t y = 0; y < H; y++)
        row[y] = p->pixels + y * row_bytes;
    png_read_image(p->in, row); /* all rows at once: it may be interlaced */
    if (C == 3 && p->color == PACELINE__DATA__COLOR__gray)
        picture_from_rgb(p->pixels, H * p->size.W, p->color, p->pixels);
}

/* libpng takes memory for all that a chunk says it holds before it looks whether that is there. */
static void check_chunks(struct png *p)
{
    const uint8_t *at = p->bytes + SIGNATURE;
    for (size_t left = p->left - SIGNATURE; left >= CHUNK_HEAD && memcmp(at + 4, "IEND", 4) != 0;) {
        size_t n = bytes_be32(at);
        if (left < CHUNK || n > left - CHUNK)
            fail_png(p, ERR_INPUT, "broken off");
        at += CHUNK + n;
        left -= CHUNK + n;
    }
}

static int decode_png(struct png *p)
{
    struct err why = {0};
    if (setjmp(p->failed))
        return p->status;
    check_chunks(p);
    p->in = png_create_read_struct(PNG_LIBPNG_VER_STRING, p, on_error, on_warning);
    p->info = p->in ? png_create_info_struct(p->in) : NULL;
    if (!p->info)
        fail_png(p, ERR_NOMEM, "out of memory");
    png_set_user_limits(p->in, SIDE_MAX, SIDE_MAX);
    png_set_chunk_malloc_max(p->in, CHUNK_BYTES_MAX);
    png_set_read_fn(p->in, p, read_bytes);
    png_read_info(p->in, p->info);
    if (picture_check_size("a picture", png_get_image_height(p->in, p->info),
                           png_get_image_width(p->in, p->info), &p->size, &why) != OK)
        fail_png(p, ERR_INPUT, why.text);
    set_form(p);
    bool gray = p->color == PACELINE__DATA__COLOR__gray;
    bool coloured = png_get_color_type(p->in, p->info) & PNG_COLOR_MASK_COLOR;
    png_set_interlace_handling(p->in);
    png_read_update_info(p->in, p->info);
    read_rows(p, gray && !coloured ? 1 : 3);
    return OK;
}

int picture_png_decode(const uint8_t *bytes, size_t len, Paceline__Data__Color color,
                       struct scratch *scratch, struct raw *raw, struct err *err)
{
    struct png p = {.bytes = bytes, .left = len, .color = color, .scratch = scratch};
    int rc = decode_png(&p);
    png_destroy_read_struct(&p.in, &p.info, NULL);
    if (rc != OK)
        return err_set(err, rc, "PNG: %s", p.text);
    *raw = (struct raw){p.pixels, RAW_INTERLEAVED, picture_channels(color), p.size.H, p.size.W, 0};
    return OK;
}
