/* A node and its leases, step by step. */
#include "data/lease_cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { GRAIN = 10 };

static struct lease range_of(uint64_t from, uint64_t to)
{
    return (struct lease){.from = from, .to = to};
}

/* It steps where it should. */
static void expect_steps(struct lease_cursor *cursor, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += GRAIN) {
        struct stretch follows;
        assert_int_equal(lease_cursor_following(cursor, &follows, 1), 1);
        assert_int_equal(lease_cursor_share(cursor).start, at);
        lease_cursor_step(cursor);
        assert_int_equal(lease_cursor_share(cursor).start, follows.start);
    }
}

static void test_lease_cursor_requests_at_half(void **state)
{
    struct lease_cursor cursor;
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(100, 180), 80);
    expect_steps(&cursor, 100, 130);
    assert_false(lease_cursor_should_request(&cursor, 40));
    expect_steps(&cursor, 130, 140);
    assert_true(lease_cursor_should_request(&cursor, 40));
    assert_true(cursor.pending && cursor.request == 2 && cursor.want == 40);
    assert_false(lease_cursor_should_request(&cursor, 40)); /* it has requested one */
    const struct lease next[] = {range_of(40, 50), range_of(300, 330)};
    assert_true(lease_cursor_take_grant(&cursor, 2, next, 2));
    assert_int_equal(lease_cursor_left(&cursor), 80);
    assert_false(lease_cursor_should_request(&cursor, 40)); /* 80 are left */
    expect_steps(&cursor, 140, 180);
    expect_steps(&cursor, 40, 50);
    expect_steps(&cursor, 300, 310);
    assert_true(lease_cursor_should_request(&cursor, 40)); /* 20 of 40 */
    expect_steps(&cursor, 310, 330);
    assert_true(cursor.taken == 120 && cursor.repeated == 0 && cursor.highest == 330);
    expect_steps(&cursor, 300, 330); /* the last of them again */
}

/* However small the leases: while it takes a step, the lease of the next is there or under way. */
static void test_lease_cursor_requests_a_step_ahead(void **state)
{
    struct lease_cursor cursor;
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(0, 20), 20);
    expect_steps(&cursor, 0, 10);
    for (uint64_t at = 10; at < 100; at += GRAIN) { /* a step at a time */
        const struct lease next[] = {range_of(at + 10, at + 20)};
        assert_true(lease_cursor_should_request(&cursor, 10));
        expect_steps(&cursor, at, at + 10);
        assert_true(lease_cursor_take_grant(&cursor, cursor.request, next, 1));
    }
    assert_true(cursor.repeated == 0 && cursor.taken == 100);
    const struct lease one[] = {range_of(200, 210)}, more[] = {range_of(300, 340)};
    assert_true(lease_cursor_should_request(&cursor, 10) &&
                lease_cursor_take_grant(&cursor, cursor.request, one, 1));
    assert_false(lease_cursor_should_request(
        &cursor, 10)); /* two steps are left: one of them is a step ahead */
    expect_steps(&cursor, 100, 110);
    assert_true(lease_cursor_should_request(&cursor, 40) &&
                lease_cursor_take_grant(&cursor, cursor.request, more, 1));
    expect_steps(&cursor, 200, 210);
    expect_steps(&cursor, 300, 310);
    assert_int_equal(cursor.repeated, 0);
}

static void test_lease_cursor_repeats_its_last_lease(void **state)
{
    struct lease_cursor cursor;
    const struct lease next[] = {range_of(500, 520)};
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(0, 30), 30);
    expect_steps(&cursor, 0, 30);
    assert_true(lease_cursor_should_request(&cursor, 20));
    expect_steps(&cursor, 0, 30);
    expect_steps(&cursor, 0, 10);
    assert_true(cursor.taken == 30 && cursor.repeated == 40);
    assert_true(lease_cursor_take_grant(&cursor, 2, next, 1));
    expect_steps(&cursor, 500, 520); /* at once */
    expect_steps(&cursor, 500, 510); /* and this is its last one now */
    assert_true(cursor.taken == 50 && cursor.repeated == 50);
}

/* The reply that it waits for is under way. */
static void test_lease_cursor_joiner_repeats_others(void **state)
{
    struct lease_cursor cursor;
    const struct lease first[] = {range_of(900, 920)};
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(600, 600), 20);
    assert_false(lease_cursor_should_request(&cursor, 20));
    expect_steps(&cursor, 600, 620);
    expect_steps(&cursor, 600, 610);
    assert_true(lease_cursor_take_grant(&cursor, 1, first, 1));
    expect_steps(&cursor, 900, 920);
    assert_true(cursor.taken == 20 && cursor.repeated == 30 && cursor.highest == 920);
}

