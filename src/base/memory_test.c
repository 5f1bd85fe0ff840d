#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

/* Some of the machine's memory, of which this process must have found a little. */
static void test_some_of_it_is_there(void **state)
{
    (void)state;
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    assert_in_range(memory_available(NULL), 1024 * 1024, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_some_of_it_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
