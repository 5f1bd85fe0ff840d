#include "base/printable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/logger.h"

#include <stdio.h>
#include <string.h>

static void expect_printable(const char *text, const char *plain)
{
    char copy[64];
    assert_in_range(snprintf(copy, sizeof copy, "%s", text), 0, sizeof copy - 1);
    printable(copy);
    assert_string_equal(copy, plain);
}

static void test_what_a_terminal_would_obey(void **state)
{
    (void)state;
    expect_printable("a\033[31m", "a?[31m");
    expect_printable("one\ntwo\r\n\tthree\x7f", "one?two???three?");
    expect_printable("\xc2\x9b"
                     "31m\xc2\x80\xc2\x9f",
                     "??31m????");
    for (int c = 1; c < 256; c++) {
        char text[2] = {(char)c, 0};
        printable(text);
        assert_int_equal((unsigned char)text[0], c < 0x20 || c == 0x7f ? '?' : c);
    }
}

static void test_other_text_stays(void **state)
{
    (void)state;
    expect_printable("", "");
    expect_printable("layer \"conv1\": ~ is plain", "layer \"conv1\": ~ is plain");
    /* e acute, no-break space (U+00A0), a Chinese character, one beyond sixteen bits */
    expect_printable("\xc3\xa9\xc2\xa0\xe5\xb1\x82\xf0\x9f\x90\x88",
                     "\xc3\xa9\xc2\xa0\xe5\xb1\x82\xf0\x9f\x90\x88");
    expect_printable("cut \xc2", "cut \xc2");
}

static void test_ascii_alone_stays(void **state)
{
    char text[] = " ~a\033\x7f\xc3\xa9\xff\x01";
    (void)state;
    printable_ascii(text);
    assert_string_equal(text, " ~a??????");
}

static void test_messages_are_printable(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_INPUT, "layer \"%s\"", "a\033[31m\n\xc3\xa9"), ERR_INPUT);
    assert_string_equal(err.text, "layer \"a?[31m?\xc3\xa9\"");
    err_prefix(&err, "%s", "b\a.prototxt");
    assert_string_equal(err.text, "b?.prototxt: layer \"a?[31m?\xc3\xa9\"");
}

static void keep_line(void *user, enum log_level level, const char *line)
{
    (void)level;
    snprintf(user, 64, "%s", line);
}

static void test_lines_of_the_log_are_printable(void **state)
{
    (void)state;
    char line[64] = "";
    const struct logger log = {keep_line, line, LOG_INFO};
    log_warn(&log, "no such net: %s", "a\033]0;\nb");
    assert_string_equal(line, "no such net: a?]0;?b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_terminal_would_obey),
        cmocka_unit_test(test_other_text_stays),
        cmocka_unit_test(test_ascii_alone_stays),
        cmocka_unit_test(test_messages_are_printable),
        cmocka_unit_test(test_lines_of_the_log_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
