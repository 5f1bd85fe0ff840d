#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_byte_order(void **state)
{
    (void)state;
    const uint8_t b[] = {0xff, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};
    assert_true(bytes_be32(b + 1) == 0x01820384);
    assert_true(bytes_le32(b + 1) == 0x84038201);
    assert_true(bytes_le64(b + 1) == 0x8807860584038201);
    uint8_t out[9] = {0xff};
    bytes_put_le64(out + 1, 0x8807860584038201);
    assert_memory_equal(out, b, sizeof b);
    bytes_put_le32(out + 1, 0x04030201);
    const uint8_t head[] = {0xff, 1, 2, 3, 4, 0x05};
    assert_memory_equal(out, head, sizeof head);
}

static void test_a_buffer_is_laid_out_plainly(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_u8(&buf, 0xab);
    buf_put_u32(&buf, 0x01020304);
    buf_put_u64(&buf, 0x1112131415161718);
    buf_put_f64(&buf, 1.0);
    buf_put_text(&buf, "hi");
    buf_printf(&buf, "%d-%s", 42, "x");
    buf_put(&buf, NULL, 0);
    const uint8_t want[] = {0xab, 4,    3, 2,   1,   0x18, 0x17, 0x16, 0x15, 0x14, 0x13,
                            0x12, 0x11, 0, 0,   0,   0,    0,    0,    0xf0, 0x3f, 2,
                            0,    0,    0, 'h', 'i', '4',  '2',  '-',  'x'};
    assert_false(buf.failed);
    assert_int_equal(buf.len, sizeof want);
    assert_memory_equal(buf.data, want, sizeof want);
    buf_release(&buf);
    assert_null(buf.data);
    buf_release(&buf);
}

static void test_a_buffer_grows(void **state)
{
    (void)state;
    struct buf buf = {0};
    for (uint32_t i = 0; i < 100000; i++)
        buf_put_u32(&buf, i);
    assert_int_equal(buf.len, 400000);
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(bytes_le32(buf.data + 4 * (size_t)i), i);
    buf_release(&buf);
    for (int i = 0; i < 1000; i++)
        buf_printf(&buf, "%03d", i); /* the final zero never counts */
    assert_int_equal(buf.len, 3000);
    assert_memory_equal(buf.data, "000001002", 9);
    assert_memory_equal(buf.data + 2991, "997998999", 9);
    buf_release(&buf);
}

static void test_buf_growth_failure_is_reported(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_u32(&buf, 7);
    volatile size_t too_much = SIZE_MAX - 2; /* 4 more would wrap around */
    buf_put(&buf, "x", too_much);
    assert_true(buf.failed);
    assert_int_equal(buf.len, 4);
    buf_put_u32(&buf, 8);
    buf_printf(&buf, "later");
    assert_int_equal(buf.len, 4);
    assert_int_equal(bytes_le32(buf.data), 7);
    buf_release(&buf);
    assert_false(buf.failed);
}

struct pending_message {
    uint8_t a;
    uint32_t b;
    uint64_t c;
    double d;
    char text[8];
    uint8_t last;
};

static struct pending_message decode_letter(struct byte_reader *cut)
{
    struct pending_message l;
    l.a = read_u8(cut);
    l.b = read_u32(cut);
    l.c = read_u64(cut);
    l.d = read_f64(cut);
    read_text(cut, l.text, sizeof l.text);
    l.last = read_u8(cut);
    return l;
}

/* A copy of exactly `len` bytes, so that a sanitizer sees any read beyond. */
static uint8_t *copy_exactly(const void *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    return copy;
}

static void test_every_truncation_fails_softly(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_u8(&buf, 200);
    buf_put_u32(&buf, 4000000000);
    buf_put_u64(&buf, UINT64_MAX - 1);
    buf_put_f64(&buf, -0.0);
    buf_put_text(&buf, "seven77");
    buf_put_u8(&buf, 9);
    buf_put_u8(&buf, 10); /* one too many */
    size_t whole = buf.len - 1;
    for (size_t len = 0; len <= buf.len; len++) {
        uint8_t *copy = copy_exactly(buf.data, len);
        struct byte_reader cut = {.at = copy, .left = len};
        struct pending_message l = decode_letter(&cut);
        assert_true(cut.failed == (len < whole));
        assert_true(byte_reader_done(&cut) == (len == whole));
        assert_int_equal(l.a, len >= 1 ? 200 : 0);
        assert_int_equal(l.b, len >= 5 ? 4000000000 : 0);
        assert_true(l.c == (len >= 13 ? UINT64_MAX - 1 : 0));
        assert_true(l.d == 0 && (signbit(l.d) != 0) == (len >= 21));
        assert_string_equal(l.text, len >= 32 ? "seven77" : "");
        assert_int_equal(l.last, len >= whole ? 9 : 0);
        free(copy);
    }
    buf_release(&buf);
}

static void test_after_a_failure_all_is_zero(void **state)
{
    (void)state;
    const uint8_t three[] = {1, 2, 3};
    struct byte_reader cut = {.at = three, .left = 3};
    assert_int_equal(read_u32(&cut), 0);
    assert_int_equal(read_u8(&cut), 0); /* though there is a byte */
    assert_null(byte_reader_take(&cut, 0));
    assert_false(byte_reader_done(&cut));
}

static void test_texts_keep_to_their_room(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {4, 5, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t input[12] = {0};
        bytes_put_le32(input, lengths[i]);
        memcpy(input + 4, "abcdefgh", 8);
        struct byte_reader cut = {.at = input, .left = sizeof input};
        char out[6] = "......";
        read_text(&cut, out, 5); /* room for four characters */
        assert_true(cut.failed == (lengths[i] > 4));
        assert_string_equal(out, lengths[i] > 4 ? "" : "abcd");
        assert_int_equal(out[5], '.');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_order),
        cmocka_unit_test(test_a_buffer_is_laid_out_plainly),
        cmocka_unit_test(test_a_buffer_grows),
        cmocka_unit_test(test_buf_growth_failure_is_reported),
        cmocka_unit_test(test_every_truncation_fails_softly),
        cmocka_unit_test(test_after_a_failure_all_is_zero),
        cmocka_unit_test(test_texts_keep_to_their_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
