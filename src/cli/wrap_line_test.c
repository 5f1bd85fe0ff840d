/* Messages on a terminal are broken at words, and commands to copy are not. */
#include "cli/wrap_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_wrap(const char *line, size_t columns, const char *expected)
{
    char out[256];
    wrap_line(line, columns, out, sizeof out);
    assert_string_equal(out, expected);
}

static void test_line_is_broken_at_words(void **state)
{
    (void)state;
    expect_wrap("fits", 4, "fits");
    expect_wrap("fits in here just so", 20, "fits in here just so");
    expect_wrap("suspicious: the batch is large", 20, "suspicious: the\n    batch is large");
    expect_wrap("Bäume höher", 11, "Bäume höher");
    expect_wrap("one two three four five", 10, "one two\n    three\n    four\n    five");
}

static void test_label_stands_alone_before_its_lines(void **state)
{
    (void)state;
    expect_wrap("ends    after 3 steps, or at an error of 1 %", 24,
                "ends    after 3 steps,\n        or at an error\n        of 1 %");
    expect_wrap("a step      16 records x 2 workers, 38 steps an epoch", 32,
                "a step      16 records x 2\n            workers, 38 steps an\n            epoch");
    expect_wrap("     0.4 s  epoch 1.07: test error 65.00 %", 30,
                "     0.4 s  epoch 1.07: test\n            error 65.00 %");
}

static void test_path_and_command_stay_whole(void **state)
{
    (void)state;
    static const char command[] = "    paceline worker --join 127.0.0.1:29500 --key t";
    expect_wrap(command, 30, command);
    expect_wrap("kept in /a/path/that/is/longer/than/the/line for now", 20,
                "kept in\n    /a/path/that/is/longer/than/the/line\n    for now");
}

static void test_long_line_is_cut_to_the_room(void **state)
{
    (void)state;
    char out[12];
    wrap_line("one two three four five", 10, out, sizeof out);
    assert_string_equal(out, "one two\n   ");
    wrap_line("one two three four five", 80, out, sizeof out);
    assert_string_equal(out, "one two thr");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_is_broken_at_words),
        cmocka_unit_test(test_label_stands_alone_before_its_lines),
        cmocka_unit_test(test_path_and_command_stay_whole),
        cmocka_unit_test(test_long_line_is_cut_to_the_room),
    };
    return cmocka_run_group_tests_name("wrap_line", tests, NULL, NULL);
}
