/* UTF-8: every code point there and back; sequences that are none. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < UTF8_CODES; code++) {
        uint8_t bytes[UTF8_BYTES_MAX];
        uint32_t back = UINT32_MAX;
        size_t n = utf8_put(code, bytes);
        bool surrogate = code >= 0xd800 && code < 0xe000;
        assert_int_equal(n, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_take(bytes, n, &back), surrogate ? 0 : n);
        if (!surrogate)
            assert_int_equal(back, code);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(utf8_take(bytes, cut, &back), 0);
    }
}

static void test_sequences_that_are_none(void **state)
{
    (void)state;
    static const char *const none[] = {
        "\x80",
        "\xbf"
        "a", /* continue nothing */
        "\xc3"
        "a",
        "\xe2\x82"
        "a", /* do not continue */
        "\xc0\x80",
        "\xc1\xbf", /* U+0000 and U+007F in two bytes */
        "\xe0\x9f\xbf",
        "\xf0\x8f\xbf\xbf", /* U+07FF in three, U+FFFF in four */
        "\xed\xa0\x80",
        "\xed\xbf\xbf", /* surrogates */
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", /* above U+10FFFF */
        "\xf8\x88\x80\x80\x80",
        "\xff",
    };
    uint32_t code;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(utf8_take(none[i], strlen(none[i]), &code), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_sequences_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
