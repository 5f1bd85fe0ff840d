#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "wire/catalogue.h"

#include <string.h>

/* The picture of the header, bit by bit. */
static void test_a_tag_is_packed_as_it_is_drawn(void **state)
{
    (void)state;
    assert_int_equal(WIRE_HELLO, 1);
    assert_true(wire_tag(WIRE_HELLO, 0x12, 0x3456789a, 0xbcde) == UINT64_C(0x01123456789abcde));
    assert_true(wire_tag(WIRE_WELCOME, 0, 0, 0) == UINT64_C(0x0200000000000000));
    assert_true(wire_tag(WIRE_NONE, 0xff, UINT32_MAX, WIRE_HEADER_PIECE) ==
                UINT64_C(0x00ffffffffffffff));
}

static void test_what_is_too_wide_stays_in_its_field(void **state)
{
    (void)state;
    assert_true(wire_tag(WIRE_MODEL, 0x101, UINT64_C(0x700000002), 0x30004) ==
                wire_tag(WIRE_MODEL, 1, 2, 4));
}

static void test_wire_kinds_round_trip_through_tags(void **state)
{
    (void)state;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++)
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t r = rng_u64(1, 2, i);
            uint64_t tag =
                wire_tag((enum wire_kind)kind, (uint32_t)r, r >> 16, (uint32_t)(r >> 32));
            assert_int_equal(wire_kind_of(tag), kind);
            assert_true((tag & WIRE_KIND_MASK) == wire_tag((enum wire_kind)kind, 0, 0, 0));
            assert_int_equal(tag >> 48 & 0xff, r & 0xff);
            assert_int_equal(tag >> 16 & 0xffffffff, r >> 16 & 0xffffffff);
            assert_int_equal(tag & 0xffff, r >> 32 & 0xffff);
        }
}

static void test_bytes_that_name_no_kind_are_none(void **state)
{
    (void)state;
    for (uint64_t kind = WIRE_KIND_COUNT; kind < 256; kind++)
        assert_int_equal(wire_kind_of(kind << 56 | 12345), WIRE_NONE);
    assert_int_equal(wire_kind_of(0), WIRE_NONE);
}

static void test_names_go_round(void **state)
{
    (void)state;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
        const char *name = wire_kind_name((enum wire_kind)kind);
        assert_true(name && strlen(name) > 0);
        assert_int_equal(wire_kind_find(name), kind); /* so no two kinds share one */
    }
    assert_string_equal(wire_kind_name(WIRE_BROADCAST), "broadcast");
    assert_string_equal(wire_kind_name(WIRE_WANT_MODEL), "want_model");
}

static void test_other_names_find_nothing(void **state)
{
    (void)state;
    static const char *const strange[] = {"", "?", "reduc", "reducee", "REDUCE", " view"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        assert_int_equal(wire_kind_find(strange[i]), WIRE_NONE);
    assert_string_equal(wire_kind_name(WIRE_NONE), "?");
    assert_string_equal(wire_kind_name(WIRE_KIND_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tag_is_packed_as_it_is_drawn),
        cmocka_unit_test(test_what_is_too_wide_stays_in_its_field),
        cmocka_unit_test(test_wire_kinds_round_trip_through_tags),
        cmocka_unit_test(test_bytes_that_name_no_kind_are_none),
        cmocka_unit_test(test_names_go_round),
        cmocka_unit_test(test_other_names_find_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
