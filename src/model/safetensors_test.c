#include "model/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

static struct shape shape_of(size_t n, size_t a, size_t b, size_t c)
{
    return (struct shape){.n = n, .dim = {a, b, c}};
}

/* Parse a copy that ends exactly where its memory does, so that a read past it is seen. */
static int parse_bytes(const uint8_t *bytes, size_t len, bool demand, struct safetensors *st,
                       struct err *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    int status = safetensors_parse("x.safetensors", copy, len, demand, st, err);
    free(copy);
    return status;
}

static struct buf from_hex(const char *hex)
{
    struct buf out = {0};
    for (; *hex; hex += 2) {
        char pair[] = {hex[0], hex[1], '\0'};
        buf_put_u8(&out, (uint8_t)strtoul(pair, NULL, 16));
    }
    assert_false(out.failed);
    return out;
}

/* A file with this header and `data_len` bytes of data, all 0x11. */
static struct buf from_header(const char *header, size_t data_len)
{
    struct buf out = {0};
    buf_put_u64(&out, strlen(header));
    buf_put(&out, header, strlen(header));
    for (size_t i = 0; i < data_len; i++)
        buf_put_u8(&out, 0x11);
    assert_false(out.failed);
    return out;
}

static const float CONV[] = {0.5f, -1.0f, 3.25f, 1e-3f, 0.0f, -0.0f};
static const float BIAS[] = {7.0f, 8.0f};

/* A small file of ours: three tensors and a text. */
static struct buf small_file(void)
{
    struct safetensors_writer w;
    struct shape conv = shape_of(3, 2, 1, 3), bias = shape_of(1, 2, 0, 0),
                 none = shape_of(1, 0, 0, 0);
    safetensors_begin(&w);
    safetensors_meta(&w, "step", "1200");
    safetensors_tensor(&w, "joint/conv1.0", &conv, CONV);
    safetensors_tensor(&w, "none", &none, NULL);
    safetensors_tensor(&w, "joint/conv1.1", &bias, BIAS);
    struct buf image = {0};
    struct err err = {0};
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    return image;
}

/* ---- writing and reading back ---- */

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    struct buf image = small_file();
    struct safetensors st;
    struct err err = {0};
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), OK);
    size_t header = (size_t)bytes_le64(image.data);
    assert_int_equal((8 + header) % 64, 0);
    assert_int_equal(image.len, 8 + header + 8 * sizeof(float));
    buf_release(&image);

    assert_int_equal(st.n, 3);
    assert_string_equal(st.item[0].name, "joint/conv1.0");
    assert_string_equal(st.item[1].name, "none");
    assert_string_equal(st.item[2].name, "joint/conv1.1");
    assert_int_equal(st.item[1].count, 0);
    assert_non_null(st.item[1].data);
    assert_int_equal(st.item[2].offset, 24);

    struct shape shape, want = shape_of(3, 2, 1, 3);
    const float *conv = safetensors_find(&st, "joint/conv1.0", &shape);
    assert_non_null(conv);
    assert_true(shape_equal(&shape, &want));
    assert_memory_equal(conv, CONV, sizeof CONV); /* bits: -0 too */
    assert_memory_equal(safetensors_find(&st, "joint/conv1.1", NULL), BIAS, sizeof BIAS);
    assert_null(safetensors_find(&st, "joint/conv1.2", &shape));
    assert_true(shape_equal(&shape, &want));
    assert_string_equal(safetensors_meta_get(&st, "step"), "1200");
    assert_int_equal(strlen(safetensors_meta_get(&st, "xxh3.none")), 16);
    assert_null(safetensors_meta_get(&st, "STEP"));
    safetensors_release(&st);
}

