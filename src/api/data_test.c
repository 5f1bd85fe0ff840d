/* Records looked at, by hand: counts, means, the resizing of pictures to a net's size, and a
 * contact sheet pixel by pixel, read by libpng. */
#include "paceline/data.h"

#include "pictures.h"

#include <math.h>

struct stage {
    struct folder folder;
    pl_engine *engine;
};

static void expect_ok(const struct stage *s, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(s->engine));
}

static void expect_refusal(const struct stage *s, int rc, int expected, const char *phrase)
{
    if (rc != expected || !strstr(pl_engine_error(s->engine), phrase))
        fail_msg("%d, %s; expected %d, %s", rc, pl_engine_error(s->engine), expected, phrase);
}

/* Four records of 1 x 2 x 2 in IDX files; labels 2, 0, 2, 1. */
static const uint8_t idx_images[] = {0, 0, 8, 3, 0, 0, 0, 4, 0,   0,  0,  2,  0, 0, 0, 2,
                                     0, 2, 4, 6, 1, 1, 1, 1, 100, 90, 80, 70, 7, 7, 7, 7};
static const uint8_t idx_labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 2, 0, 2, 1};

static pl_data *open_idx(const struct stage *s, const char *maps)
{
    char spec[512];
    pl_data *data;
    snprintf(spec, sizeof spec, "idx:%s/images,%s/labels%s", s->folder.path, s->folder.path, maps);
    expect_ok(s, pl_data_open(s->engine, spec, false, &data));
    return data;
}

/* ---- figures ---- */

static void test_what_there_is(void **state)
{
    const struct stage *s = *state;
    pl_data *data = open_idx(s, "");
    pl_data_info info;
    pl_data_record record;
    expect_ok(s, pl_data_describe(data, &info));
    assert_string_equal(info.kind, "idx");
    assert_int_equal(info.records, 4);
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.height_min, 2);
    assert_int_equal(info.width_max, 2);
    assert_int_equal(info.classes, 3);
    assert_int_equal(info.bytes, 16);
    assert_false(info.mapped);
    const uint64_t counts[] = {1, 1, 2};
    assert_memory_equal(info.of_class, counts, sizeof counts);
    expect_ok(s, pl_data_record_at(data, 3, &record));
    assert_true(record.has_label);
    assert_int_equal(record.label, 1);
    assert_null(record.class_name);
    assert_string_equal(record.name, "");
    expect_refusal(s, pl_data_record_at(data, 4, &record), PL_ERR_USAGE, "there are 4");
    pl_data_close(data);
    data = open_idx(s, "?crop=1");
    expect_ok(s, pl_data_describe(data, &info));
    assert_true(info.mapped);
    assert_int_equal(info.shape[1], 1);
    pl_data_close(data);
    data = open_idx(s, "?crop=3");
    expect_refusal(s, pl_data_describe(data, &info), PL_ERR_INPUT, "cropped to 3 x 3");
    pl_data_close(data);
}

/* The first record's values are 0, 2, 4, 6: mean 3, deviation sqrt 5; the second's are 1 each. */
static void test_means_and_deviations(void **state)
{
    const struct stage *s = *state;
    pl_data *data = open_idx(s, "");
    pl_data_stats stats;
    expect_ok(s, pl_data_measure(data, 1, &stats));
    assert_int_equal(stats.records, 1);
    assert_true(fabs(stats.channel[0].mean - 3) < 1e-12);
    assert_true(fabs(stats.channel[0].deviation - sqrt(5)) < 1e-12);
    assert_int_equal(stats.of_class[2], 1);
    assert_false(stats.scaled);
    expect_ok(s, pl_data_measure(data, 2, &stats)); /* 0 2 4 6 1 1 1 1 */
    assert_true(fabs(stats.channel[0].mean - 2) < 1e-12);
    assert_true(fabs(stats.channel[0].deviation - sqrt((4 + 0 + 4 + 16 + 4.) / 8)) < 1e-12);
    expect_ok(s, pl_data_measure(data, 0, &stats));
    assert_int_equal(stats.records, 4);
    assert_true(stats.channel[0].least == 0 && stats.channel[0].most == 100);
    pl_data_close(data);
    data = open_idx(s, "?mean=3&scale=0.5"); /* (x - 3) / 2 */
    expect_ok(s, pl_data_measure(data, 1, &stats));
    assert_true(fabs(stats.channel[0].mean) < 1e-12);
    assert_true(fabs(stats.channel[0].deviation - sqrt(5) / 2) < 1e-7);
    assert_true(stats.scaled);
    assert_int_equal(stats.of_class[2], 1);
    pl_data_close(data);
}

