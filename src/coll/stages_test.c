/* Stages without a world, except for a signal: which lane may enter which stage, by tables and by
 * random walks. */
#include "coll/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { SIGNAL = 5 };

static uint64_t raised[ROSTER_LANES_MAX]; /* by lane */

static void count_signal(struct world *w, uint32_t signal)
{
    (void)w;
    assert_in_range(signal, SIGNAL, SIGNAL + ROSTER_LANES_MAX - 1);
    raised[signal - SIGNAL]++;
}

static const struct world_ops ops = {.raise = count_signal};
static struct world world = {.ops = &ops};

static struct stages begin_stages(uint32_t lanes, uint32_t phases, uint64_t completed)
{
    struct stages s;
    stages_init(&s, &world, SIGNAL, lanes, phases, completed);
    memset(raised, 0, sizeof raised);
    return s;
}

/* Which lanes may enter `stage`, as "02". */
static void may_enter(const struct stages *s, enum stage stage, const char *want)
{
    char have[ROSTER_LANES_MAX + 1] = "";
    size_t n = 0;
    for (uint32_t lane = 0; lane < s->lanes; lane++)
        if (stages_clear(s, lane, stage))
            have[n++] = (char)('0' + lane);
    have[n] = '\0';
    assert_string_equal(have, want);
}

/* Lane by lane, as the paper draws it: a lane in each stage. */
static void test_stages_three_phases_pipeline(void **state)
{
    (void)state;
    struct stages s = begin_stages(3, 3, 0);
    may_enter(&s, STAGE_REDUCE, "0");
    stages_set(&s, 0, 0, 1); /* 0 is reduced */
    may_enter(&s, STAGE_REDUCE, "01");
    may_enter(&s, STAGE_PREPARE, "0");
    stages_set(&s, 1, 0, 1);
    may_enter(&s, STAGE_PREPARE, "0"); /* 1 waits until 0 is prepared */
    stages_set(&s, 0, 0, 2);
    may_enter(&s, STAGE_PREPARE, "01");
    may_enter(&s, STAGE_REDUCE, "012");
    may_enter(&s, STAGE_BROADCAST, "0");
    stages_set(&s, 1, 0, 2);
    may_enter(&s, STAGE_BROADCAST, "0"); /* and here until 0 is everywhere */
    stages_set(&s, 0, 1, 0);
    may_enter(&s, STAGE_BROADCAST, "1");
    may_enter(&s, STAGE_REDUCE, "12"); /* 0 again when 2 has been reduced */
    stages_set(&s, 2, 0, 1);
    may_enter(&s, STAGE_REDUCE, "012");
}

static void test_stages_two_phases(void **state)
{
    (void)state;
    struct stages s = begin_stages(2, 2, 0);
    stages_set(&s, 0, 0, 1);
    may_enter(&s, STAGE_REDUCE, "0");
    stages_set(&s, 0, 0, 2);
    may_enter(&s, STAGE_REDUCE, "01");
    stages_set(&s, 1, 0, 2);
    may_enter(&s, STAGE_BROADCAST, "0");
}

static void test_stages_one_phase(void **state)
{
    (void)state;
    struct stages s = begin_stages(2, 1, 0);
    stages_set(&s, 0, 0, 2);
    may_enter(&s, STAGE_REDUCE, "0");
    stages_set(&s, 0, 1, 0);
    may_enter(&s, STAGE_REDUCE, "1");
    assert_int_equal(stages_tick(&s, 0), 2);
    assert_int_equal(stages_tick(&s, 1), 1);
}

/* Later lanes wait again for one that must be repeated. */
static void test_stages_tick_restarts(void **state)
{
    (void)state;
    struct stages s = begin_stages(3, 3, 7);
    assert_int_equal(stages_tick(&s, 2), 7 * 3 + 2);
    stages_set(&s, 0, 7, 2);
    stages_set(&s, 1, 7, 1);
    may_enter(&s, STAGE_PREPARE, "01");
    stages_set(&s, 0, 7, 0);
    may_enter(&s, STAGE_PREPARE, "0");
    may_enter(&s, STAGE_REDUCE, "0");
}

/* The lanes woken since the last call, or the beginning, as "02". */
static void expect_woken(uint32_t lanes, const char *want)
{
    char have[ROSTER_LANES_MAX + 1] = "";
    size_t n = 0;
    for (uint32_t lane = 0; lane < lanes; lane++)
        if (raised[lane] > 0)
            have[n++] = (char)('0' + lane);
    have[n] = '\0';
    memset(raised, 0, sizeof raised);
    assert_string_equal(have, want);
}

