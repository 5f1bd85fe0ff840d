/* Addresses to join by: a machine's own name may lead to loopback. */
#include "cli/host_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char own[] = "10.0.0.7";

static void expect_address(const char *typed, const char *numbers, const char *joined)
{
    char out[HOST_ADDRESSES_MAX];
    const char *beyond = host_addresses_beyond(typed, numbers, own, out);
    if (!joined)
        assert_null(beyond);
    else
        assert_string_equal(beyond ? beyond : "none", joined);
}

static void test_own_name_is_joined_by_the_address_for_others(void **state)
{
    (void)state;
    expect_address("attic", "127.0.1.1:29500", "10.0.0.7:29500,127.0.1.1:29500");
    expect_address("attic:4000", "127.0.1.1:4000", "10.0.0.7:4000,127.0.1.1:4000");
    expect_address("attic:4000", "[::1]:4000", "10.0.0.7:4000,[::1]:4000");
    expect_address("localhost.lan:1", "127.0.0.1:1", "10.0.0.7:1,127.0.0.1:1");
    expect_address("cellar,attic:4000", "10.0.0.9:29500,127.0.1.1:4000",
                   "10.0.0.9:29500,10.0.0.7:4000,127.0.1.1:4000");
    expect_address("attic,10.0.0.9:1", "127.0.1.1:29500,10.0.0.9:1",
                   "10.0.0.7:29500,127.0.1.1:29500,10.0.0.9:1");
}

static void test_what_was_typed_as_loopback_stays(void **state)
{
    (void)state;
    expect_address("127.0.0.1:4000", "127.0.0.1:4000", NULL);
    expect_address("localhost", "127.0.0.1:29500", NULL);
    expect_address("localhost:4000,cellar", "127.0.0.1:4000,10.0.0.9:29500", NULL);
    expect_address("[::1]:4000", "[::1]:4000", NULL);
    expect_address("cellar", "10.0.0.9:29500", NULL);
}

static void test_what_is_too_long_stays(void **state)
{
    char typed[HOST_ADDRESSES_MAX] = "attic", numbers[HOST_ADDRESSES_MAX] = "127.0.1.1:1";
    char out[HOST_ADDRESSES_MAX];
    (void)state;
    while (strlen(numbers) + 13 < sizeof numbers)
        strcat(numbers, ",127.0.1.1:1"), strcat(typed, ",attic");
    assert_null(host_addresses_beyond(typed, numbers, own, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_name_is_joined_by_the_address_for_others),
        cmocka_unit_test(test_what_was_typed_as_loopback_stays),
        cmocka_unit_test(test_what_is_too_long_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