static void test_reading(void **state)
{
    const struct stage *s = *state;
    pl_data *data = open_idx(s, "?mean=1&scale=2");
    float x[8];
    const float expected[] = {-2, 2, 6, 10, 0, 0, 0, 0};
    expect_ok(s, pl_data_read(data, 0, 2, x, 8));
    for (int k = 0; k < 8; k++)
        assert_true(x[k] == expected[k]);
    expect_refusal(s, pl_data_read(data, 0, 2, x, 7), PL_ERR_USAGE, "more room");
    expect_refusal(s, pl_data_read(data, 3, 2, x, 8), PL_ERR_USAGE, "there are 4");
    expect_refusal(s, pl_data_read(data, SIZE_MAX, 2, x, 8), PL_ERR_USAGE, "there are 4");
    pl_data_close(data);
}

/* ---- pictures ---- */

/* A PNG of one colour. */
static void put_colour(const struct stage *s, const char *name, unsigned H, unsigned W,
                       const uint8_t rgb[3])
{
    static uint8_t rows[64 * 64 * 3];
    for (unsigned i = 0; i < H * W * 3; i++)
        rows[i] = rgb[i % 3];
    picture_put_png(&s->folder, name, rows, H, W, PNG_COLOR_TYPE_RGB, 8, W * 3, false);
}

static const uint8_t red[] = {200, 10, 30}, green[] = {0, 250, 40};

static pl_data *open_two(const struct stage *s, const char *maps)
{
    char path[2][256];
    folder_file(&s->folder, "red.png", path[0]);
    folder_file(&s->folder, "green.png", path[1]);
    pl_data *data;
    expect_ok(s, pl_data_open_pictures(s->engine, (const char *const[]){path[0], path[1]}, 2, maps,
                                       &data));
    memset(path, 'x', sizeof path); /* they are copied */
    return data;
}

static void expect_colours(const struct stage *s, pl_data *data, size_t pixels,
                           const float colour[][3], size_t channels)
{
    static float x[2 * 3 * 64];
    expect_ok(s, pl_data_read(data, 0, 2, x, sizeof x / sizeof *x));
    for (size_t i = 0; i < 2; i++)
        for (size_t c = 0; c < channels; c++)
            for (size_t k = 0; k < pixels; k++)
                if (fabsf(x[(i * channels + c) * pixels + k] - colour[i][c]) > 1e-3f)
                    fail_msg("record %zu, channel %zu: %g, expected %g", i, c,
                             (double)x[(i * channels + c) * pixels + k], (double)colour[i][c]);
}

/* 1, -0.5 and 3.140625 as the upper halves of floats: records, and a stream of them. */
static void test_values_of_bf16(void **state)
{
    const struct stage *s = *state;
    static const uint16_t halves[] = {0x3f80, 0xbf00, 0x4049};
    static const float expected[] = {1, -0.5f, 3.140625f};
    const pl_records records = {.size = sizeof records,
                                .count = 1,
                                .channels = 3,
                                .height = 1,
                                .width = 1,
                                .type = PL_BF16,
                                .values = halves};
    const pl_stream_options options = {
        .size = sizeof options, .channels = 3, .height = 1, .width = 1, .type = PL_BF16};
    pl_stream *stream;
    void *values;
    uint32_t *labels;
    size_t room;
    expect_ok(s, pl_data_bind(s->engine, "bound", &records));
    expect_ok(s, pl_stream_open(s->engine, "streamed", &options, &stream));
    expect_ok(s, pl_stream_acquire(stream, &values, &labels, &room));
    memcpy(values, halves, sizeof halves);
    expect_ok(s, pl_stream_commit(stream, 1));
    expect_ok(s, pl_stream_seal(stream));
    static const char *const specs[] = {"memory:bound", "memory:streamed"};
    for (int i = 0; i < 2; i++) {
        pl_data *data;
        float x[3];
        expect_ok(s, pl_data_open(s->engine, specs[i], true, &data));
        expect_ok(s, pl_data_read(data, 0, 1, x, 3));
        assert_memory_equal(x, expected, sizeof x);
        pl_data_close(data);
    }
}

static void put_byte(const struct stage *s, pl_stream *stream, uint8_t value)
{
    void *values;
    uint32_t *labels;
    size_t room;
    expect_ok(s, pl_stream_acquire(stream, &values, &labels, &room));
    *(uint8_t *)values = value;
    expect_ok(s, pl_stream_commit(stream, 1));
}

