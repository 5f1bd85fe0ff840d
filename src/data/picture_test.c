/* Pictures of every form that the libraries write, and broken ones. */
#include "data/picture.h"

#include "pictures.h"

enum { H = 6, W = 9 };

struct stage {
    struct folder folder;
    struct scratch scratch;
    uint8_t bytes[FOLDER_BYTES_MAX];
    size_t len;
};

static int setup(void **state)
{
    struct stage *s = calloc(1, sizeof *s);
    assert_non_null(s);
    folder_make(&s->folder);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    folder_remove(&s->folder);
    scratch_release(&s->scratch);
    free(s);
    return 0;
}

static int probe_file(struct stage *s, const char *name, struct picture *out, struct err *err)
{
    char path[256];
    struct file_open file;
    assert_int_equal(file_open(folder_file(&s->folder, name, path), &file, err), OK);
    struct part_of all = {.file = &file, .len = file.len};
    uint8_t head[PICTURE_HEAD];
    size_t n = part_left(&all, 0, sizeof head);
    assert_int_equal(part_read(&all, 0, head, n), OK);
    int rc = picture_probe(&all, head, n, out, err);
    file_close(&file);
    return rc;
}

/* A file that is well, decoded. */
static struct raw decode_file(struct stage *s, const char *name, Paceline__Data__Color color)
{
    struct picture picture;
    struct raw raw;
    struct err err;
    if (probe_file(s, name, &picture, &err) != OK)
        fail_msg("%s", err.text);
    s->len = folder_get(&s->folder, name, s->bytes);
    if (picture_decode(s->bytes, s->len, color, &s->scratch, &raw, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(raw.H, picture.H);
    assert_int_equal(raw.W, picture.W);
    assert_int_equal(raw.C, picture_channels(color));
    assert_int_equal(raw.form, RAW_INTERLEAVED);
    return raw;
}

/* Each value within `slack` of what is expected. */
static void expect_near(const struct raw *raw, const uint8_t *want, int slack)
{
    const uint8_t *got = raw->at;
    for (size_t k = 0; k < raw->H * raw->W * raw->C; k++)
        if (abs(got[k] - want[k]) > slack)
            fail_msg("value %zu is %u, expected %u", k, got[k], want[k]);
}

/* A slow ramp in each colour, which JPEG keeps well. */
static void fill_ramp(uint8_t rgb[H * W * 3])
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++)
                rgb[(y * W + x) * 3 + c] = (uint8_t)(60 + 8 * x + 5 * y * (c + 1));
}

static void swap_ends(const uint8_t *rgb, uint8_t *bgr, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            bgr[3 * i + c] = rgb[3 * i + 2 - c];
}

static void to_grey(const uint8_t *rgb, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] =
            (uint8_t)(0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2] + 0.5);
}

static void test_jpeg_in_three_colours(void **state)
{
    struct stage *s = *state;
    uint8_t rgb[H * W * 3], bgr[H * W * 3], y[H * W];
    fill_ramp(rgb);
    swap_ends(rgb, bgr, H * W);
    to_grey(rgb, y, H * W);
    picture_put_jpeg(&s->folder, "a.png", rgb, H, W, 3, 100); /* names do not matter */
    struct raw raw = decode_file(s, "a.png", PACELINE__DATA__COLOR__rgb);
    expect_near(&raw, rgb, 3);
    raw = decode_file(s, "a.png", PACELINE__DATA__COLOR__bgr);
    expect_near(&raw, bgr, 3);
    raw = decode_file(s, "a.png", PACELINE__DATA__COLOR__gray);
    expect_near(&raw, y, 2);
}

static void test_grey_jpeg(void **state)
{
    struct stage *s = *state;
    uint8_t y[H * W], rgb[H * W * 3];
    for (int k = 0; k < H * W; k++)
        y[k] = rgb[3 * k] = rgb[3 * k + 1] = rgb[3 * k + 2] = (uint8_t)(40 + 2 * k);
    picture_put_jpeg(&s->folder, "g", y, H, W, 1, 100);
    struct raw raw = decode_file(s, "g", PACELINE__DATA__COLOR__gray);
    expect_near(&raw, y, 2);
    raw = decode_file(s, "g", PACELINE__DATA__COLOR__rgb);
    expect_near(&raw, rgb, 2);
}

