/* The cost of a record that is a crop of a JPEG: ours from the bytes of the file to floats, and
 * libjpeg-turbo's decoding alone, in turns on one core.
 *
 *     crop_cost FILE.jpg ...     pictures to make the data of
 *
 * Each picture becomes a JPEG of 500 x 375 (quality 90, a colour for four pixels). The program
 * prints for the maps of a job, with crops drawn as in training, milliseconds of the processor a
 * picture, medians over rounds:
 *
 *   scaled   libjpeg-turbo decodes the whole at the scale M/8 that is fastest of those that leave
 *            as many pixels as the job's resize
 *   part     likewise, but only the rows and columns that the crop needs
 *   ours     decoding, resize, crop, mirror, mean and scale */
#include "data/maps.h"
#include "data/picture.h"

#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { H = 375, W = 500, FILES_MAX = 64, ROUNDS = 21, QUALITY = 90 };

struct picture_bytes {
    unsigned char *at;
    unsigned long n;
};

static struct picture_bytes made[FILES_MAX];
static size_t files;
static uint8_t pixels[H * W * 3];
static float record[3 * H * W];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---- the data ---- */

static void encode_pixels(const uint8_t *rgb, struct picture_bytes *out)
{
    struct jpeg_compress_struct to;
    struct jpeg_error_mgr errors;
    to.err = jpeg_std_error(&errors);
    jpeg_create_compress(&to);
    jpeg_mem_dest(&to, &out->at, &out->n);
    to.image_width = W;
    to.image_height = H;
    to.input_components = 3;
    to.in_color_space = JCS_RGB;
    jpeg_set_defaults(&to);
    jpeg_set_quality(&to, QUALITY, TRUE);
    jpeg_start_compress(&to, TRUE);
    while (to.next_scanline < H) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + to.next_scanline * W * 3);
        jpeg_write_scanlines(&to, &row, 1);
    }
    jpeg_finish_compress(&to);
    jpeg_destroy_compress(&to);
}

/* The middle of the picture, as large as it can be. */
static int make_picture(const char *path, struct scratch *scratch, struct err *err)
{
    struct file_bytes file;
    struct raw raw;
    int rc = file_read(path, PICTURE_BYTES_MAX, &file, err);
    if (rc != OK)
        return rc;
    rc = picture_decode(file.data, file.len, PACELINE__DATA__COLOR__rgb, scratch, &raw, err);
    file_release(&file);
    if (rc != OK)
        return rc;
    bool wide = raw.W * H >= raw.H * W;
    struct window window = {
        .h = wide ? H : raw.H * W / raw.W, .w = wide ? raw.W * H / raw.H : W, .H = H, .W = W};
    window.top = (ptrdiff_t)(window.h - H) / 2;
    window.left = (ptrdiff_t)(window.w - W) / 2;
    if (resize_window(&raw, &window, NULL, scratch, record) != OK)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t k = 0; k < sizeof pixels; k++)
        pixels[k] = (uint8_t)(record[k % 3 * H * W + k / 3] + 0.5f);
    encode_pixels(pixels, &made[files++]);
    return OK;
}

/* ---- timing ---- */

static void decode_by_library(const struct picture_bytes *bytes, unsigned eighths,
                              const struct raw_want *want)
{
    struct jpeg_decompress_struct in;
    struct jpeg_error_mgr errors;
    in.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&in);
    jpeg_mem_src(&in, bytes->at, bytes->n);
    jpeg_read_header(&in, TRUE);
    in.scale_num = eighths;
    in.scale_denom = 8;
    in.out_color_space = JCS_RGB;
    jpeg_start_decompress(&in);
    JDIMENSION bottom = in.output_height;
    if (want) {
        JDIMENSION left = (JDIMENSION)want->left, n = (JDIMENSION)(want->right - want->left);
        bottom = (JDIMENSION)want->bottom;
        jpeg_crop_scanline(&in, &left, &n);
        jpeg_skip_scanlines(&in, (JDIMENSION)want->top);
    }
    while (in.output_scanline < bottom) {
        JSAMPROW row = pixels + in.output_scanline * in.output_width * 3;
        jpeg_read_scanlines(&in, &row, 1);
    }
    if (bottom < in.output_height)
        jpeg_abort_decompress(&in);
    else
        jpeg_finish_decompress(&in);
    jpeg_destroy_decompress(&in);
}