/* A flush shows the records that a growing stream has so far. */
static void test_a_flushed_stream(void **state)
{
    const struct stage *s = *state;
    pl_stream_options options = {
        .size = sizeof options, .channels = 1, .height = 1, .width = 1, .grows = true};
    pl_stream *stream, *sealed;
    pl_data *data;
    pl_data_info info;
    float x[2];
    expect_ok(s, pl_stream_open(s->engine, "growing", &options, &stream));
    put_byte(s, stream, 7);
    assert_int_equal(pl_data_open(s->engine, "memory:growing", true, &data), PL_ERR_INPUT);
    expect_ok(s, pl_stream_flush(stream));
    put_byte(s, stream, 8);
    put_byte(s, stream, 9);
    expect_ok(s, pl_stream_flush(stream));
    put_byte(s, stream, 10);
    expect_ok(s, pl_data_open(s->engine, "memory:growing", true, &data));
    expect_ok(s, pl_data_describe(data, &info));
    assert_int_equal(info.records, 3);
    expect_ok(s, pl_data_read(data, 1, 2, x, 2));
    assert_true(x[0] == 8 && x[1] == 9);
    pl_data_close(data);
    expect_ok(s, pl_stream_seal(stream));
    options.grows = false;
    expect_ok(s, pl_stream_open(s->engine, "sealed", &options, &sealed));
    assert_int_equal(pl_stream_flush(sealed), PL_ERR_USAGE);
    assert_int_equal(pl_stream_cut(sealed, 1), PL_ERR_USAGE);
    pl_stream_free(sealed);
}

/* A stream in parts is seen as far as it was cut, each part with the hash that it was given. */
static void test_a_stream_in_parts(void **state)
{
    const struct stage *s = *state;
    pl_stream_options options = {
        .size = sizeof options, .channels = 1, .height = 1, .width = 1, .parts = true};
    pl_stream *stream;
    pl_data *data;
    pl_data_info info;
    float x[3];
    assert_int_equal(pl_stream_open(s->engine, "parts", &options, &stream), PL_ERR_USAGE);
    options.grows = true;
    expect_ok(s, pl_stream_open(s->engine, "parts", &options, &stream));
    put_byte(s, stream, 7);
    assert_int_equal(pl_stream_flush(stream), PL_ERR_USAGE);
    assert_int_equal(pl_data_open(s->engine, "memory:parts", true, &data), PL_ERR_INPUT);
    expect_ok(s, pl_stream_cut(stream, 1));
    assert_int_equal(pl_stream_cut(stream, 2), PL_ERR_USAGE);
    put_byte(s, stream, 8);
    put_byte(s, stream, 9);
    expect_ok(s, pl_data_open(s->engine, "memory:parts", true, &data));
    expect_ok(s, pl_data_describe(data, &info));
    assert_int_equal(info.records, 1);
    pl_data_close(data);
    assert_int_equal(pl_stream_seal(stream), PL_ERR_USAGE);
    expect_ok(s, pl_stream_cut(stream, 2));
    expect_ok(s, pl_stream_seal(stream));
    expect_ok(s, pl_data_open(s->engine, "memory:parts", true, &data));
    expect_ok(s, pl_data_read(data, 0, 3, x, 3));
    assert_true(x[0] == 7 && x[1] == 8 && x[2] == 9);
    pl_data_close(data);
}

