#include "train/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SET = 4000, STEP = 10 }; /* a stretch is 1,000 records */

/* After eight stretches, which are two epochs here. */
static void test_chance_constant_loss_is_reported_once(void **state)
{
    (void)state;
    struct chance c;
    unsigned reported = 0;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 1600; i++) {
        enum chance_news news = chance_add(&c, STEP, log(10) * (i % 2 ? 1.03 : 0.97));
        reported += news == CHANCE_STUCK;
        assert_true(news != CHANCE_HIGH);
        assert_int_equal(reported, i >= 799);
    }
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
}

static void test_chance_falling_loss_is_not_reported(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 1600; i++)
        assert_int_equal(chance_add(&c, STEP, i < 100 ? log(10) : 2.2), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
    chance_init(&c, 0, SET, STEP);
    assert_int_equal(chance_add(&c, SET, 0), CHANCE_NOTHING);
    chance_init(&c, 10, SET, STEP);
    assert_int_equal(chance_add(&c, SET, (double)NAN), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
}

/* CIFAR's quick net stands at chance for most of an epoch, and then falls to 0.4. */
static void test_chance_slow_start_is_not_reported(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 500; i++)
        assert_int_equal(chance_add(&c, STEP, 2.3024), CHANCE_NOTHING);
    for (int i = 0; i < 2000; i++) /* within 1 % of chance for long, but on its way */
        assert_int_equal(chance_add(&c, STEP, 2.3024 - 6e-5 * i), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
}

static void test_chance_short_run_is_reported_at_end(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 3, SET, STEP);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
    for (int i = 0; i < 60; i++)
        assert_int_equal(chance_add(&c, STEP, log(3)), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_STUCK);
    for (int i = 0; i < 50; i++)
        assert_int_equal(chance_add(&c, STEP, log(3)), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_STUCK);
}

static void test_chance_high_loss_is_reported_once(void **state)
{
    (void)state;
    struct chance c;
    chance_init(&c, 10, SET, STEP);
    for (int i = 0; i < 10; i++) /* how a net begins is no news */
        assert_int_equal(chance_add(&c, STEP, 87.3), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_HIGH); /* but how it ends is */
    assert_int_equal(chance_add(&c, STEP, 2), CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
    for (int i = 1; i < 100; i++)
        assert_int_equal(chance_add(&c, STEP, 4.4e35), i == 20 ? CHANCE_HIGH : CHANCE_NOTHING);
    assert_int_equal(chance_end(&c), CHANCE_NOTHING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chance_constant_loss_is_reported_once),
        cmocka_unit_test(test_chance_falling_loss_is_not_reported),
        cmocka_unit_test(test_chance_slow_start_is_not_reported),
        cmocka_unit_test(test_chance_short_run_is_reported_at_end),
        cmocka_unit_test(test_chance_high_loss_is_reported_once),
    };
    return cmocka_run_group_tests_name("chance", tests, NULL, NULL);
}
