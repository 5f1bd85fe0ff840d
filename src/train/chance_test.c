#include "train/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SET = 4000, STEP = 10 }; /* a stretch is 1,000 records */

static void test_a_loss_that_stays_is_told_once(void **state)
{
    (void)state;
    struct chance c;
    unsigned told = 0;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 400; i++) {
        told += chance_add(&c, STEP, log(10) * (i % 2 ? 1.03 : 0.97));
        assert_int_equal(told, i >= 199);
    }
    assert_false(chance_end(&c));
}

static void test_a_loss_that_moves_is_not_told(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 400; i++)
        assert_false(chance_add(&c, STEP, i < 100 ? log(10) : 2.2));
    assert_false(chance_end(&c));
    chance_init(&c, 0, SET, STEP);
    assert_false(chance_add(&c, SET, 0));
    chance_init(&c, 10, SET, STEP);
    assert_false(chance_add(&c, SET, (double)NAN));
    assert_false(chance_end(&c));
}

static void test_a_short_run_is_told_at_its_end(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 3, SET, STEP);
    assert_false(chance_end(&c));
    for (int i = 0; i < 60; i++)
        assert_false(chance_add(&c, STEP, log(3)));
    assert_true(chance_end(&c));
    for (int i = 0; i < 50; i++)
        assert_false(chance_add(&c, STEP, log(3)));
    assert_true(chance_end(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loss_that_stays_is_told_once),
        cmocka_unit_test(test_a_loss_that_moves_is_not_told),
        cmocka_unit_test(test_a_short_run_is_told_at_its_end),
    };
    return cmocka_run_group_tests_name("chance", tests, NULL, NULL);
}
