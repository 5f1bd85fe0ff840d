/* The roster: which members become leaves, and when they participate again. */
#include "group/roster_story.h"

static void begin_story(struct story *s, uint32_t workers, bool driver_takes_part)
{
    story_init(s, workers, driver_takes_part);
    s->roster.options.workers_max = workers + 1;
    for (uint32_t node = 0; node < workers; node++)
        joins(s, node);
}

static const char *ask_check(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_LINK_CHECK,
                                         .node = node,
                                         .view = s->roster.view.number,
                                         .grace = 20 * MS});
}

/* The link from `from` has carried 1,000 bytes in so many µs, in a second. */
static const char *reply_link(struct story *s, uint32_t node, uint32_t from, uint64_t us)
{
    return step(s, (struct roster_event){
                       .kind = ROSTER_LINK_REPORT,
                       .node = node,
                       .check = s->roster.check.number,
                       .link = {.from = from, .bytes = 1000, .ns = us * 1000, .span = 1000 * MS}});
}

static const char *time_is_over(struct story *s)
{
    return step(s, (struct roster_event){.kind = ROSTER_CHECK_ENDS});
}

static const char *keeps_pace(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_LEAF_READY, .node = node});
}

/* Of two members only `node` replies. */
static const char *other_is_silent(struct story *s, uint32_t node)
{
    ask_check(s, node);
    reply_link(s, node, 1 - node, 80000);
    return time_is_over(s);
}

/* Of three members, all but the last reply. */
static const char *last_is_silent(struct story *s)
{
    reply_link(s, 0, 2, 80000);
    reply_link(s, 1, 0, 80000);
    return time_is_over(s);
}

/* A ring of `workers` of which some have a slow link in, or out; all reply. */
static const char *check_ring(struct story *s, const uint32_t *node, size_t count, uint32_t slow_in,
                              uint32_t slow_out)
{
    const char *text = ask_check(s, node[0]);
    for (size_t i = 0; i < count; i++) {
        uint32_t from = node[(i + count - 1) % count];
        bool slow = node[i] == slow_in || from == slow_out;
        text = reply_link(s, node[i], from, slow ? 800000 : 80000);
    }
    return text;
}

static void test_roster_silent_member_becomes_a_leaf(void **state)
{
    struct story *s = *state;
    begin_story(s, 3, false);
    assert_string_equal(ask_check(s, 1), "check 1");
    assert_string_equal(ask_check(s, 0), ""); /* one at a time */
    assert_string_equal(last_is_silent(s), "leaf 2; view 2: 0 1 (2)");
    assert_string_equal(reply_link(s, 2, 1, 80000), ""); /* too late */
    assert_string_equal(time_is_over(s), "");
    assert_string_equal(keeps_pace(s, 2), "participates 2; view 3: 0 1 2");
}

/* Its doubt grows each time. */
static void test_roster_leaf_must_keep_pace_for_twice_as_long(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    for (unsigned rounds = 1; rounds <= 4; rounds *= 2) {
        assert_non_null(strstr(other_is_silent(s, 0), "leaf 1"));
        for (unsigned i = 1; i < rounds; i++)
            assert_string_equal(keeps_pace(s, 1), "");
        assert_non_null(strstr(keeps_pace(s, 1), "participates 1"));
    }
    assert_string_equal(keeps_pace(s, 1), ""); /* it is none */
    assert_string_equal(keeps_pace(s, 7), "");
}

static void test_roster_driver_with_a_slow_network_changes_nothing(void **state)
{
    struct story *s = *state;
    begin_story(s, 4, false);
    ask_check(s, 0);
    reply_link(s, 3, 2, 80000);
    assert_string_equal(time_is_over(s), "");
    ask_check(s, 0);
    assert_string_equal(time_is_over(s), "");
}

static void test_roster_slow_links_have_one_member_in_common(void **state)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t slow = 0; slow < 8; slow++) {
        struct story *s = *state;
        char want[40];
        begin_story(s, 8, true);
        assert_string_equal(check_ring(s, all, 8, 99, 99), "");
        const char *text = check_ring(s, all, 8, slow, slow);
        snprintf(want, sizeof want, "leaf %u; view 2:", slow);
        assert_memory_equal(text, want, strlen(want));
    }
}

/* A link that is slow in one direction has two ends, of which two checks take the wrong one: the
 * third takes the other, and the first participates again. */
