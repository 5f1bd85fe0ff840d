/* When a driver is silent for too long, by the clock of who listens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "group/group.h"

enum { PERIOD = 125, SILENCE = 1000 };

static void test_who_beats_is_heard(void **state)
{
    (void)state;
    struct group_ear ear = {.heard = 1000, .looked = 1000};
    for (int64_t now = 1000 + PERIOD; now < 20000; now += PERIOD) {
        if (now % 1000 == 0)
            ear.heard = now;
        assert_false(group_ear_deaf(&ear, now, PERIOD, SILENCE));
    }
}

static void test_a_silence_has_an_end(void **state)
{
    (void)state;
    struct group_ear ear = {.heard = 1000, .looked = 1000};
    int64_t now = 1000 + PERIOD;
    while (!group_ear_deaf(&ear, now, PERIOD, SILENCE))
        now += PERIOD;
    assert_int_equal(now, 1000 + SILENCE + PERIOD);
}

/* A node that stood still for an hour has heard nobody, and that is nobody's silence. */
static void test_its_own_sleep_is_not_the_drivers_silence(void **state)
{
    (void)state;
    struct group_ear ear = {.heard = 1000, .looked = 1000};
    assert_false(group_ear_deaf(&ear, 1000 + PERIOD, PERIOD, SILENCE));
    int64_t now = 3600000;
    assert_false(group_ear_deaf(&ear, now, PERIOD, SILENCE));
    for (int i = 0; i < SILENCE / PERIOD - 2; i++)
        assert_false(group_ear_deaf(&ear, now += PERIOD, PERIOD, SILENCE));
    assert_true(group_ear_deaf(&ear, now += 2 * PERIOD, PERIOD, SILENCE));
}

static void test_a_return_is_read_whole_or_not_at_all(void **state)
{
    (void)state;
    uint8_t bytes[8 + 8 * MEMBER_WORDS + 4 + 3 + 8 * GROUP_NOTE] = {7, 0, 0, 0, 3};
    struct group_return back;
    bytes[8 + 8 * MEMBER_WORDS] = 3; /* the hello's length */
    assert_int_equal(group_return_decode(bytes, sizeof bytes, &back), OK);
    assert_int_equal(back.view, 7);
    assert_int_equal(back.incarnation, 3);
    assert_int_equal(back.hello_len, 3);
    for (size_t n = 0; n < sizeof bytes; n++)
        assert_int_equal(group_return_decode(bytes, n, &back), ERR_PROTOCOL);
    bytes[8 + 8 * MEMBER_WORDS + 3] = 0xff; /* a hello of gigabytes */
    assert_int_equal(group_return_decode(bytes, sizeof bytes, &back), ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_beats_is_heard),
        cmocka_unit_test(test_a_silence_has_an_end),
        cmocka_unit_test(test_its_own_sleep_is_not_the_drivers_silence),
        cmocka_unit_test(test_a_return_is_read_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