static void test_stages_wake_those_whose_turn_it_is(void **state)
{
    (void)state;
    struct stages s = begin_stages(4, 3, 0);
    expect_woken(4, "");
    stages_set(&s, 0, 0, 0); /* nothing has changed */
    expect_woken(4, "");
    stages_set(&s, 0, 0, 1);
    expect_woken(4, "1"); /* not 2 and 3, which wait for 1 */
    stages_set(&s, 1, 0, 1);
    expect_woken(4, "2"); /* 1 waits until 0 is prepared */
    stages_set(&s, 0, 0, 2);
    expect_woken(4, "12");
    stages_set(&s, 1, 0, 2);
    stages_set(&s, 2, 0, 2);
    stages_set(&s, 3, 0, 2);
    expect_woken(4, "23");
    stages_set(&s, 0, 1, 0);
    expect_woken(4, "01"); /* and 0 for its next tick */
}

/* Whatever moves, also back or two exchanges ahead: a lane that may enter its next stage, and might
 * not before, is woken. */
static void test_stages_wake_all_that_may_go_on(void **state)
{
    enum { LANES = 8, MOVES = 20000 };
    (void)state;
    for (uint32_t phases = 1; phases <= 3; phases++) {
        struct stages s = begin_stages(LANES, phases, 0);
        uint64_t completed[LANES] = {0};
        uint32_t passed[LANES] = {0};
        for (uint64_t move = 0; move < MOVES; move++) {
            bool might[LANES];
            uint32_t lane = (uint32_t)rng_below(1, 1, move, LANES);
            for (uint32_t q = 0; q < LANES; q++)
                might[q] = stages_clear(&s, q, (enum stage)passed[q]);
            passed[lane] = rng_below(1, 2, move, 4) > 0 ? passed[lane] + 1 : 0;
            if (passed[lane] == STAGES) {
                passed[lane] = 0;
                completed[lane] += 1 + rng_below(1, 3, move, 2);
            }
            memset(raised, 0, sizeof raised);
            stages_set(&s, lane, completed[lane], passed[lane]);
            for (uint32_t q = 0; q < LANES; q++)
                if (q != lane && !might[q] && stages_clear(&s, q, (enum stage)passed[q]))
                    assert_true(raised[q] > 0);
        }
    }
}

/* Lanes move as allowed, in any order and sometimes back: no two are ever in one stage, ticks pass
 * each stage in order, and some lane can always move. */
static void walk_randomly(uint64_t seed, uint32_t lanes, uint32_t phases)
{
    enum { MOVES = 2000 };
    struct stages s = begin_stages(lanes, phases, 0);
    uint64_t completed[ROSTER_LANES_MAX] = {0}, next[STAGES] = {0};
    uint32_t passed[ROSTER_LANES_MAX] = {0};
    for (uint64_t move = 0; move < MOVES; move++) {
        uint32_t may[ROSTER_LANES_MAX], count = 0, in[STAGES] = {0};
        for (uint32_t lane = 0; lane < lanes; lane++)
            if (stages_clear(&s, lane, (enum stage)passed[lane])) {
                may[count++] = lane;
                in[passed[lane]]++;
            }
        assert_true(count > 0 && count <= phases);
        for (int stage = 0; stage < STAGES; stage++)
            assert_true(in[stage] <= 1);
        uint32_t lane = may[rng_below(seed, 1, move, count)];
        uint64_t tick = stages_tick(&s, lane);
        assert_int_equal(tick, completed[lane] * lanes + lane);
        assert_int_equal(tick, next[passed[lane]]++);
        if (++passed[lane] == STAGES) {
            passed[lane] = 0;
            completed[lane]++;
        }
        stages_set(&s, lane, completed[lane], passed[lane]);
    }
    assert_true(completed[lanes - 1] > 10);
}

static void test_stages_keep_lane_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++)
        for (uint32_t phases = 1; phases <= 3; phases++)
            for (uint32_t lanes = phases; lanes <= 8; lanes++)
                walk_randomly(seed, lanes, phases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_three_phases_pipeline),
        cmocka_unit_test(test_stages_two_phases),
        cmocka_unit_test(test_stages_one_phase),
        cmocka_unit_test(test_stages_tick_restarts),
        cmocka_unit_test(test_stages_wake_those_whose_turn_it_is),
        cmocka_unit_test(test_stages_wake_all_that_may_go_on),
        cmocka_unit_test(test_stages_keep_lane_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