/* Digits by Python's xxhash.xxh3_64 over struct.pack("<2f", 1, -2.5) and over the header. */
static void test_the_bytes_of_a_tiny_file(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"check\":\"fcfa9120dbe810cb\",\"step\":\"7\","
        "\"xxh3.w\":\"3f8e59f0dae191de\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    struct buf want = {0};
    buf_put_u64(&want, 184);
    buf_printf(&want, "%-184s", header);
    buf_put(&want, "\x00\x00\x80\x3f\x00\x00\x20\xc0", 8);

    struct safetensors_writer w;
    const struct shape shape = shape_of(2, 2, 1, 0);
    const float data[] = {1.0f, -2.5f};
    safetensors_begin(&w);
    safetensors_tensor(&w, "w", &shape, data);
    safetensors_meta(&w, "step", "7");
    for (int again = 0; again < 2; again++) {
        struct buf image = {0};
        struct err err = {0};
        assert_int_equal(safetensors_image(&w, &image, &err), OK);
        assert_int_equal(image.len, want.len);
        assert_memory_equal(image.data, want.data, want.len);
        buf_release(&image);
    }
    safetensors_end(&w);
    buf_release(&want);
}

static void test_a_file_without_tensors(void **state)
{
    (void)state;
    struct safetensors_writer w;
    struct buf image = {0};
    struct err err = {0};
    struct safetensors st;
    safetensors_begin(&w);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    assert_int_equal(image.len, 64);
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), OK);
    assert_int_equal(st.n, 0);
    assert_null(safetensors_find(&st, "w", NULL));
    safetensors_release(&st);
    buf_release(&image);
}

static void test_names_and_texts_may_hold_anything(void **state)
{
    (void)state;
    static const char odd[] = "a\"b\\c\x01\n\t/caf\xc3\xa9 \xf0\x9f\x98\x80 \x7f";
    struct safetensors_writer w;
    const struct shape scalar = {.n = 0};
    struct buf image = {0};
    struct err err = {0};
    struct safetensors st;
    safetensors_begin(&w);
    safetensors_meta(&w, odd, odd);
    safetensors_meta(&w, "", "");
    safetensors_tensor(&w, odd, &scalar, BIAS);
    safetensors_tensor(&w, "", &scalar, BIAS + 1);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), OK);
    assert_string_equal(safetensors_meta_get(&st, odd), odd);
    assert_string_equal(safetensors_meta_get(&st, ""), "");
    struct shape shape = shape_of(1, 1, 0, 0);
    assert_memory_equal(safetensors_find(&st, odd, &shape), BIAS, 4);
    assert_int_equal(shape.n, 0);
    assert_memory_equal(safetensors_find(&st, "", NULL), BIAS + 1, 4);
    safetensors_release(&st);
    buf_release(&image);
}

/* Add the two tensors and the two texts; the message of the refusal. */
static void assert_not_written(const char *name_a, const char *name_b, const char *key_a,
                               const char *key_b, size_t dim, const char *why)
{
    struct safetensors_writer w;
    const struct shape shape = shape_of(2, dim, 0, 0);
    struct buf image = {0};
    struct err err = {0};
    safetensors_begin(&w);
    safetensors_tensor(&w, name_a, &shape, NULL);
    safetensors_tensor(&w, name_b, &shape, NULL);
    safetensors_meta(&w, key_a, "text");
    safetensors_meta(&w, key_b, "text");
    assert_int_equal(safetensors_image(&w, &image, &err), ERR_INPUT);
    assert_string_equal(err.text, why);
    assert_null(image.data);
    safetensors_end(&w);
}

static void test_what_the_format_cannot_hold_is_not_written(void **state)
{
    (void)state;
    assert_not_written("a", "a", "k", "l", 1, "tensor a: given twice");
    assert_not_written("a", "b", "k", "k", 1, "metadata k: given twice");
    assert_not_written("a", "__metadata__", "k", "l", 1,
                       "tensor __metadata__: the format keeps this name");
    assert_not_written("a", "\xc3(", "k", "l", 1, "tensor \xc3(: its name is not UTF-8");
    assert_not_written("a", "b", "k", "\xed\xa0\x80", 1, "metadata \xed\xa0\x80: not UTF-8");
    assert_not_written("a", "b", "k", "l", 0x80000000,
                       "tensor a: dimension 0 is 2147483648, above 2147483647");
}

/* ---- files of others ---- */

/* Made by Python's json.dumps and struct.pack: spaces after separators, tensors not in the order
 * of their data, escapes, a scalar, an empty tensor. */
