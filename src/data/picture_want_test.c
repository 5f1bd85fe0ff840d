/* A JPEG of which a part is wanted, or which is shrunk: the part has the bits of the whole, which
 * are those of libjpeg-turbo; and what is broken is broken whatever is wanted. */
#include "data/picture.h"

#include "pictures.h"

enum { H = 101, W = 125, BYTES = H * W * 4, DRAWS = 100 };

struct stage {
    struct folder folder;
    struct scratch scratch, whole;
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
    scratch_release(&s->whole);
    free(s);
    return 0;
}

/* The same numbers each time. */
static size_t draw_below(uint32_t *at, size_t n)
{
    *at = *at * 1664525 + 1013904223;
    return (size_t)(((uint64_t)(*at >> 8) * n) >> 24);
}

/* Edges and colours that change from pixel to pixel. */
static void put_picture(struct stage *s, unsigned h, unsigned w, int C, struct jpeg_form form)
{
    static uint8_t pixels[BYTES];
    uint32_t at = 7;
    for (size_t k = 0; k < (size_t)h * w * (size_t)C; k++)
        pixels[k] = (uint8_t)((k / 40 % 2 ? 200 : 30) + draw_below(&at, 50));
    picture_put_jpeg_as(&s->folder, "j", pixels, h, w, C, 90, form);
    s->len = folder_get(&s->folder, "j", s->bytes);
}

static struct raw decode_picture(struct stage *s, struct scratch *scratch,
                                 Paceline__Data__Color color)
{
    struct raw raw;
    struct err err;
    if (picture_decode(s->bytes, s->len, color, scratch, &raw, &err) != OK)
        fail_msg("%s", err.text);
    return raw;
}

static void expect_same_part(const struct raw *whole, const struct raw *part,
                             const struct raw_want *want)
{
    size_t w = shrunk_side(W, want->shrink), C = whole->C;
    assert_true(part->H == H && part->W == W && part->C == C && part->shrink == want->shrink);
    for (size_t y = want->top; y < want->bottom; y++) {
        size_t from = (y * w + want->left) * C, n = (want->right - want->left) * C;
        if (memcmp((const uint8_t *)whole->at + from, (const uint8_t *)part->at + from, n) != 0)
            fail_msg("1/%u, row %zu of [%zu, %zu), columns [%zu, %zu): other pixels",
                     1u << want->shrink, y, want->top, want->bottom, want->left, want->right);
    }
}

static void expect_parts(struct stage *s, Paceline__Data__Color color)
{
    uint32_t at = 1;
    for (unsigned shrink = 0; shrink <= SHRINK_MAX; shrink++) {
        size_t h = shrunk_side(H, shrink), w = shrunk_side(W, shrink);
        const struct raw_want all = {H, W, shrink, 0, SIDE_MAX, 0, SIDE_MAX};
        s->whole.want = &all;
        const struct raw whole = decode_picture(s, &s->whole, color);
        for (int i = 0; i < DRAWS; i++) {
            struct raw_want want = {.H = H, .W = W, .shrink = shrink};
            want.top = draw_below(&at, h);
            want.bottom = want.top + draw_below(&at, h - want.top + 1);
            want.left = draw_below(&at, w);
            want.right = want.left + draw_below(&at, w - want.left + 1);
            if (i == 0)
                want.top = want.bottom = want.left = want.right = 0; /* in the padding */
            s->scratch.want = &want;
            const struct raw part = decode_picture(s, &s->scratch, color);
            expect_same_part(&whole, &part, &want);
            memset(s->scratch.piece[SCRATCH_PIXELS].at, i, s->scratch.piece[SCRATCH_PIXELS].bytes);
        }
    }
}

static void test_parts_are_of_the_whole(void **state)
{
    struct stage *s = *state;
    static const struct jpeg_form forms[] = {
        {1, 1, false, 0, false}, {2, 1, false, 0, false}, {2, 2, false, 0, false},
        {1, 2, false, 0, false}, {4, 1, false, 0, false}, {2, 2, true, 0, false},
        {1, 1, true, 0, false},  {2, 2, false, 1, false}, {4, 2, false, 2, false},
        {2, 1, true, 3, false},  {1, 1, false, 0, true},  {2, 1, false, 0, true},
        {1, 2, true, 0, true},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        put_picture(s, H, W, 3, forms[i]);
        expect_parts(s, i % 2 ? PACELINE__DATA__COLOR__bgr : PACELINE__DATA__COLOR__rgb);
        expect_parts(s, PACELINE__DATA__COLOR__gray);
    }
    put_picture(s, H, W, 1, forms[0]);
    expect_parts(s, PACELINE__DATA__COLOR__gray);
    expect_parts(s, PACELINE__DATA__COLOR__rgb);
    put_picture(s, H, W, 4, forms[0]);
    expect_parts(s, PACELINE__DATA__COLOR__rgb);
    expect_parts(s, PACELINE__DATA__COLOR__gray);
}