/* Parts that a stream of another engine has kept are adopted when that is gone. */
static void test_parts_are_adopted(void **state)
{
    const struct stage *s = *state;
    char first[600], second[600];
    pl_stream_options options = {.size = sizeof options,
                                 .channels = 1,
                                 .height = 1,
                                 .width = 1,
                                 .grows = true,
                                 .keep = first,
                                 .set = 3,
                                 .memory = 1};
    const pl_stream_part wanted[] = {{11, 1}, {12, 2}};
    struct stage other = {0};
    pl_stream *stream;
    pl_data *data;
    float x[4];
    bool adopted[2];
    void *values;
    uint32_t *labels;
    size_t room;
    snprintf(first, sizeof first, "%s/first.rows", s->folder.path);
    snprintf(second, sizeof second, "%s/second.rows", s->folder.path);
    assert_int_equal(pl_stream_open(s->engine, "kept", &options, &stream), PL_ERR_USAGE);
    options.parts = true;
    assert_int_equal(pl_engine_create(NULL, &other.engine), PL_OK);
    expect_ok(&other, pl_stream_open(other.engine, "kept", &options, &stream));
    put_byte(&other, stream, 7);
    expect_ok(&other, pl_stream_cut(stream, 11));
    put_byte(&other, stream, 8);
    put_byte(&other, stream, 9);
    expect_ok(&other, pl_stream_cut(stream, 12));
    pl_stream_free(stream);

    options.keep = second;
    expect_ok(s, pl_stream_open(s->engine, "kept", &options, &stream));
    expect_ok(s, pl_stream_acquire(stream, &values, &labels, &room));
    assert_true(room >= 200 << 10); /* the file is written in large pieces */
    put_byte(s, stream, 6);
    expect_ok(s, pl_stream_cut(stream, 10));
    assert_int_equal(pl_stream_adopt(stream, first, wanted, 2, adopted), PL_ERR_USAGE);
    assert_non_null(strstr(pl_stream_error(stream), "lives"));
    pl_engine_destroy(other.engine);
    expect_ok(s, pl_stream_adopt(stream, first, wanted, 2, adopted));
    assert_true(adopted[0] && adopted[1]);
    assert_int_equal(pl_stream_adopt(stream, first, wanted, 2, adopted), PL_ERR_USAGE);
    expect_ok(s, pl_stream_seal(stream));
    expect_ok(s, pl_data_open(s->engine, "memory:kept", true, &data));
    expect_ok(s, pl_data_read(data, 0, 4, x, 4));
    assert_true(x[0] == 6 && x[1] == 7 && x[2] == 8 && x[3] == 9);
    pl_data_close(data);
}

static void test_pictures_come_to_size(void **state)
{
    const struct stage *s = *state;
    const char *reason;
    put_colour(s, "red.png", 12, 20, red);
    put_colour(s, "green.png", 8, 9, green);
    pl_data *data = open_two(s, NULL);
    pl_data_record record;
    expect_ok(s, pl_data_record_at(data, 1, &record));
    assert_false(record.has_label);
    assert_int_equal(record.height, 8);
    assert_int_equal(record.width, 9);
    assert_non_null(strstr(record.name, "green.png"));
    expect_ok(s, pl_data_fit(data, 3, 4, 4, &reason));
    assert_string_equal(reason,
                        "records are resized to 4 pixels along the shorter edge and cut to the "
                        "middle");
    expect_colours(s, data, 16, (const float[][3]){{200, 10, 30}, {0, 250, 40}}, 3);
    expect_ok(s, pl_data_fit(data, 3, 4, 4, &reason));
    assert_null(reason); /* they do fit now */
    pl_data_close(data);
    data = open_two(s, "color=bgr&scale=0.5");
    expect_ok(s, pl_data_fit(data, 3, 4, 6, &reason));
    assert_string_equal(reason, "records are resized to 4 x 6 pixels");
    expect_colours(s, data, 24, (const float[][3]){{15, 5, 100}, {20, 125, 0}}, 3);
    pl_data_close(data);
}

/* 0.299 R + 0.587 G + 0.114 B, rounded. */
static void test_pictures_become_grey(void **state)
{
    const struct stage *s = *state;
    const char *reason;
    put_colour(s, "red.png", 4, 4, red);
    put_colour(s, "green.png", 4, 4, green);
    pl_data *data = open_two(s, NULL);
    expect_ok(s, pl_data_fit(data, 1, 4, 4, &reason));
    assert_string_equal(reason, "pictures are made grey");
    expect_colours(s, data, 16, (const float[][3]){{69}, {151}}, 1);
    pl_data_close(data);
    data = open_two(s, "color=rgb");
    expect_refusal(s, pl_data_fit(data, 1, 4, 4, &reason), PL_ERR_INPUT, "the net takes 1 x 4 x 4");
    pl_data_close(data);
    data = open_two(s, "crop=3"); /* stated, so that nothing else is tried */
    expect_refusal(s, pl_data_fit(data, 3, 4, 4, &reason), PL_ERR_INPUT, "3 x 3 x 3");
    pl_data_close(data);
}

