/* Pictures that a test makes: JPEG and PNG of given pixels, written by the libraries themselves. */
#ifndef PL_LIB_PICTURES_H
#define PL_LIB_PICTURES_H

#include "folder.h"

#include <jpeglib.h>
#include <png.h>

/* How a JPEG is written: pixels that share a colour, and scans. */
struct jpeg_form {
    int across, down; /* sampling factors of the first component; those of the others are 1, */
    bool progressive;
    unsigned restart_rows;
    bool odd; /* except for the second one's, which are 2 */
};

/* C = 1, 3, or 4 (inks, as Adobe's programs write them); row-major, values side by side. */
static inline void picture_put_jpeg_as(const struct folder *f, const char *name,
                                       const uint8_t *pixels, unsigned H, unsigned W, int C,
                                       int quality, struct jpeg_form form)
{
    char path[256];
    FILE *file = fopen(folder_file(f, name, path), "wb");
    assert_non_null(file);
    struct jpeg_compress_struct out;
    struct jpeg_error_mgr errors;
    out.err = jpeg_std_error(&errors);
    jpeg_create_compress(&out);
    jpeg_stdio_dest(&out, file);
    out.image_width = W;
    out.image_height = H;
    out.input_components = C;
    out.in_color_space = C == 1 ? JCS_GRAYSCALE : C == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&out);
    if (C == 4) {
        jpeg_set_colorspace(&out, JCS_CMYK);
        out.write_Adobe_marker = TRUE;
    }
    jpeg_set_quality(&out, quality, TRUE);
    for (int c = 0; c < out.num_components; c++)
        out.comp_info[c].h_samp_factor = out.comp_info[c].v_samp_factor = 1;
    out.comp_info[0].h_samp_factor = form.across;
    out.comp_info[0].v_samp_factor = form.down;
    if (form.odd)
        out.comp_info[1].h_samp_factor = out.comp_info[1].v_samp_factor = 2;
    out.restart_in_rows = (int)form.restart_rows;
    if (form.progressive)
        jpeg_simple_progression(&out);
    jpeg_start_compress(&out, TRUE);
    while (out.next_scanline < H) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + out.next_scanline * W * (unsigned)C);
        jpeg_write_scanlines(&out, &row, 1);
    }
    jpeg_finish_compress(&out);
    jpeg_destroy_compress(&out);
    assert_int_equal(fclose(file), 0);
}

/* Likewise, with a colour for every pixel. */
static inline void picture_put_jpeg(const struct folder *f, const char *name, const uint8_t *pixels,
                                    unsigned H, unsigned W, int C, int quality)
{
    picture_put_jpeg_as(f, name, pixels, H, W, C, quality,
                        (struct jpeg_form){.across = 1, .down = 1});
}

/* `type` is libpng's PNG_COLOR_TYPE_…; `rows` are bytes as PNG has them, `row_bytes` each. */
static inline void picture_put_png(const struct folder *f, const char *name, const uint8_t *rows,
                                   unsigned H, unsigned W, int type, int depth, size_t row_bytes,
                                   bool interlaced)
{
    char path[256];
    FILE *file = fopen(folder_file(f, name, path), "wb");
    assert_non_null(file);
    png_structp out = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(out);
    assert_non_null(info);
    png_init_io(out, file);
    png_set_IHDR(out, info, W, H, depth, type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    if (type == PNG_COLOR_TYPE_PALETTE) {
        const png_color palette[] = {{255, 0, 0}, {0, 200, 0}, {10, 20, 30}, {1, 2, 3}};
        png_set_PLTE(out, info, palette, 4);
    }
    png_write_info(out, info);
    const uint8_t *row[64];
    assert_true(H <= 64);
    for (unsigned y = 0; y < H; y++)
        row[y] = rows + y * row_bytes;
    png_write_image(out, (png_bytepp)(uintptr_t)row);
    png_write_end(out, NULL);
    png_destroy_write_struct(&out, &info);
    assert_int_equal(fclose(file), 0);
}

#endif