static void test_lease_cursor_ignores_stale_grants(void **state)
{
    struct lease_cursor cursor;
    const struct lease good[] = {range_of(100, 120)};
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(0, 20), 20);
    assert_false(lease_cursor_take_grant(&cursor, 1, good, 1)); /* there is none open */
    expect_steps(&cursor, 0, 10);
    assert_true(lease_cursor_should_request(&cursor, 20));
    assert_false(lease_cursor_take_grant(&cursor, 1, good, 1));
    lease_cursor_forget_request(&cursor);
    assert_true(lease_cursor_should_request(&cursor, 20)); /* again, */
    assert_int_equal(cursor.request, 3);
    assert_false(lease_cursor_take_grant(&cursor, 2, good, 1)); /* and the old reply has no lease */
    assert_true(lease_cursor_take_grant(&cursor, 3, good, 1));
    assert_false(lease_cursor_take_grant(&cursor, 3, good, 1));
}

/* No reply is repeated: after one without a lease it requests again. */
static void test_lease_cursor_refuses_invalid_grants(void **state)
{
    struct lease_cursor cursor;
    const struct lease many[LEASE_HELD_MAX + 1] = {range_of(1, 11), range_of(11, 21),
                                                   range_of(21, 31), range_of(31, 41),
                                                   range_of(41, 51)},
                                             odd[] = {range_of(100, 115)},
                                             none[] = {range_of(9, 9)};
    const struct {
        const struct lease *given;
        size_t count;
    } bad[] = {{odd, 1}, {none, 1}, {many, 0}, {many, LEASE_HELD_MAX + 1}};
    (void)state;
    lease_cursor_begin(&cursor, GRAIN, range_of(0, 20), 20);
    expect_steps(&cursor, 0, 10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(lease_cursor_should_request(&cursor, 20));
        assert_false(lease_cursor_take_grant(&cursor, 2 + i, bad[i].given, bad[i].count));
    }
    assert_true(lease_cursor_should_request(&cursor, 20));
    assert_true(
        lease_cursor_take_grant(&cursor, 6, many, LEASE_HELD_MAX)); /* it has room for three */
    assert_true(cursor.count == LEASE_HELD_MAX && lease_cursor_left(&cursor) == 40 &&
                cursor.granted == 30);
    expect_steps(&cursor, 10, 20);
    expect_steps(&cursor, 1, 31);
}

/* Where the batch grows, leases have any length: 50 samples in steps of 16 are 17, 17 and 16; 20
 * are one step of 20 rather than 16 and 4; a lease of 5 is one of 5, which it repeats. */
static void test_lease_cursor_cuts_leases_to_steps(void **state)
{
    struct lease_cursor cursor;
    struct stretch next[4];
    (void)state;
    lease_cursor_begin(&cursor, 1, range_of(100, 156), 56);
    cursor.step = 7;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(lease_cursor_share(&cursor).count, 7);
        lease_cursor_step(&cursor);
    }
    cursor.step = 16;
    assert_true(cursor.pending || lease_cursor_should_request(&cursor, 75));
    const struct lease given[] = {range_of(300, 350), range_of(20, 40), range_of(7, 12)};
    assert_true(lease_cursor_take_grant(&cursor, cursor.request, given, 3));
    static const uint64_t start[] = {300, 317, 334, 20, 7, 7}, count[] = {17, 17, 16, 20, 5, 5};
    assert_int_equal(lease_cursor_following(&cursor, next, 3), 3);
    for (int i = 0; i < 3; i++)
        assert_true(next[i].start == start[i + 1] && next[i].count == count[i + 1]);
    for (int i = 0; i < 6; i++) {
        struct stretch share = lease_cursor_share(&cursor);
        assert_true(share.start == start[i] && share.count == count[i]);
        lease_cursor_step(&cursor);
    }
    assert_true(cursor.taken == 56 + 75 && cursor.repeated == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_cursor_cuts_leases_to_steps),
        cmocka_unit_test(test_lease_cursor_requests_at_half),
        cmocka_unit_test(test_lease_cursor_requests_a_step_ahead),
        cmocka_unit_test(test_lease_cursor_repeats_its_last_lease),
        cmocka_unit_test(test_lease_cursor_joiner_repeats_others),
        cmocka_unit_test(test_lease_cursor_ignores_stale_grants),
        cmocka_unit_test(test_lease_cursor_refuses_invalid_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