/* The maps of a job are applied, but where they make no sense for these records. */
static void test_maps_of_a_job(void **state)
{
    const struct stage *s = *state;
    const char *reason;
    pl_job *job;
    expect_ok(s, pl_job_create(s->engine, &job));
    expect_ok(s, pl_job_set_test_data(job, "images:nowhere?color=bgr&crop=4&scale=0.5&mean=10"));
    put_colour(s, "red.png", 6, 7, red);
    put_colour(s, "green.png", 8, 8, green);
    pl_data *data = open_two(s, NULL);
    expect_ok(s, pl_data_take_maps(data, job));
    expect_ok(s, pl_data_fit(data, 3, 4, 4, &reason));
    assert_null(reason);
    expect_colours(s, data, 16, (const float[][3]){{10, 0, 95}, {15, 120, -5}}, 3);
    pl_data_close(data);
    put_colour(s, "green.png", 9, 12, green); /* over twice the crop */
    data = open_two(s, NULL);
    expect_ok(s, pl_data_take_maps(data, job));
    expect_ok(s, pl_data_fit(data, 3, 4, 4, &reason));
    assert_non_null(strstr(reason, "4 pixels along the shorter edge"));
    pl_data_close(data);
    data = open_two(s, "scale=1"); /* and this one replaces the job's */
    expect_ok(s, pl_data_take_maps(data, job));
    expect_ok(s, pl_data_fit(data, 3, 6, 6, &reason));
    expect_colours(s, data, 36, (const float[][3]){{30, 10, 200}, {40, 250, 0}}, 3);
    pl_data_close(data);
    pl_job_free(job);
}

static void test_pictures_that_are_none(void **state)
{
    const struct stage *s = *state;
    pl_data *data;
    char path[256];
    folder_file(&s->folder, "labels", path);
    const char *const list[] = {path};
    expect_refusal(s, pl_data_open_pictures(s->engine, list, 1, NULL, &data), PL_ERR_INPUT,
                   "neither JPEG nor PNG");
    expect_refusal(s, pl_data_open_pictures(s->engine, list, 0, NULL, &data), PL_ERR_USAGE, "none");
    expect_refusal(s, pl_data_open_pictures(s->engine, list, 1, "colour=red", &data), PL_ERR_USAGE,
                   "expected after `?`");
    expect_refusal(s, pl_data_open(s->engine, "tape:x", false, &data), PL_ERR_USAGE, "tape");
}

/* ---- the contact sheet ---- */

struct sheet_image {
    png_image image;
    uint8_t *pixels;
};

static struct sheet_image read_sheet(const struct stage *s, const char *name)
{
    char path[256];
    struct sheet_image sheet = {.image = {.version = PNG_IMAGE_VERSION}};
    assert_true(png_image_begin_read_from_file(&sheet.image, folder_file(&s->folder, name, path)));
    sheet.pixels = malloc(PNG_IMAGE_SIZE(sheet.image));
    assert_non_null(sheet.pixels);
    assert_true(png_image_finish_read(&sheet.image, NULL, sheet.pixels, 0, NULL));
    return sheet;
}

static void expect_pixel(const struct sheet_image *sheet, unsigned y, unsigned x, int r, int g,
                         int b)
{
    unsigned C = PNG_IMAGE_SAMPLE_CHANNELS(sheet->image.format);
    const uint8_t *p = sheet->pixels + (y * sheet->image.width + x) * C;
    const int expected[] = {r, g, b};
    for (unsigned c = 0; c < C; c++)
        if (p[c] != expected[c])
            fail_msg("pixel (%u, %u), channel %u: %d, expected %d", y, x, c, p[c], expected[c]);
}

/* Cells of 8 with 2 pixels around: 12 x 16 becomes 6 x 8, and 3 x 2 is shown twice as large. */
static void test_a_sheet_in_colours(void **state)
{
    const struct stage *s = *state;
    char path[256];
    put_colour(s, "red.png", 12, 16, red);
    put_colour(s, "green.png", 3, 2, green);
    folder_file(&s->folder, "sheet.png", path);
    static const char *const maps[] = {"color=rgb", "color=bgr", "color=bgr&mean=7&scale=9"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        pl_data *data = open_two(s, maps[i]);
        expect_ok(s, pl_data_sheet(data, 9, 2, 8, path, i > 0));
        pl_data_close(data);
        struct sheet_image sheet = read_sheet(s, "sheet.png");
        assert_int_equal(sheet.image.width, 2 + 2 * 10);
        assert_int_equal(sheet.image.height, 2 + 10);
        expect_pixel(&sheet, 2, 2, 255, 255, 255);
        expect_pixel(&sheet, 3, 2, 200, 10, 30);
        expect_pixel(&sheet, 8, 9, 200, 10, 30);
        expect_pixel(&sheet, 9, 9, 255, 255, 255);
        expect_pixel(&sheet, 3, 14, 0, 250, 40);
        expect_pixel(&sheet, 8, 17, 0, 250, 40);
        expect_pixel(&sheet, 8, 18, 255, 255, 255);
        expect_pixel(&sheet, 3, 13, 255, 255, 255);
        free(sheet.pixels);
    }
}

