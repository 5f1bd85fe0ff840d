/* The roster: how joiners are admitted by donors. */
#include "group/roster_story.h"

static void begin_elastic(struct story *s, uint32_t most)
{
    story_init(s, 2, false);
    s->roster.options.workers_max = most;
    joins(s, 0);
    assert_string_equal(joins(s, 1), "join 1; view 1: 0 1");
}

static const char *donor_ready(struct story *s, uint32_t node, uint32_t other)
{
    return step(s, (struct roster_event){.kind = ROSTER_DONOR_READY, .node = node, .other = other});
}

static const char *join_complete(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){
                       .kind = ROSTER_JOIN_COMPLETE, .node = node, .view = s->roster.view.number});
}

static const char *lane_joined(struct story *s, uint32_t node, uint32_t view, uint64_t completed)
{
    return step(s, (struct roster_event){.kind = ROSTER_LANE_AT,
                                         .node = node,
                                         .view = view,
                                         .completed = completed,
                                         .joined = true});
}

static void test_roster_late_joiner_gets_a_donor(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    assert_string_equal(joins(s, 2), "ask 0 for 2");
    assert_string_equal(donor_ready(s, 0, 2), "join 2; view 2: 0 1 2");
    assert_string_equal(reports(s, 0, 2, 0, 7), "");
    assert_string_equal(lane_joined(s, 2, 2, 7), "");
    assert_string_equal(reports(s, 1, 2, 0, 6), "go 0.2: 7 from 0 to 1"); /* not from 2 */
}

static void test_roster_joins_one_at_a_time(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    assert_string_equal(joins(s, 4), "ask 0 for 4");
    assert_string_equal(joins(s, 2), "");
    assert_string_equal(joins(s, 3), "");
    assert_string_equal(donor_ready(s, 0, 4), "join 4; view 2: 0 1 4; ask 0 for 2");
    assert_string_equal(donor_ready(s, 0, 2), "join 2; view 3: 0 1 2 4");
    assert_string_equal(on_peer_down(s, 1), "dead 1; drop 1; view 4: 0 2 4; ask 0 for 3");
    assert_string_equal(donor_ready(s, 0, 3), "join 3; view 5: 0 2 3 4");
}

/* In a pause the donor may wait in an exchange: a paused member takes its place, and the donor's
 * late offer is declined. */
static void test_roster_paused_member_replaces_the_donor(void **state)
{
    struct story *s = *state;
    struct roster_event beat = {.kind = ROSTER_HEARTBEAT, .node = 1, .paused = true};
    begin_elastic(s, 4);
    assert_string_equal(step(s, beat), "");
    assert_string_equal(joins(s, 2), "ask 0 for 2");
    assert_string_equal(step(s, beat), "release 0 of 2; ask 1 for 2");
    assert_string_equal(donor_ready(s, 0, 2), "release 0 of 2");
    assert_string_equal(step(s, beat), "");
    beat.node = 0;
    assert_string_equal(step(s, beat), ""); /* the donor is paused, too */
    assert_string_equal(donor_ready(s, 1, 2), "join 2; view 2: 0 1 2");
    beat.node = 2;
    assert_string_equal(joins(s, 3), "ask 0 for 3");
    beats(s, 0, 5, true);
    assert_string_equal(step(s, beat), ""); /* a joiner is no donor */
}

/* A team: the driver is every joiner's donor. */
static void test_roster_driver_admits_all_that_wait(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    s->roster.options.driver_admits = true;
    assert_string_equal(joins(s, 3), "ask 4294967294 for 3");
    assert_string_equal(joins(s, 2), "");
    assert_string_equal(joins(s, 4), "");
    assert_string_equal(donor_ready(s, 0, 3), "release 0 of 3"); /* it is no donor */
    assert_string_equal(on_peer_down(s, 3), "drop 3; ask 4294967294 for 2");
    assert_string_equal(donor_ready(s, ROSTER_DRIVER, 3), "release 4294967294 of 3");
    assert_string_equal(donor_ready(s, ROSTER_DRIVER, 2),
                        "join 4; join 2; view 2: 0 1 2 4"); /* and it is full */
    assert_string_equal(joins(s, 5), "");
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 3: 1 2 4; ask 4294967294 for 5");
    on_peer_down(s, 1);
    /* It was the joiner for which the driver was asked. */
    assert_string_equal(on_peer_down(s, 2), "dead 2; drop 2; view 5: 4; release 4294967294 of 2");
    assert_string_equal(on_peer_down(s, 4), "dead 4; drop 4; view 6:");
    assert_string_equal(donor_ready(s, ROSTER_DRIVER, 5), "join 5; view 7: 5");
}

