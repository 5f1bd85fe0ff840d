/* Units and their numbers: bytes, characters of every length, and what is none. */
#include "data/text_units.h"

#include "job/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static int make_units(const char *spec, struct text_units **out, struct err *err)
{
    ProtobufCMessage *message = NULL;
    assert_int_equal(
        text_parse(&paceline__data__text__descriptor, "text", spec, strlen(spec), &message, err),
        OK);
    int rc = text_units_create((const Paceline__Data__Text *)message, out, err);
    protobuf_c_message_free_unpacked(message, NULL);
    return rc;
}

static struct text_units *open_units(const char *spec)
{
    struct text_units *units = NULL;
    struct err err = {0};
    if (make_units(spec, &units, &err) != OK)
        fail_msg("%s", err.text);
    return units;
}

/* The text has these units, which written one after another give the text. */
static void expect_units(const struct text_units *units, const char *text, const int *expected,
                         size_t count)
{
    struct buf written = {0};
    size_t n = strlen(text), at = 0;
    for (size_t i = 0; i < count; i++) {
        struct err err;
        uint32_t id;
        size_t length;
        assert_true(at < n);
        assert_int_equal(text_units_take(units, text + at, n - at, &id, &length, &err), OK);
        assert_int_equal(id, expected[i]);
        text_units_put(units, id, &written);
        at += length;
    }
    assert_int_equal(at, n);
    assert_int_equal(written.len, n);
    assert_memory_equal(written.data, text, n);
    buf_release(&written);
}

#define EXPECT_UNITS(units, text, ...)                    \
    expect_units(units, text, (const int[]){__VA_ARGS__}, \
                 sizeof(const int[]){__VA_ARGS__} / sizeof(int))

/* "\n h é ∂ 𝄞" in ascending order of code points. */
#define VOCABULARY "\\n h\xc3\xa9\xe2\x88\x82\xf0\x9d\x84\x9e"

static void test_characters_of_every_length(void **state)
{
    (void)state;
    struct text_units *units = open_units("unit: character vocabulary: '" VOCABULARY "'");
    assert_int_equal(text_units_count(units), 6);
    assert_string_equal(text_units_name(units), "characters");
    EXPECT_UNITS(units, "\xf0\x9d\x84\x9eh\xe2\x88\x82 \n\xc3\xa9", 5, 2, 4, 1, 0, 3);
    text_units_free(units);
}

static void test_bytes(void **state)
{
    (void)state;
    struct text_units *units = open_units("unit: byte vocabulary: 'ignored'");
    assert_int_equal(text_units_count(units), 256);
    assert_string_equal(text_units_name(units), "bytes");
    EXPECT_UNITS(units, "a\xff\xc3\xa9\x01", 'a', 255, 0xc3, 0xa9, 1);
    text_units_free(units);
    units = open_units(""); /* bytes are the default */
    assert_int_equal(text_units_count(units), 256);
    text_units_free(units);
}

static void expect_none(const struct text_units *units, const char *text, size_t n,
                        const char *phrase)
{
    struct err err = {0};
    uint32_t id;
    size_t length;
    assert_int_equal(text_units_take(units, text, n, &id, &length, &err), ERR_INPUT);
    if (!strstr(err.text, phrase))
        fail_msg("\"%s\" should say \"%s\"", err.text, phrase);
}

static void test_what_is_no_unit(void **state)
{
    (void)state;
    struct text_units *units = open_units("unit: character vocabulary: '" VOCABULARY "'");
    expect_none(units, "a", 1, "character U+0061 is none of the 6 in the vocabulary");
    expect_none(units, "\xff", 1, "byte \\xff is no character of UTF-8");
    expect_none(units, "\xf0\x9d\x84\x9e", 3, "byte \\xf0 is no character of UTF-8"); /* cut */
    text_units_free(units);
}

static void expect_refusal(const char *spec, const char *phrase)
{
    struct text_units *units;
    struct err err = {0};
    assert_int_equal(make_units(spec, &units, &err), ERR_INPUT);
    if (!strstr(err.text, phrase))
        fail_msg("\"%s\" should say \"%s\"", err.text, phrase);
}

static void test_wrong_vocabularies(void **state)
{
    (void)state;
    expect_refusal("unit: character", "text.vocabulary: is unknown");
    expect_refusal("unit: character vocabulary: ''", "text.vocabulary: is unknown");
    expect_refusal("unit: character vocabulary: 'ba'", "text.vocabulary: has its characters not");
    expect_refusal("unit: character vocabulary: 'aa'", "text.vocabulary: has its characters not");
    expect_refusal("unit: character vocabulary: 'a\\377'", "text.vocabulary: is not UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_of_every_length),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_what_is_no_unit),
        cmocka_unit_test(test_wrong_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
