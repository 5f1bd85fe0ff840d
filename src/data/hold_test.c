/* A node and its leases, step by step. */
#include "data/hold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { GRAIN = 10 };

static struct lease range(uint64_t from, uint64_t to)
{
    return (struct lease){.from = from, .to = to};
}

/* It steps where it should. */
static void expect_steps(struct hold *hold, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += GRAIN) {
        uint64_t follows = hold_follows(hold);
        assert_int_equal(hold_place(hold), at);
        hold_step(hold);
        assert_int_equal(hold_place(hold), follows);
    }
}

static void asks_when_half_is_used(void **state)
{
    struct hold hold;
    (void)state;
    hold_begin(&hold, GRAIN, range(100, 180), 80);
    expect_steps(&hold, 100, 130);
    assert_false(hold_asks(&hold, 40));
    expect_steps(&hold, 130, 140);
    assert_true(hold_asks(&hold, 40));
    assert_true(hold.waits && hold.ask == 2 && hold.want == 40);
    assert_false(hold_asks(&hold, 40)); /* it has asked */
    const struct lease next[] = {range(40, 50), range(300, 330)};
    assert_true(hold_answer(&hold, 2, next, 2));
    assert_int_equal(hold_left(&hold), 80);
    assert_false(hold_asks(&hold, 40)); /* 80 are left */
    expect_steps(&hold, 140, 180);
    expect_steps(&hold, 40, 50);
    expect_steps(&hold, 300, 310);
    assert_true(hold_asks(&hold, 40)); /* 20 of 40 */
    expect_steps(&hold, 310, 330);
    assert_true(hold.taken == 120 && hold.again == 0 && hold.high == 330);
    expect_steps(&hold, 300, 330); /* the last of them again */
}

/* However little there was to be had: while it takes a step, the lease of the next is there or on
 * its way. */
static void is_a_step_ahead(void **state)
{
    struct hold hold;
    (void)state;
    hold_begin(&hold, GRAIN, range(0, 20), 20);
    expect_steps(&hold, 0, 10);
    for (uint64_t at = 10; at < 100; at += GRAIN) { /* a step at a time */
        const struct lease next[] = {range(at + 10, at + 20)};
        assert_true(hold_asks(&hold, 10));
        expect_steps(&hold, at, at + 10);
        assert_true(hold_answer(&hold, hold.ask, next, 1));
    }
    assert_true(hold.again == 0 && hold.taken == 100);
    const struct lease one[] = {range(200, 210)}, more[] = {range(300, 340)};
    assert_true(hold_asks(&hold, 10) && hold_answer(&hold, hold.ask, one, 1));
    assert_false(hold_asks(&hold, 10)); /* two steps are left: one of them is a step ahead */
    expect_steps(&hold, 100, 110);
    assert_true(hold_asks(&hold, 40) && hold_answer(&hold, hold.ask, more, 1));
    expect_steps(&hold, 200, 210);
    expect_steps(&hold, 300, 310);
    assert_int_equal(hold.again, 0);
}

static void goes_over_its_last_lease_again(void **state)
{
    struct hold hold;
    const struct lease next[] = {range(500, 520)};
    (void)state;
    hold_begin(&hold, GRAIN, range(0, 30), 30);
    expect_steps(&hold, 0, 30);
    assert_true(hold_asks(&hold, 20));
    expect_steps(&hold, 0, 30);
    expect_steps(&hold, 0, 10);
    assert_true(hold.taken == 30 && hold.again == 40);
    assert_true(hold_answer(&hold, 2, next, 1));
    expect_steps(&hold, 500, 520); /* at once */
    expect_steps(&hold, 500, 510); /* and this is its last one now */
    assert_true(hold.taken == 50 && hold.again == 50);
}

/* The answer that it came for is under way. */
static void a_newcomer_does_not_wait_either(void **state)
{
    struct hold hold;
    const struct lease first[] = {range(900, 920)};
    (void)state;
    hold_begin(&hold, GRAIN, range(600, 600), 20);
    assert_false(hold_asks(&hold, 20));
    expect_steps(&hold, 600, 620);
    expect_steps(&hold, 600, 610);
    assert_true(hold_answer(&hold, 1, first, 1));
    expect_steps(&hold, 900, 920);
    assert_true(hold.taken == 20 && hold.again == 30 && hold.high == 920);
}

static void only_the_answer_to_the_open_question_counts(void **state)
{
    struct hold hold;
    const struct lease good[] = {range(100, 120)};
    (void)state;
    hold_begin(&hold, GRAIN, range(0, 20), 20);
    assert_false(hold_answer(&hold, 1, good, 1)); /* there is none open */
    expect_steps(&hold, 0, 10);
    assert_true(hold_asks(&hold, 20));
    assert_false(hold_answer(&hold, 1, good, 1));
    hold_forget(&hold);
    assert_true(hold_asks(&hold, 20)); /* anew, */
    assert_int_equal(hold.ask, 3);
    assert_false(hold_answer(&hold, 2, good, 1)); /* and the old answer is none */
    assert_true(hold_answer(&hold, 3, good, 1));
    assert_false(hold_answer(&hold, 3, good, 1));
}

/* Nobody repeats an answer: after one that is none it asks again. */
static void an_answer_that_cannot_be(void **state)
{
    struct hold hold;
    const struct lease many[LEASE_HELD_MAX + 1] = {range(1, 11), range(11, 21), range(21, 31),
                                                   range(31, 41), range(41, 51)},
                                             odd[] = {range(100, 115)}, none[] = {range(9, 9)};
    const struct {
        const struct lease *given;
        size_t count;
    } bad[] = {{odd, 1}, {none, 1}, {many, 0}, {many, LEASE_HELD_MAX + 1}};
    (void)state;
    hold_begin(&hold, GRAIN, range(0, 20), 20);
    expect_steps(&hold, 0, 10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(hold_asks(&hold, 20));
        assert_false(hold_answer(&hold, 2 + i, bad[i].given, bad[i].count));
    }
    assert_true(hold_asks(&hold, 20));
    assert_true(hold_answer(&hold, 6, many, LEASE_HELD_MAX)); /* it has room for three */
    assert_true(hold.count == LEASE_HELD_MAX && hold_left(&hold) == 40 && hold.granted == 30);
    expect_steps(&hold, 10, 20);
    expect_steps(&hold, 1, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_when_half_is_used),
        cmocka_unit_test(is_a_step_ahead),
        cmocka_unit_test(goes_over_its_last_lease_again),
        cmocka_unit_test(a_newcomer_does_not_wait_either),
        cmocka_unit_test(only_the_answer_to_the_open_question_counts),
        cmocka_unit_test(an_answer_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
