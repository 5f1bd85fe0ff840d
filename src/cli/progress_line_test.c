/* A progress line is never wider than the terminal, and the important parts stay longest. */
#include "cli/progress_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static const struct progress_field fields[] = {
    {"    12.3 s", "", 3},
    {"epoch 10.52/20", "epoch 10.5/20", 0},
    {"loss 0.4312", "loss 0.431", 0},
    {"error 12.34 %", "", 1},
    {"5432 samples/s", "", 2},
    {"4 workers", "", 4},
    {"exchange 12.3 ms", "", 5},
    {"slowest 2", "", 6},
    {"ends in 123 s", "123 s left", 0},
};

enum { COUNT = sizeof fields / sizeof *fields };

static void expect_line(size_t columns, const char *want)
{
    char line[PROGRESS_LINE_MAX];
    progress_line_fit(fields, COUNT, columns, line);
    assert_string_equal(line, want);
}

static void test_line_shows_all_fields_where_there_is_room(void **state)
{
    (void)state;
    expect_line(200,
                "    12.3 s  epoch 10.52/20  loss 0.4312  error 12.34 %  5432 samples/s  4 workers"
                "  exchange 12.3 ms  slowest 2  ends in 123 s");
}

static void test_line_leaves_out_the_least_important_first(void **state)
{
    (void)state;
    expect_line(95, "    12.3 s  epoch 10.52/20  loss 0.4312  error 12.34 %  5432 samples/s"
                    "  ends in 123 s");
    expect_line(79, "epoch 10.52/20  loss 0.4312  error 12.34 %  5432 samples/s  ends in 123 s");
    expect_line(60, "epoch 10.52/20  loss 0.4312  error 12.34 %  ends in 123 s");
    expect_line(42, "epoch 10.52/20  loss 0.4312  ends in 123 s");
}

static void test_line_becomes_brief_then_close_then_cut(void **state)
{
    (void)state;
    expect_line(39, "epoch 10.5/20  loss 0.431  123 s left");
    expect_line(36, "epoch 10.5/20 loss 0.431 123 s left");
    expect_line(20, "epoch 10.5/20 loss 0");
    expect_line(0, "");
}

static void test_line_is_never_wider_than_asked(void **state)
{
    (void)state;
    for (size_t columns = 0; columns < 160; columns++) {
        char line[PROGRESS_LINE_MAX];
        progress_line_fit(fields, COUNT, columns, line);
        assert_true(strlen(line) <= columns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_shows_all_fields_where_there_is_room),
        cmocka_unit_test(test_line_leaves_out_the_least_important_first),
        cmocka_unit_test(test_line_becomes_brief_then_close_then_cut),
        cmocka_unit_test(test_line_is_never_wider_than_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