static void make_record(const struct maps *maps, const struct picture_bytes *bytes,
                        const struct maps_draw *draw, struct scratch *scratch)
{
    struct raw_want want;
    struct raw raw;
    maps_want(maps, H, W, draw, &want);
    scratch->want = &want;
    int rc = picture_decode(bytes->at, bytes->n, PACELINE__DATA__COLOR__rgb, scratch, &raw, NULL);
    if (rc == OK)
        rc = maps_apply(maps, &raw, draw, scratch, record);
    PL_ASSERT(rc == OK);
}

/* Milliseconds; `eighths` 0: ours. */
static double time_one(const struct maps *maps, size_t i, uint64_t epoch, unsigned eighths,
                       bool part, struct scratch *scratch)
{
    const struct maps_draw draw = {1, epoch, i};
    struct raw_want want;
    double begin = now_ms();
    maps_want(maps, H, W, &draw, &want);
    if (eighths == 0)
        make_record(maps, &made[i], &draw, scratch);
    else
        decode_by_library(&made[i], eighths, part ? &want : NULL);
    return now_ms() - begin;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *times)
{
    qsort(times, ROUNDS, sizeof *times, compare_times);
    return times[ROUNDS / 2];
}

/* The scales from `least` eighths on are tried; a part is read at the one that ours takes. */
static void compare_job(const char *name, size_t resize, size_t crop, unsigned least,
                        unsigned eighths, struct scratch *scratch)
{
    static float mean[3] = {127, 127, 127};
    static double scaled[9][ROUNDS], part[ROUNDS], ours[ROUNDS];
    const struct maps maps = {.scale = 0.02f,
                              .channels = 3,
                              .mean = mean,
                              .mirror = true,
                              .crop = crop,
                              .resize = resize};
    for (int r = 0; r < ROUNDS; r++) {
        part[r] = ours[r] = 0;
        for (unsigned m = least; m <= 8; m++)
            scaled[m][r] = 0;
        for (size_t i = 0; i < files; i++) {
            for (unsigned m = least; m <= 8; m++)
                scaled[m][r] += time_one(&maps, i, (uint64_t)r, m, false, scratch);
            part[r] += time_one(&maps, i, (uint64_t)r, eighths, true, scratch);
            ours[r] += time_one(&maps, i, (uint64_t)r, 0, false, scratch);
        }
    }
    unsigned best = 8;
    for (unsigned m = least; m <= 8; m++)
        best = median_of(scaled[m]) < scaled[best][ROUNDS / 2] ? m : best;
    double s = median_of(scaled[best]) / (double)files, p = median_of(part) / (double)files;
    double o = median_of(ours) / (double)files;
    printf("%-24s scaled (%u/8) %.3f   part (%u/8) %.3f   ours %.3f   ours/scaled %.2f   "
           "ours/part %.2f\n",
           name, best, s, eighths, p, o, o / s, o / p);
}

int main(int argc, char **argv)
{
    struct scratch scratch = {0};
    struct err err;
    for (int i = 1; i < argc && files < FILES_MAX; i++)
        if (make_picture(argv[i], &scratch, &err) != OK)
            fprintf(stderr, "crop_cost: %s: %s\n", argv[i], err.text);
    if (files == 0) {
        fprintf(stderr, "usage: crop_cost FILE.jpg ...\n");
        return 2;
    }
    unsigned long bytes = 0;
    for (size_t i = 0; i < files; i++)
        bytes += made[i].n;
    printf("%zu pictures, %.1f KB each, ms a picture\n", files,
           (double)bytes / 1e3 / (double)files);
    compare_job("resize=256&crop=224", 256, 224, 6, 8, &scratch);
    compare_job("crop=224", 0, 224, 8, 8, &scratch);
    compare_job("resize=144&crop=128", 144, 128, 4, 4, &scratch);
    scratch_release(&scratch);
    for (size_t i = 0; i < files; i++)
        free(made[i].at);
    return 0;
}