/* Half, a quarter, an eighth: libjpeg-turbo's own, by its simplest calls. */
static void test_shrunk_pictures_are_those_of_the_library(void **state)
{
    struct stage *s = *state;
    static uint8_t pixels[BYTES];
    put_picture(s, H, W, 3, (struct jpeg_form){.across = 2, .down = 2});
    for (unsigned shrink = 0; shrink <= SHRINK_MAX; shrink++) {
        const struct raw_want all = {H, W, shrink, 0, SIDE_MAX, 0, SIDE_MAX};
        struct jpeg_decompress_struct in;
        struct jpeg_error_mgr errors;
        in.err = jpeg_std_error(&errors);
        jpeg_create_decompress(&in);
        jpeg_mem_src(&in, s->bytes, s->len);
        jpeg_read_header(&in, TRUE);
        in.scale_denom = 1u << shrink;
        jpeg_start_decompress(&in);
        size_t row = (size_t)in.output_width * 3, n = row * in.output_height;
        while (in.output_scanline < in.output_height) {
            JSAMPROW to = pixels + in.output_scanline * row;
            jpeg_read_scanlines(&in, &to, 1);
        }
        jpeg_finish_decompress(&in);
        jpeg_destroy_decompress(&in);
        s->scratch.want = &all;
        const struct raw raw = decode_picture(s, &s->scratch, PACELINE__DATA__COLOR__rgb);
        assert_int_equal(n, shrunk_side(H, shrink) * shrunk_side(W, shrink) * 3);
        assert_memory_equal(raw.at, pixels, n);
    }
}

/* A decoder does not follow a want that was chosen for a picture of another size. */
static void test_a_want_of_another_size(void **state)
{
    struct stage *s = *state;
    const struct raw_want other = {H + 1, W, 2, 3, 4, 3, 4};
    put_picture(s, H, W, 3, (struct jpeg_form){.across = 2, .down = 2});
    const struct raw whole = decode_picture(s, &s->whole, PACELINE__DATA__COLOR__rgb);
    s->scratch.want = &other;
    const struct raw raw = decode_picture(s, &s->scratch, PACELINE__DATA__COLOR__rgb);
    expect_same_part(&whole, &raw, &(struct raw_want){H, W, 0, 0, H, 0, W});
}

/* A record is bad or not, whatever of it is wanted first: also where the damage is behind that. */
static void test_damage_does_not_depend_on_what_is_wanted(void **state)
{
    struct stage *s = *state;
    enum { SIDE = 40 };
    static const struct jpeg_form forms[] = {{1, 1, false, 0, false},
                                             {2, 2, false, 0, false},
                                             {2, 2, true, 0, false},
                                             {2, 2, false, 1, false}};
    static const struct raw_want wants[] = {
        {SIDE, SIDE, 0, 1, 3, 17, 19}, {SIDE, SIDE, 0, 33, 34, 2, 5}, {SIDE, SIDE, 1, 8, 10, 8, 9}};
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        put_picture(s, SIDE, SIDE, 3, forms[form]);
        size_t whole = s->len;
        for (size_t k = 0; k < 2 * whole; k++) {
            struct raw raw;
            struct err err, why;
            const size_t n = k < whole ? k : whole;
            if (k >= whole)
                s->bytes[k - whole] ^= 0x24;
            s->scratch.want = NULL;
            int rc =
                picture_decode(s->bytes, n, PACELINE__DATA__COLOR__rgb, &s->scratch, &raw, &err);
            for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
                s->scratch.want = &wants[i];
                int part = picture_decode(s->bytes, n, PACELINE__DATA__COLOR__rgb, &s->scratch,
                                          &raw, &why);
                if (part != rc || (rc != OK && strcmp(err.text, why.text) != 0))
                    fail_msg("form %zu, %s %zu, want %zu: %s, and of the whole %s", form,
                             k < whole ? "cut at" : "byte", k % whole, i,
                             part == OK ? "fine" : why.text, rc == OK ? "fine" : err.text);
            }
            if (k >= whole)
                s->bytes[k - whole] ^= 0x24;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parts_are_of_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shrunk_pictures_are_those_of_the_library, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_want_of_another_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_does_not_depend_on_what_is_wanted, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