static void test_a_file_of_another_writer_is_read(void **state)
{
    (void)state;
    struct buf file = from_hex(
        "11010000000000007b225f5f6d657461646174615f5f223a207b22666f726d6174223a20227074222c20226e"
        "6f7465223a20226361665c7530306539205c22715c22205c6e227d2c2022636f6e762f62223a207b22646174"
        "615f6f666673657473223a205b31362c2032305d2c20227368617065223a205b5d2c20226474797065223a20"
        "22463332227d2c2022636f6e762f77223a207b226474797065223a2022463332222c20227368617065223a20"
        "5b322c20312c20325d2c2022646174615f6f666673657473223a205b302c2031365d7d2c20226e6f6e65223a"
        "207b226474797065223a2022463332222c20227368617065223a205b302c20335d2c2022646174615f6f6666"
        "73657473223a205b31362c2031365d7d7d0000003f000080bf000050406f12833a0000e040");
    struct safetensors st;
    struct err err = {0};
    assert_int_equal(parse_bytes(file.data, file.len, false, &st, &err), OK);
    assert_int_equal(st.n, 3);
    assert_string_equal(st.item[0].name, "conv/w");
    assert_string_equal(st.item[1].name, "none");
    assert_string_equal(st.item[2].name, "conv/b");
    struct shape shape, want = shape_of(3, 2, 1, 2);
    assert_memory_equal(safetensors_find(&st, "conv/w", &shape), CONV, 16);
    assert_true(shape_equal(&shape, &want));
    assert_true(*safetensors_find(&st, "conv/b", &shape) == 7.0f);
    assert_int_equal(shape.n, 0);
    assert_string_equal(safetensors_meta_get(&st, "note"), "caf\xc3\xa9 \"q\" \n");
    safetensors_release(&st);

    assert_int_equal(parse_bytes(file.data, file.len, true, &st, &err), ERR_INPUT);
    assert_string_equal(err.text, "x.safetensors: the header carries no checksum");
    buf_release(&file);
}

/* Made by safetensors.numpy.save of the safetensors package, 0.8.0. */
static void test_a_file_of_the_reference_writer_is_read(void **state)
{
    (void)state;
    struct buf file = from_hex(
        "a0000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a226e70227d2c2266632f"
        "62696173223a7b226474797065223a22463332222c227368617065223a5b335d2c22646174615f6f66667365"
        "7473223a5b302c31325d7d2c2266632f776569676874223a7b226474797065223a22463332222c2273686170"
        "65223a5b332c325d2c22646174615f6f666673657473223a5b31322c33365d7d7d2020200000803f00000040"
        "00004040000000000000803e0000003f0000403f0000803f0000a03f");
    struct safetensors st;
    struct err err = {0};
    assert_int_equal(parse_bytes(file.data, file.len, false, &st, &err), OK);
    struct shape shape, want = shape_of(2, 3, 2, 0);
    const float *weight = safetensors_find(&st, "fc/weight", &shape);
    assert_true(shape_equal(&shape, &want));
    for (int i = 0; i < 6; i++)
        assert_true(weight[i] == (float)i / 4);
    const float *bias = safetensors_find(&st, "fc/bias", &shape);
    assert_int_equal(shape.dim[0], 3);
    for (int i = 0; i < 3; i++)
        assert_true(bias[i] == (float)i + 1);
    assert_string_equal(safetensors_meta_get(&st, "format"), "np");
    safetensors_release(&st);
    buf_release(&file);
}

/* ---- damage ---- */

static void test_no_byte_can_change_unnoticed(void **state)
{
    (void)state;
    struct buf image = small_file();
    struct err err = {0};
    struct safetensors st;
    size_t refused = 0;
    for (size_t i = 0; i < image.len; i++)
        for (unsigned flip = 1; flip < 256; flip++) {
            image.data[i] ^= (uint8_t)flip;
            err.text[0] = '\0';
            refused += parse_bytes(image.data, image.len, true, &st, &err) == ERR_INPUT;
            assert_memory_equal(err.text, "x.safetensors: ", 15);
            image.data[i] ^= (uint8_t)flip;
        }
    assert_int_equal(refused, 255 * image.len);
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), OK);
    safetensors_release(&st);
    buf_release(&image);
}