static void test_roster_third_check_finds_the_slow_end(void **state)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4}, without_1[] = {0, 2, 3, 4};
    struct story *s = *state;
    begin_story(s, 5, true);
    assert_string_equal(check_ring(s, all, 5, 2, 99), "");
    assert_string_equal(check_ring(s, all, 5, 2, 99), "leaf 1; view 2: 0 (1) 2 3 4");
    assert_string_equal(check_ring(s, without_1, 4, 2, 99), "leaf 2; view 3: 0 (1) (2) 3 4");
    assert_string_equal(keeps_pace(s, 1), "participates 1; view 4: 0 1 (2) 3 4");
}

/* A link that is slow for once, and fast in the next check, is forgotten. */
static void test_roster_one_slow_link_is_forgotten(void **state)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4};
    struct story *s = *state;
    begin_story(s, 5, true);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(check_ring(s, all, 5, 2, 99), "");
        assert_string_equal(check_ring(s, all, 5, 99, 99), "");
    }
}

/* A third of the rate of others is not slow; and of two members none is slower than others. */
static void test_roster_some_difference_is_allowed(void **state)
{
    struct story *s = *state;
    begin_story(s, 3, true);
    ask_check(s, 0);
    reply_link(s, 0, 2, 290000);
    reply_link(s, 1, 0, 100000);
    assert_string_equal(reply_link(s, 2, 1, 290000), "");
    begin_story(s, 2, true);
    ask_check(s, 0);
    reply_link(s, 0, 1, 900000);
    assert_string_equal(reply_link(s, 1, 0, 1000), "");
}

/* A slow link that carries bytes for half of the time or less holds up no exchange. */
static void test_roster_idle_slow_link_does_not_matter(void **state)
{
    struct story *s = *state;
    begin_story(s, 4, true);
    ask_check(s, 0);
    reply_link(s, 0, 3, 4000);
    reply_link(s, 1, 0, 4000);
    reply_link(s, 2, 1, 400000);
    assert_string_equal(reply_link(s, 3, 2, 400000), "");
}

static void test_roster_lanes_wait_for_participants_only(void **state)
{
    struct story *s = *state;
    begin_story(s, 3, false);
    ask_check(s, 0);
    last_is_silent(s);
    assert_string_equal(reports(s, 0, 2, 0, 6), "");
    assert_string_equal(reports(s, 2, 2, 0, 9), ""); /* a leaf: does not count */
    assert_string_equal(reports(s, 1, 2, 0, 7), "go 0.2: 7 from 1 to 0");
}

static const char *former_leaf_reports(struct story *s, uint32_t node, uint64_t completed)
{
    return step(s, (struct roster_event){.kind = ROSTER_LANE_AT,
                                         .node = node,
                                         .view = s->roster.view.number,
                                         .completed = completed,
                                         .joined = true,
                                         .needs_sync = true,
                                         .was_leaf = true});
}

static const char *joiner_reports(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_LANE_AT,
                                         .node = node,
                                         .view = s->roster.view.number,
                                         .joined = true,
                                         .needs_sync = true});
}

/* Others may have repeated an exchange that the leaf completed too, with another result; but not
 * one that only the leaf completed. */
static void test_roster_former_leaf_adopts_unless_it_is_ahead(void **state)
{
    struct story *s = *state;
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        begin_story(s, 2, false);
        other_is_silent(s, 0);
        keeps_pace(s, 1);
        reports(s, 0, 3, 0, 7 - ahead);
        assert_string_equal(former_leaf_reports(s, 1, 7),
                            ahead ? "go 0.3: 7 from 1 to 0" : "go 0.3: 7 from 0 to 1");
    }
}

/* 0 has completed exchange 7 in view 1, alone; 1 has repeated it in view 2. */
static void test_roster_later_result_of_former_leaves_counts(void **state)
{
    struct story *s = *state;
    for (uint32_t later = 0; later < 2; later++) {
        begin_story(s, 2, false);
        for (uint32_t node = 0; node < 2; node++)
            step(s, (struct roster_event){.kind = ROSTER_LANE_AT,
                                          .node = node,
                                          .view = 1,
                                          .completed = 7,
                                          .joined = true,
                                          .needs_sync = true,
                                          .was_leaf = true,
                                          .made_in = node == later ? 2 : 1});
        assert_string_equal(s->text, later ? "go 0.1: 7 from 1 to 0" : "go 0.1: 7 from 0 to 1");
    }
}

static void test_roster_last_members_participate(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    other_is_silent(s, 0);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; view 3: 1");
    assert_string_equal(former_leaf_reports(s, 1, 4), "go 0.3: 4 from 1");
}

/* 1 becomes a leaf before it could send 0, a former leaf, its results: both participate again, and
 * 1 sends them. */