/* Adobe's inks are written as the light they leave: R = C K / 255. */
static void test_jpeg_of_inks(void **state)
{
    struct stage *s = *state;
    uint8_t inks[H * W * 4], rgb[H * W * 3];
    for (int k = 0; k < H * W; k++) {
        const uint8_t p[] = {200, 100, 50, 128};
        memcpy(inks + 4 * k, p, 4);
        const uint8_t want[] = {100, 50, 25}; /* 200 * 128 / 255 = 100.4, 50.2, 25.1 */
        memcpy(rgb + 3 * k, want, 3);
    }
    picture_put_jpeg(&s->folder, "k", inks, H, W, 4, 100);
    struct raw raw = decode_file(s, "k", PACELINE__DATA__COLOR__rgb);
    expect_near(&raw, rgb, 2);
    raw = decode_file(s, "k", PACELINE__DATA__COLOR__gray);
    uint8_t y[H * W];
    to_grey(rgb, y, H * W);
    expect_near(&raw, y, 2);
}

static void test_png_of_eight_bits(void **state)
{
    struct stage *s = *state;
    uint8_t rgb[H * W * 3], bgr[H * W * 3], rgba[H * W * 4], y[H * W];
    fill_ramp(rgb);
    swap_ends(rgb, bgr, H * W);
    to_grey(rgb, y, H * W);
    for (int k = 0; k < H * W; k++) {
        memcpy(rgba + 4 * k, rgb + 3 * k, 3);
        rgba[4 * k + 3] = (uint8_t)k; /* dropped, not blended */
    }
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        picture_put_png(&s->folder, "p", rgb, H, W, PNG_COLOR_TYPE_RGB, 8, 3 * W, interlaced);
        struct raw raw = decode_file(s, "p", PACELINE__DATA__COLOR__rgb);
        expect_near(&raw, rgb, 0);
        raw = decode_file(s, "p", PACELINE__DATA__COLOR__bgr);
        expect_near(&raw, bgr, 0);
        raw = decode_file(s, "p", PACELINE__DATA__COLOR__gray);
        expect_near(&raw, y, 0);
        picture_put_png(&s->folder, "p", rgba, H, W, PNG_COLOR_TYPE_RGB_ALPHA, 8, 4 * W,
                        interlaced);
        raw = decode_file(s, "p", PACELINE__DATA__COLOR__rgb);
        expect_near(&raw, rgb, 0);
        picture_put_png(&s->folder, "p", y, H, W, PNG_COLOR_TYPE_GRAY, 8, W, interlaced);
        raw = decode_file(s, "p", PACELINE__DATA__COLOR__gray);
        expect_near(&raw, y, 0);
    }
}

static void test_png_of_other_depths(void **state)
{
    struct stage *s = *state;
    const uint8_t wide[] = {12, 255, 200, 3}; /* 12 * 256 + 255, 200 * 256 + 3: the upper bytes */
    picture_put_png(&s->folder, "w", wide, 1, 2, PNG_COLOR_TYPE_GRAY, 16, 4, false);
    struct raw raw = decode_file(s, "w", PACELINE__DATA__COLOR__gray);
    expect_near(&raw, (const uint8_t[]){12, 200}, 0);
    const uint8_t bits[] = {0xa0}; /* 1 0 1 */
    picture_put_png(&s->folder, "b", bits, 1, 3, PNG_COLOR_TYPE_GRAY, 1, 1, false);
    raw = decode_file(s, "b", PACELINE__DATA__COLOR__rgb);
    expect_near(&raw, (const uint8_t[]){255, 255, 255, 0, 0, 0, 255, 255, 255}, 0);
    const uint8_t indices[] = {0x1b}; /* 0 1 2 3, two bits each */
    picture_put_png(&s->folder, "i", indices, 1, 4, PNG_COLOR_TYPE_PALETTE, 2, 1, false);
    raw = decode_file(s, "i", PACELINE__DATA__COLOR__bgr);
    expect_near(&raw, (const uint8_t[]){0, 0, 255, 0, 200, 0, 30, 20, 10, 3, 2, 1}, 0);
    raw = decode_file(s, "i", PACELINE__DATA__COLOR__gray);
    expect_near(&raw, (const uint8_t[]){76, 117, 18, 2}, 0); /* 76.2, 117.4, 18.2, 1.8 */
}