static void test_roster_waiting_joiner_leaves_silently(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    assert_string_equal(on_peer_down(s, 2), "drop 2");
    assert_string_equal(donor_ready(s, 0, 2), "release 0 of 2");
    assert_string_equal(joins(s, 2), "drop 2"); /* a number is one life */
    assert_string_equal(joins(s, 3), "ask 0 for 3");
    s->now += SILENCE - MS;
    beats(s, 0, 1, true);
    beats(s, 1, 1, true);
    beats(s, 3, 0, false);
    s->now += SILENCE - MS;
    beats(s, 0, 2, true);
    beats(s, 1, 2, true);
    assert_string_equal(ticks(s, s->now), "");
    s->now += 2 * MS;
    assert_string_equal(ticks(s, s->now), "drop 3");
}

static void test_roster_donor_dies_before_it_is_ready(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 2: 1; ask 1 for 2");
    assert_string_equal(donor_ready(s, 0, 2), "");
    assert_string_equal(donor_ready(s, 1, 2), "join 2; view 3: 1 2");
}

static void test_roster_donor_dies_with_the_state(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; fenced 2; drop 2; view 3: 1");
}

static void test_roster_joiner_outlives_its_donor(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    join_complete(s, 2);
    lane_joined(s, 2, 2, 7);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 3: 1 2");
    assert_string_equal(lane_joined(s, 2, 3, 7), "");
    assert_string_equal(reports(s, 1, 3, 0, 7), "go 0.3: 7 from 1");
}

/* Only the donor had exchange 7, and died: the others repeat it, and no joiner may be ahead of
 * it. */
static void test_roster_joiner_of_lost_exchange_is_fenced(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    join_complete(s, 2);
    lane_joined(s, 2, 2, 7);
    on_peer_down(s, 0);
    lane_joined(s, 2, 3, 7);
    assert_string_equal(reports(s, 1, 3, 0, 6), "fenced 2; drop 2; view 4: 1");
    assert_string_equal(reports(s, 1, 4, 0, 6), "go 0.4: 6 from 1");
}

static void test_roster_joining_member_is_no_donor(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    joins(s, 3);
    join_complete(s, 2);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 3: 1 2; ask 1 for 3");
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    assert_string_equal(on_peer_down(s, 1), "dead 1; drop 1; view 3: 0 2");
    joins(s, 3);
    assert_string_equal(leaves(s, 2), "leave 2; drop 2; view 4: 0; release 0 of 2");
}

/* 0 donors 2 and is the last member that has the model for sure. */
static void leave_to_a_joiner(struct story *s)
{
    begin_elastic(s, 4);
    joins(s, 2);
    donor_ready(s, 0, 2);
    assert_string_equal(leaves(s, 1), "leave 1; drop 1; view 3: 0 2");
    assert_string_equal(leaves(s, 0), "");
}

static void test_roster_leave_waits_for_the_joiners_report(void **state)
{
    struct story *s = *state;
    leave_to_a_joiner(s);
    assert_string_equal(joins(s, 3), ""); /* its donor would leave */
    assert_string_equal(ticks(s, s->now), "");
    assert_string_equal(join_complete(s, 2), "leave 0; drop 0; view 4: 2; ask 2 for 3");
}

static void test_roster_needed_member_outlives_the_joiner(void **state)
{
    struct story *s = *state;
    leave_to_a_joiner(s);
    assert_string_equal(on_peer_down(s, 2), "dead 2; drop 2; view 4: 0; release 0 of 2");
    assert_string_equal(joins(s, 3), "");
    assert_string_equal(leaves(s, 0), "");
    assert_string_equal(ticks(s, s->now), "");
}