static void test_roster_results_of_leaves_are_not_lost(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    assert_string_equal(other_is_silent(s, 1), "leaf 0; view 2: (0) 1");
    assert_string_equal(keeps_pace(s, 0), "participates 0; view 3: 0 1");
    assert_string_equal(other_is_silent(s, 0), "leaf 1; view 4: 0 (1)");
    assert_string_equal(former_leaf_reports(s, 0, 17), "view 5: 0 1");
    former_leaf_reports(s, 0, 17);
    assert_string_equal(former_leaf_reports(s, 1, 28), "go 0.5: 28 from 1 to 0");
}

/* 1, which has the results, does not report while all participate: no member becomes a leaf for as
 * long as one may be silent. After that 0 continues with what it has. */
static void test_roster_leaf_that_does_not_report_is_given_up(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    other_is_silent(s, 1);
    keeps_pace(s, 0);
    other_is_silent(s, 0);
    assert_string_equal(former_leaf_reports(s, 0, 17), "view 5: 0 1");
    s->now += SILENCE - 1;
    assert_string_equal(other_is_silent(s, 0), "");
    s->now += 1;
    assert_string_equal(other_is_silent(s, 0), "leaf 1; view 6: 0 (1)");
    assert_string_equal(former_leaf_reports(s, 0, 17), "cut 1; drop 1; view 7: 0");
    assert_string_equal(former_leaf_reports(s, 0, 17), "go 0.7: 17 from 0");
}

/* The same, but only joiners would be left: 1 is asked again, as nobody can continue without it. */
static void test_roster_leaf_that_has_all_results_is_asked_again(void **state)
{
    struct story *s = *state;
    begin_story(s, 1, false);
    joins(s, 1);
    step(s, (struct roster_event){.kind = ROSTER_DONOR_READY, .node = 0, .other = 1});
    for (uint32_t view = 4; view < 10; view += 2) {
        char text[40];
        assert_non_null(strstr(other_is_silent(s, 1), "leaf 0"));
        snprintf(text, sizeof text, "view %u: 0 1", view);
        assert_string_equal(joiner_reports(s, 1), text);
        s->now += SILENCE;
    }
}

static void test_roster_leaf_is_no_donor(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    assert_string_equal(joins(s, 2), "ask 0 for 2");
    assert_string_equal(other_is_silent(s, 1),
                        "leaf 0; release 0 of 2; view 2: (0) 1; ask 1 for 2");
}

/* All who could be its donor are leaves, and the last participant has just joined. */
static void test_roster_former_joiner_becomes_a_donor(void **state)
{
    struct story *s = *state;
    begin_story(s, 2, false);
    s->roster.options.workers_max = 4;
    joins(s, 2);
    step(s, (struct roster_event){.kind = ROSTER_DONOR_READY, .node = 0, .other = 2});
    ask_check(s, 1);
    reply_link(s, 1, 0, 80000);
    reply_link(s, 2, 1, 80000);
    assert_string_equal(time_is_over(s), "leaf 0; view 3: (0) 1 2");
    ask_check(s, 2);
    reply_link(s, 2, 1, 80000);
    assert_string_equal(time_is_over(s), "leaf 1; view 4: (0) (1) 2");
    assert_string_equal(joins(s, 3), "");
    const struct roster_event joined = {
        .kind = ROSTER_JOIN_COMPLETE, .node = 2, .view = s->roster.view.number};
    assert_string_equal(step(s, joined), "ask 2 for 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roster_silent_member_becomes_a_leaf),
        cmocka_unit_test(test_roster_leaf_must_keep_pace_for_twice_as_long),
        cmocka_unit_test(test_roster_driver_with_a_slow_network_changes_nothing),
        cmocka_unit_test(test_roster_slow_links_have_one_member_in_common),
        cmocka_unit_test(test_roster_third_check_finds_the_slow_end),
        cmocka_unit_test(test_roster_one_slow_link_is_forgotten),
        cmocka_unit_test(test_roster_some_difference_is_allowed),
        cmocka_unit_test(test_roster_idle_slow_link_does_not_matter),
        cmocka_unit_test(test_roster_lanes_wait_for_participants_only),
        cmocka_unit_test(test_roster_former_leaf_adopts_unless_it_is_ahead),
        cmocka_unit_test(test_roster_later_result_of_former_leaves_counts),
        cmocka_unit_test(test_roster_last_members_participate),
        cmocka_unit_test(test_roster_results_of_leaves_are_not_lost),
        cmocka_unit_test(test_roster_leaf_that_does_not_report_is_given_up),
        cmocka_unit_test(test_roster_leaf_that_has_all_results_is_asked_again),
        cmocka_unit_test(test_roster_leaf_is_no_donor),
        cmocka_unit_test(test_roster_former_joiner_becomes_a_donor),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