static void test_no_byte_can_be_missing_or_too_many(void **state)
{
    (void)state;
    struct buf image = small_file();
    struct err err = {0};
    struct safetensors st;
    for (int demand = 0; demand < 2; demand++) {
        size_t refused = 0;
        for (size_t len = 0; len < image.len; len++)
            refused += parse_bytes(image.data, len, demand, &st, &err) == ERR_INPUT;
        assert_int_equal(refused, image.len);
    }
    buf_put_u8(&image, 0);
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), ERR_INPUT);
    assert_string_equal(err.text, "x.safetensors: 1 bytes follow the last tensor");
    buf_release(&image);
}

static void test_damage_is_reported_with_its_position(void **state)
{
    (void)state;
    struct buf image = small_file();
    struct err err = {0};
    struct safetensors st;
    image.data[image.len - 1] ^= 1;
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), ERR_INPUT);
    assert_string_equal(err.text, "x.safetensors: tensor joint/conv1.1: damaged: its bytes do not "
                                  "match their checksum");
    /* Without a demand for checksums their absence is not reported. */
    assert_int_equal(parse_bytes(image.data, image.len, false, &st, &err), OK);
    safetensors_release(&st);
    image.data[image.len - 1] ^= 1;
    image.data[bytes_le64(image.data)] = '\n'; /* a space of the padding */
    assert_int_equal(parse_bytes(image.data, image.len, true, &st, &err), ERR_INPUT);
    assert_string_equal(err.text, "x.safetensors: damaged: the header does not match its checksum");
    buf_release(&image);
}

/* ---- hostile files ---- */

#define F32(shape, offsets) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define HALF                "{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}"
/* Where exactly is for cJSON to say. */
#define NOT_JSON "the header is not JSON near byte "
#define TENS     "1111111111,1111111111,"