/* Two by two of the IDX files' records, four times as large. */
static void test_a_sheet_in_grey(void **state)
{
    const struct stage *s = *state;
    char path[256];
    pl_data *data = open_idx(s, "");
    expect_ok(s, pl_data_sheet(data, 4, 0, 8, folder_file(&s->folder, "grey.png", path), false));
    struct sheet_image sheet = read_sheet(s, "grey.png");
    assert_int_equal(PNG_IMAGE_SAMPLE_CHANNELS(sheet.image.format), 1);
    assert_int_equal(sheet.image.width, 22);
    assert_int_equal(sheet.image.height, 22);
    const int value[4][4] = {{0, 2, 4, 6}, {1, 1, 1, 1}, {100, 90, 80, 70}, {7, 7, 7, 7}};
    for (unsigned y = 0; y < 22; y++)
        for (unsigned x = 0; x < 22; x++) {
            bool paper = y % 10 < 2 || x % 10 < 2;
            unsigned cell = y / 10 * 2 + x / 10, at = (y % 10 - 2) / 4 * 2 + (x % 10 - 2) / 4;
            expect_pixel(&sheet, y, x, paper ? 255 : value[cell][at], 0, 0);
        }
    free(sheet.pixels);
    expect_refusal(s, pl_data_sheet(data, 4, 0, 7, path, true), PL_ERR_USAGE, "8 to 1024");
    expect_refusal(s, pl_data_sheet(data, 0, 0, 8, path, true), PL_ERR_USAGE, "no record");
    expect_refusal(s, pl_data_sheet(data, 4, 4096, 1024, path, true), PL_ERR_INPUT, "pixels");
    expect_refusal(s, pl_data_sheet(data, 4, 0, 8, "/proc/no.png", true), PL_ERR_IO, "/proc/");
    expect_refusal(s, pl_data_sheet(data, 4, 0, 8, path, false), PL_ERR_INPUT,
                   "grey.png: exists; give another name, or replace it with --force");
    pl_data_close(data);
}

static void test_names_of_classes(void **state)
{
    const struct stage *s = *state;
    pl_names *names;
    char path[256];
    static const char text[] = "n01440764 tench, Tinca tinca\nn0144 short\nplain\nn12345678\n\n";
    folder_put(&s->folder, "synsets", text, sizeof text - 1);
    expect_ok(s, pl_names_load(s->engine, folder_file(&s->folder, "synsets", path), &names));
    assert_int_equal(pl_names_count(names), 4);
    assert_string_equal(pl_names_at(names, 0), "tench, Tinca tinca");
    assert_string_equal(pl_names_at(names, 1), "n0144 short");
    assert_string_equal(pl_names_at(names, 3), "n12345678");
    assert_null(pl_names_at(names, 4));
    pl_names_free(names);
    folder_put(&s->folder, "none", "\n\n", 2);
    expect_refusal(s, pl_names_load(s->engine, folder_file(&s->folder, "none", path), &names),
                   PL_ERR_INPUT, "no names");
}

static int setup(void **state)
{
    static struct stage s;
    folder_make(&s.folder);
    folder_put(&s.folder, "images", idx_images, sizeof idx_images);
    folder_put(&s.folder, "labels", idx_labels, sizeof idx_labels);
    *state = &s;
    return pl_engine_create(NULL, &s.engine);
}

static int teardown(void **state)
{
    struct stage *s = *state;
    pl_engine_destroy(s->engine);
    folder_remove(&s->folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_there_is),
        cmocka_unit_test(test_means_and_deviations),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_values_of_bf16),
        cmocka_unit_test(test_a_stream_in_parts),
        cmocka_unit_test(test_parts_are_adopted),
        cmocka_unit_test(test_a_flushed_stream),
        cmocka_unit_test(test_pictures_come_to_size),
        cmocka_unit_test(test_pictures_become_grey),
        cmocka_unit_test(test_maps_of_a_job),
        cmocka_unit_test(test_pictures_that_are_none),
        cmocka_unit_test(test_a_sheet_in_colours),
        cmocka_unit_test(test_a_sheet_in_grey),
        cmocka_unit_test(test_names_of_classes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
