/* Deadlines in the units of poll and epoll_wait. */
#include "real/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>

#define MS (WORLD_SECOND / 1000)

static void test_timeout_is_in_milliseconds(void **state)
{
    (void)state;
    assert_int_equal(io_timeout_ms(3 * WORLD_SECOND, 0), 3000);
    assert_int_equal(io_timeout_ms(70 * WORLD_SECOND, 67 * WORLD_SECOND), 3000);
    assert_int_equal(io_timeout_ms(5 * WORLD_SECOND, 0), 5000); /* a hello's */
    assert_int_equal(io_timeout_ms(3600 * WORLD_SECOND, 0), 3600000);
}

static void test_timeout_is_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(io_timeout_ms(1, 0), 1);
    assert_int_equal(io_timeout_ms(MS, 0), 1);
    assert_int_equal(io_timeout_ms(MS + 1, 0), 2);
    assert_int_equal(io_timeout_ms(0, 0), 0);
    assert_int_equal(io_timeout_ms(5, 6), 0);
}

static void test_timeout_is_saturated(void **state)
{
    (void)state;
    assert_int_equal(io_timeout_ms((INT_MAX - 1) * MS, 0), INT_MAX - 1);
    assert_int_equal(io_timeout_ms(INT_MAX * MS, 0), INT_MAX);
    assert_int_equal(io_timeout_ms(INT_MAX * MS + 1, 0), INT_MAX);
    assert_int_equal(io_timeout_ms(INT64_MAX - 1, 0), INT_MAX);
    assert_int_equal(io_timeout_ms(INT64_MAX - 1, INT64_MIN), INT_MAX);
    assert_int_equal(io_timeout_ms(INT64_MIN, INT64_MAX), 0);
    assert_int_equal(io_timeout_ms(INT64_MIN, 0), 0);
    assert_int_equal(io_timeout_ms(WORLD_FOREVER, INT64_MIN), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout_is_in_milliseconds),
        cmocka_unit_test(test_timeout_is_rounded_up),
        cmocka_unit_test(test_timeout_is_saturated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