static const struct hostile {
    const char *header;
    size_t data_len;
    int status;
    const char *why;
} HOSTILE[] = {
    {"{\"a\":" HALF "}", 4, ERR_UNSUPPORTED, "tensor a: dtype F16, only F32 is read"},
    {"{\"a\":" F32("[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, ERR_UNSUPPORTED,
     "tensor a: more than 8 dimensions"},
    /* shapes */
    {"{\"a\":" F32("[2]", "[0,4]") "}", 4, ERR_INPUT, "tensor a: 4 bytes for 2 floats"},
    {"{\"a\":" F32("[1]", "[0,3]") "}", 3, ERR_INPUT, "tensor a: 3 bytes for 1 floats"},
    {"{\"a\":" F32("[-1]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: dimension 0 is not a whole number up to 2147483647"},
    {"{\"a\":" F32("[1,1.5]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: dimension 1 is not a whole number up to 2147483647"},
    {"{\"a\":" F32("[1,2147483648]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: dimension 1 is not a whole number up to 2147483647"},
    {"{\"a\":" F32("[1e999]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: dimension 0 is not a whole number up to 2147483647"},
    {"{\"a\":" F32("[\"1\"]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: dimension 0 is not a whole number up to 2147483647"},
    {"{\"a\":" F32("[1.0]", "[0,4]") "}", 4, ERR_INPUT,
     "header byte 30: a number not in plain digits"},
    {"{\"a\":" F32("[1e0]", "[0,4]") "}", 4, ERR_INPUT,
     "header byte 30: a number not in plain digits"},
    {"{\"a\":" F32("[01]", "[0,4]") "}", 4, ERR_INPUT,
     "header byte 29: a number not in plain digits"},
    {"{\"a\":" F32("[1]", "[-0,4]") "}", 4, ERR_INPUT,
     "header byte 48: a number not in plain digits"},
    {"{\"a\":" F32("[" TENS TENS TENS "4]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: its shape overflows"},
    /* 2^30 x 2^30 x 4 floats would be no bytes at all, counted in 64 bits. */
    {"{\"a\":" F32("[1073741824,1073741824,4]", "[0,0]") "}", 0, ERR_INPUT,
     "tensor a: its shape overflows"},
    {"{\"a\":" F32("{}", "[0,4]") "}", 4, ERR_INPUT, "tensor a: shape is not an array"},
    /* offsets */
    {"{\"a\":" F32("[1]", "[0,8]") "}", 4, ERR_INPUT,
     "tensor a: data_offsets 0 to 8 in 4 bytes of data"},
    {"{\"a\":" F32("[1]", "[4,0]") "}", 4, ERR_INPUT,
     "tensor a: data_offsets 4 to 0 in 4 bytes of data"},
    {"{\"a\":" F32("[1]", "[-4,0]") "}", 4, ERR_INPUT,
     "tensor a: data_offsets are not two whole numbers"},
    {"{\"a\":" F32("[1]", "[0,4,8]") "}", 4, ERR_INPUT,
     "tensor a: data_offsets are not two whole numbers"},
    {"{\"a\":" F32("[1]", "[18446744073709551612,18446744073709551616]") "}", 4, ERR_INPUT,
     "tensor a: data_offsets are not two whole numbers"},
    {"{\"a\":" F32("[2]", "[0,8]") ",\"b\":" F32("[2]", "[4,12]") "}", 12, ERR_INPUT,
     "tensor b: begins at byte 4 of the data, within the tensor that ends at 8"},
    {"{\"a\":" F32("[1]", "[0,4]") ",\"b\":" F32("[1]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor b: begins at byte 0 of the data, within the tensor that ends at 4"},
    {"{\"b\":" F32("[1]", "[8,12]") ",\"a\":" F32("[1]", "[0,4]") "}", 12, ERR_INPUT,
     "tensor b: begins at byte 8 of the data, after a gap from 4"},
    {"{\"a\":" F32("[0]", "[2,2]") ",\"b\":" F32("[1]", "[0,4]") "}", 4, ERR_INPUT,
     "tensor a: begins at byte 2 of the data, within the tensor that ends at 4"},
    {"{\"a\":" F32("[1]", "[4,8]") "}", 8, ERR_INPUT,
     "tensor a: begins at byte 4 of the data, after a gap from 0"},
    {"{\"a\":" F32("[1]", "[0,4]") "}", 9, ERR_INPUT, "5 bytes follow the last tensor"},
    {"{}", 1, ERR_INPUT, "1 bytes follow the last tensor"},
    /* entries */
    {"{\"a\":" F32("[1]", "[0,4]") ",\"a\":" F32("[1]", "[4,8]") "}", 8, ERR_INPUT,
     "tensor a: given twice"},
    {"{\"a\":" F32("[1]", "[0,4]") ",\"\\u0061\":" F32("[1]", "[4,8]") "}", 8, ERR_INPUT,
     "tensor a: given twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, ERR_INPUT,
     "tensor a: dtype is given twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, ERR_INPUT,
     "tensor a: x is not in the format"},
    {"{\"a\":{\"DTYPE\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERR_INPUT,
     "tensor a: DTYPE is not in the format"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERR_INPUT, "tensor a: no dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, ERR_INPUT, "tensor a: no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, ERR_INPUT, "tensor a: no data_offsets"},
    {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERR_INPUT,
     "tensor a: dtype is not a text"},
    {"{\"a\":7}", 0, ERR_INPUT, "tensor a: not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, ERR_INPUT, "metadata k: not a text"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, ERR_INPUT, "metadata k: given twice"},
    {"{\"__metadata__\":[]}", 0, ERR_INPUT, "__metadata__ is not an object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, ERR_INPUT, "two of __metadata__"},
    /* JSON */
    {"", 0, ERR_INPUT, "the header does not begin with '{'"},
    {" {}", 0, ERR_INPUT, "the header does not begin with '{'"},
    {"[]", 0, ERR_INPUT, "the header does not begin with '{'"},
    {"{} {}", 0, ERR_INPUT, "header byte 2: something follows the object"},
    {"{}\n", 0, ERR_INPUT, "header byte 2: something follows the object"},
    {"{\"a\":", 0, ERR_INPUT, NOT_JSON},
    {"{\"1\":1,", 0, ERR_INPUT, NOT_JSON},
    {"{\"a", 0, ERR_INPUT, "header byte 3: a string with a control character, or without end"},
    {"{\"a\\", 0, ERR_INPUT, "header byte 4: a zero character in a string"},
    {"{\"a\\u0000b\":1}", 0, ERR_INPUT, "header byte 4: a zero character in a string"},
    {"{\"a\n\":1}", 0, ERR_INPUT,
     "header byte 3: a string with a control character, or without end"},
    {"{\x01}", 0, ERR_INPUT, "header byte 1: a control character"},
    {"{\"a\":[[[1]]]}", 0, ERR_INPUT, "header byte 7: nested deeper than the format is"},
    {"{\"\xc0\xaf\":1}", 0, ERR_INPUT, "the header is not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":1}", 0, ERR_INPUT, "the header is not UTF-8"},
};

static void test_hostile_files_are_refused_with_reasons(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof HOSTILE / sizeof *HOSTILE; i++) {
        const struct hostile *h = &HOSTILE[i];
        struct buf file = from_header(h->header, h->data_len);
        struct safetensors st;
        struct err err = {0};
        char want[ERR_TEXT_MAX];
        snprintf(want, sizeof want, "x.safetensors: %s", h->why);
        int status = parse_bytes(file.data, file.len, false, &st, &err);
        if (strcmp(h->why, NOT_JSON) == 0)
            err.text[strlen(want)] = '\0';
        assert_string_equal(err.text, want);
        assert_int_equal(status, h->status);
        assert_int_equal(err.status, h->status);
        buf_release(&file);
    }
}

static void test_a_wrong_header_length_costs_nothing(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, (16 << 20) + 1, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct buf file = {0};
        struct safetensors st;
        struct err err = {0};
        buf_put_u64(&file, lengths[i]);
        buf_put(&file, "{}", 2);
        assert_int_equal(parse_bytes(file.data, file.len, false, &st, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "a header of "));
        buf_release(&file);
    }
}

static void test_a_text_is_called_no_safetensors_file(void **state)
{
    (void)state;
    static const char text[] = "these are\tno weights";
    struct safetensors st;
    struct err err = {0};
    assert_int_equal(parse_bytes((const uint8_t *)text, strlen(text), false, &st, &err), ERR_INPUT);
    assert_string_equal(err.text,
                        "x.safetensors: is no safetensors file, which begins with its header's "
                        "length and a {; this begins with \"these are?no wei\"; give a "
                        ".safetensors or a .caffemodel");
}

static void test_the_header_has_its_limit(void **state)
{
    (void)state;
    const size_t limit = 16 << 20;
    for (size_t len = limit; len <= limit + 1; len++) {
        struct buf file = {0};
        struct safetensors st;
        struct err err = {0};
        buf_put_u64(&file, len);
        buf_printf(&file, "%-*s", (int)len, "{}");
        assert_false(file.failed);
        int status = parse_bytes(file.data, file.len, false, &st, &err);
        assert_int_equal(status, len == limit ? OK : ERR_INPUT);
        if (status == OK)
            safetensors_release(&st);
        else
            assert_string_equal(err.text,
                                "x.safetensors: a header of 16777217 bytes, above 16777216");
        buf_release(&file);
    }
}

/* Headers that are cheap to send and dear to parse. */
static void test_json_bombs_do_not_go_off(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[", "{\"a\":", "0,", "[],"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct buf header = {0};
        buf_printf(&header, "{\"a\":[");
        while (header.len < (4u << 20))
            buf_put(&header, pieces[i], strlen(pieces[i]));
        buf_put_u8(&header, 0);
        struct buf file = from_header((const char *)header.data, 0);
        struct safetensors st;
        struct err err = {0};
        assert_int_equal(parse_bytes(file.data, file.len, false, &st, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, i < 2 ? "nested deeper" : "too many values"));
        buf_release(&file);
        buf_release(&header);
    }
}

/* ---- storms ---- */

static const uint64_t SEED = 20260607;

/* One to four edits: a byte changed, dropped, doubled, or one of JSON's put in. */
static struct buf mutate_bytes(const struct buf *from, uint64_t round)
{
    static const char spice[] = "{}[]\",:\\-.e0123456789 \n\xff";
    struct buf out = {0};
    buf_put(&out, from->data, from->len);
    assert_false(out.failed);
    uint64_t edits = 1 + rng_below(SEED, round, 0, 4);
    for (uint64_t k = 1; k <= edits; k++) {
        uint64_t draw = rng_u64(SEED, round, 4 * k + 1);
        size_t at = (size_t)rng_below(SEED, round, 4 * k + 2, out.len);
        switch (draw % 4) {
        case 0: out.data[at] ^= (uint8_t)(1u << (draw >> 8) % 8); break;
        case 1: memmove(out.data + at, out.data + at + 1, --out.len - at); break;
        case 2:
            buf_put_u8(&out, 0);
            memmove(out.data + at + 1, out.data + at, out.len - 1 - at);
            break;
        default: out.data[at] = (uint8_t)spice[(draw >> 8) % (sizeof spice - 1)];
        }
    }
    /* Mostly let the length be right, so that edits of the JSON are reached. */
    if (round % 4 != 0 && out.len >= 8 + 32)
        bytes_put_le64(out.data, out.len - 8 - 32);
    return out;
}

static void test_a_storm_of_mutations(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)SEED);
    struct buf image = small_file();
    size_t accepted = 0, refused = 0;
    for (uint64_t round = 0; round < 20000; round++) {
        struct buf file = mutate_bytes(&image, round);
        struct safetensors st;
        struct err err = {0};
        int status = parse_bytes(file.data, file.len, false, &st, &err);
        if (status == OK) {
            size_t bytes = 0;
            for (size_t i = 0; i < st.n; i++) {
                assert_ptr_equal(safetensors_find(&st, st.item[i].name, NULL), st.item[i].data);
                assert_memory_equal(st.item[i].data, file.data + file.len - 32 + bytes,
                                    st.item[i].count * sizeof(float));
                bytes += st.item[i].count * sizeof(float);
            }
            assert_int_equal(bytes, 32);
            safetensors_release(&st);
            accepted++;
        } else {
            assert_memory_equal(err.text, "x.safetensors: ", 15);
            refused++;
        }
        if (parse_bytes(file.data, file.len, true, &st, &err) == OK) {
            assert_int_equal(file.len, image.len); /* edits that undid themselves */
            assert_memory_equal(file.data, image.data, image.len);
            safetensors_release(&st);
        }
        buf_release(&file);
    }
    print_message("%zu accepted, %zu refused\n", accepted, refused);
    assert_true(accepted > 500 && refused > 5000); /* both ways were travelled */
    buf_release(&image);
}

/* ---- a file that is in no memory whole ---- */

enum { LONG = SAFETENSORS_PIECE + 1000, SHORT = 7 };

struct stream {
    float *floats; /* LONG, then SHORT */
    size_t taken, largest;
    struct buf data;
};

static int next_floats(void *user, float *into, size_t n)
{
    struct stream *s = user;
    memcpy(into, s->floats + s->taken, n * sizeof *into);
    s->taken += n;
    s->largest = n > s->largest ? n : s->largest;
    return OK;
}

static int keep_piece(void *user, const void *data, size_t len)
{
    struct stream *s = user;
    buf_put(&s->data, data, len);
    return OK;
}

static void put_tensors(struct safetensors_writer *w, const float *floats)
{
    const struct shape first = {1, {LONG}}, second = {1, {SHORT}}, none = {1, {0}};
    safetensors_begin(w);
    safetensors_meta(w, "step", "1200");
    safetensors_tensor(w, "long", &first, floats);
    safetensors_tensor(w, "none", &none, NULL);
    safetensors_tensor(w, "short", &second, floats ? floats + LONG : NULL);
}

/* Written in pieces it has the bytes that it has written at once. */
static struct buf stream_file(struct stream *s)
{
    struct safetensors_writer w;
    struct err err = {0};
    struct buf before = {0}, head = {0}, file = {0}, image = {0};
    size_t bytes, again;
    s->floats = malloc((LONG + SHORT) * sizeof *s->floats);
    assert_non_null(s->floats);
    for (size_t i = 0; i < LONG + SHORT; i++)
        s->floats[i] = (float)rng_below(3, 1, i, 1000) * 0.01f;
    put_tensors(&w, NULL);
    assert_int_equal(safetensors_head(&w, &before, &bytes, &err), OK);
    assert_int_equal(safetensors_stream(&w, next_floats, keep_piece, s), OK);
    assert_int_equal(safetensors_head(&w, &head, &again, &err), OK);
    assert_int_equal(s->taken, LONG + SHORT);
    assert_int_equal(s->largest, SAFETENSORS_PIECE);
    assert_int_equal(head.len, before.len);
    assert_int_equal(again, bytes);
    buf_put(&file, head.data, head.len);
    buf_put(&file, s->data.data, s->data.len);
    safetensors_end(&w);
    put_tensors(&w, s->floats);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    assert_int_equal(file.len, bytes);
    assert_int_equal(image.len, file.len);
    assert_memory_equal(image.data, file.data, file.len);
    buf_release(&before);
    buf_release(&head);
    buf_release(&image);
    return file;
}

static void expect_range(const struct safetensors_file *f, const char *name, size_t from, size_t n,
                         const float *want)
{
    float *got = malloc(n * sizeof *got);
    struct err err = {0};
    const struct safetensors_item *item = safetensors_item(&f->st, name);
    assert_non_null(item);
    assert_non_null(got);
    assert_int_equal(safetensors_range(f, item, from, n, got, &err), OK);
    assert_memory_equal(got, want, n * sizeof *got);
    free(got);
}

/* An open file gives any range of a tensor; damage anywhere in it is found when it is opened. */
static void test_a_file_is_written_and_read_in_pieces(void **state)
{
    (void)state;
    struct folder folder;
    struct stream s = {0};
    struct buf file = stream_file(&s);
    struct safetensors_file f;
    struct err err = {0};
    char path[256];
    folder_make(&folder);
    folder_file(&folder, "x.safetensors", path);
    folder_put(&folder, "x.safetensors", file.data, file.len);
    assert_int_equal(safetensors_open(path, &f, &err), OK);
    expect_range(&f, "long", 0, LONG, s.floats);
    expect_range(&f, "long", LONG - 3, 3, s.floats + LONG - 3);
    expect_range(&f, "short", 2, 4, s.floats + LONG + 2);
    assert_null(safetensors_item(&f.st, "other"));
    safetensors_close(&f);
    file.data[file.len - 1] ^= 1;
    folder_put(&folder, "x.safetensors", file.data, file.len);
    assert_int_equal(safetensors_open(path, &f, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "tensor short: damaged"));
    folder_put(&folder, "x.safetensors", file.data, file.len - 4);
    assert_int_equal(safetensors_open(path, &f, &err), ERR_INPUT);
    folder_remove(&folder);
    free(s.floats);
    buf_release(&s.data);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_the_bytes_of_a_tiny_file),
        cmocka_unit_test(test_a_file_without_tensors),
        cmocka_unit_test(test_names_and_texts_may_hold_anything),
        cmocka_unit_test(test_what_the_format_cannot_hold_is_not_written),
        cmocka_unit_test(test_a_file_of_another_writer_is_read),
        cmocka_unit_test(test_a_file_of_the_reference_writer_is_read),
        cmocka_unit_test(test_no_byte_can_change_unnoticed),
        cmocka_unit_test(test_no_byte_can_be_missing_or_too_many),
        cmocka_unit_test(test_damage_is_reported_with_its_position),
        cmocka_unit_test(test_hostile_files_are_refused_with_reasons),
        cmocka_unit_test(test_a_wrong_header_length_costs_nothing),
        cmocka_unit_test(test_a_text_is_called_no_safetensors_file),
        cmocka_unit_test(test_the_header_has_its_limit),
        cmocka_unit_test(test_json_bombs_do_not_go_off),
        cmocka_unit_test(test_a_storm_of_mutations),
        cmocka_unit_test(test_a_file_is_written_and_read_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