static void test_roster_leave_gives_a_silent_joiner_up(void **state)
{
    struct story *s = *state;
    leave_to_a_joiner(s);
    for (int64_t end = s->now + STALL; s->now <= end; s->now += SILENCE / 2) {
        beats(s, 0, 1, false);
        beats(s, 2, 1, false);
        assert_string_equal(ticks(s, s->now), "");
    }
    beats(s, 0, 1, false);
    beats(s, 2, 1, false);
    assert_string_equal(ticks(s, s->now), "fenced 2; drop 2; view 4: 0; release 0 of 2");
    assert_string_equal(ticks(s, s->now), "");
}

static const char *want_members(struct story *s, uint32_t n)
{
    return step(s, (struct roster_event){.kind = ROSTER_WANT, .node = ROSTER_NO_NODE, .other = n});
}

static void grow_to_four(struct story *s)
{
    begin_elastic(s, 4);
    for (uint32_t node = 2; node < 4; node++) {
        joins(s, node);
        donor_ready(s, 0, node);
        join_complete(s, node);
    }
}

static void test_roster_shrinks_and_grows(void **state)
{
    struct story *s = *state;
    grow_to_four(s);
    assert_string_equal(want_members(s, 2), "part 3; part 2"); /* the latest to come */
    assert_string_equal(want_members(s, 2), "");
    assert_string_equal(joins(s, 4), ""); /* it stands by */
    assert_string_equal(leaves(s, 3), "leave 3; drop 3; view 4: 0 1 2");
    assert_string_equal(want_members(s, 3), "ask 0 for 4"); /* 2 has been asked, and will leave */
    assert_string_equal(leaves(s, 2), "leave 2; drop 2; view 5: 0 1");
    assert_string_equal(donor_ready(s, 0, 4), "join 4; view 6: 0 1 4");
    assert_string_equal(joins(s, 5), "");
    assert_string_equal(want_members(s, 99), "ask 0 for 5"); /* as many as there may be */
    assert_string_equal(join_complete(s, 4), "");
    assert_string_equal(want_members(s, 0), "part 4; part 1"); /* one has to stay */
}

/* A donor is not released, and neither is its joiner until the join is complete. */
static void test_roster_donor_is_not_released(void **state)
{
    struct story *s = *state;
    begin_elastic(s, 4);
    joins(s, 2);
    assert_string_equal(want_members(s, 1), "part 1"); /* 0 donors 2 */
    assert_string_equal(donor_ready(s, 0, 2), "join 2; view 2: 0 1 2");
    assert_string_equal(leaves(s, 1), "leave 1; drop 1; view 3: 0 2");
    assert_string_equal(join_complete(s, 2), "part 2");
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 4: 2");
}

/* If no worker may join a run under way, none is rejected either. */
static void test_roster_fixed_group(void **state)
{
    struct story *s = *state;
    story_init(s, 2, false);
    joins(s, 0);
    joins(s, 1);
    assert_string_equal(want_members(s, 1), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roster_late_joiner_gets_a_donor),
        cmocka_unit_test(test_roster_joins_one_at_a_time),
        cmocka_unit_test(test_roster_paused_member_replaces_the_donor),
        cmocka_unit_test(test_roster_driver_admits_all_that_wait),
        cmocka_unit_test(test_roster_waiting_joiner_leaves_silently),
        cmocka_unit_test(test_roster_donor_dies_before_it_is_ready),
        cmocka_unit_test(test_roster_donor_dies_with_the_state),
        cmocka_unit_test(test_roster_joiner_outlives_its_donor),
        cmocka_unit_test(test_roster_joiner_of_lost_exchange_is_fenced),
        cmocka_unit_test(test_roster_joining_member_is_no_donor),
        cmocka_unit_test(test_roster_leave_waits_for_the_joiners_report),
        cmocka_unit_test(test_roster_needed_member_outlives_the_joiner),
        cmocka_unit_test(test_roster_leave_gives_a_silent_joiner_up),
        cmocka_unit_test(test_roster_shrinks_and_grows),
        cmocka_unit_test(test_roster_donor_is_not_released),
        cmocka_unit_test(test_roster_fixed_group),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
