#include "base/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

static void test_array_grow_keeps_elements(void **state)
{
    (void)state;
    uint64_t *at = NULL;
    size_t room = 0, moves = 0;
    for (size_t n = 0; n < 1000; n++) {
        size_t before = room;
        assert_true(array_grow(&at, n, &room, sizeof *at));
        assert_true(room > n);
        moves += room != before;
        at[n] = n * n;
    }
    for (size_t n = 0; n < 1000; n++)
        assert_true(at[n] == n * n);
    assert_int_equal(moves, 7); /* 16, 32, … 1024 elements */
    free(at);
}

static void test_array_grow_without_memory_keeps_the_array(void **state)
{
    (void)state;
    char *at = NULL;
    size_t room = 0;
    assert_true(array_grow(&at, 0, &room, 1));
    at[0] = 'a';
    assert_false(array_grow(&at, room, &room, SIZE_MAX / 16));
    assert_int_equal(room, 16);
    assert_int_equal(at[0], 'a');
    free(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array_grow_keeps_elements),
        cmocka_unit_test(test_array_grow_without_memory_keeps_the_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