/* Refused when opened or when decoded, with a message, and nothing worse. */
static void expect_refusal(struct stage *s, const uint8_t *bytes, size_t len, const char *why)
{
    struct picture picture;
    struct raw raw;
    struct err err = {0};
    folder_put(&s->folder, "x", bytes, len);
    int rc = probe_file(s, "x", &picture, &err);
    if (rc == OK)
        rc = picture_decode(bytes, len, PACELINE__DATA__COLOR__rgb, &s->scratch, &raw, &err);
    assert_int_equal(rc, ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static void test_what_is_no_picture(void **state)
{
    struct stage *s = *state;
    expect_refusal(s, (const uint8_t *)"", 0, "empty");
    expect_refusal(s, (const uint8_t *)"GIF89a", 6,
                   "neither JPEG nor PNG: begins with 47 49 46 38");
    expect_refusal(s, (const uint8_t *)"\xff\xd8", 2, "neither");
    expect_refusal(s, (const uint8_t *)"\xff\xd8\xff", 3,
                   "JPEG: broken off before its picture begins");
    expect_refusal(s, (const uint8_t *)"\x89PNG\r\n\x1a\n", 8, "PNG: 8 bytes, broken off within");
}

/* A truncated picture is refused: missing pixels are not invented. */
static void test_every_truncation(void **state)
{
    struct stage *s = *state;
    uint8_t rgb[H * W * 3];
    static uint8_t whole[FOLDER_BYTES_MAX];
    fill_ramp(rgb);
    picture_put_jpeg(&s->folder, "j", rgb, H, W, 3, 90);
    size_t n = folder_get(&s->folder, "j", whole);
    for (size_t len = 0; len < n - 2;
         len++) /* without its end marker alone, all pixels are there */
        expect_refusal(s, whole, len, "");
    picture_put_png(&s->folder, "p", rgb, H, W, PNG_COLOR_TYPE_RGB, 8, 3 * W, false);
    n = folder_get(&s->folder, "p", whole);
    for (size_t len = 0; len < n - 16; len++)
        expect_refusal(s, whole, len, "");
}

/* Any byte another: a picture or an error, and no more memory than its header asks for. */
static void test_every_byte_changed(void **state)
{
    struct stage *s = *state;
    uint8_t rgb[H * W * 3];
    static uint8_t whole[FOLDER_BYTES_MAX];
    fill_ramp(rgb);
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0)
            picture_put_jpeg(&s->folder, "j", rgb, H, W, 3, 90);
        else
            picture_put_png(&s->folder, "j", rgb, H, W, PNG_COLOR_TYPE_RGB, 8, 3 * W, false);
        size_t n = folder_get(&s->folder, "j", whole);
        for (size_t k = 0; k < 8 * n; k++) {
            struct raw raw;
            struct err err;
            whole[k / 8] ^= (uint8_t)(1u << k % 8);
            int rc = picture_decode(whole, n, PACELINE__DATA__COLOR__rgb, &s->scratch, &raw, &err);
            whole[k / 8] ^= (uint8_t)(1u << k % 8);
            assert_true(rc == OK || rc == ERR_INPUT);
        }
    }
}

/* A header that promises more than the limit is refused before memory is taken. */
static void test_bombs(void **state)
{
    struct stage *s = *state;
    uint8_t rgb[H * W * 3];
    static uint8_t whole[FOLDER_BYTES_MAX];
    fill_ramp(rgb);
    picture_put_png(&s->folder, "p", rgb, H, W, PNG_COLOR_TYPE_RGB, 8, 3 * W, false);
    size_t n = folder_get(&s->folder, "p", whole);
    memcpy(whole + 16, "\x00\x00\x40\x00\x00\x00\x40\x00", 8); /* 16384 x 16384 */
    expect_refusal(s, whole, n, "PNG of 16384 x 16384 pixels");
    memcpy(whole + 16, "\x00\x00\x40\x01\x00\x00\x00\x01", 8);
    expect_refusal(s, whole, n, "PNG of 1 x 16385 pixels");
    picture_put_jpeg(&s->folder, "j", rgb, H, W, 3, 90);
    n = folder_get(&s->folder, "j", whole);
    size_t at = 2;
    while (whole[at + 1] != 0xc0)
        at += 2 + (size_t)(whole[at + 2] << 8 | whole[at + 3]);
    memcpy(whole + at + 5, "\xff\x00\xff\x00", 4);
    expect_refusal(s, whole, n, "JPEG of 65280 x 65280 pixels");
    assert_true(s->scratch.piece[SCRATCH_PIXELS].bytes < 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_jpeg_in_three_colours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grey_jpeg, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jpeg_of_inks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_png_of_eight_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_png_of_other_depths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_picture, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_truncation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_byte_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bombs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
