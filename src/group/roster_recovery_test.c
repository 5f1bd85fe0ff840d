/* Driver recovery in the roster: returned workers, awaited workers, lost workers. */
#include "group/roster_story.h"

#define GRACE INT64_C(5000000000) /* ns: no member is awaited for longer */

static void restart_driver(struct story *s, uint32_t workers, uint32_t view, const char *last)
{
    struct roster_options options = {
        .workers = workers,
        .workers_max = workers,
        .incarnation = 4,
        .silence_max = SILENCE,
        .stall_max = STALL,
        .recovers = true,
        .last_view = view,
        .last_incarnation = view ? 3 : 0,
    };
    for (; *last; last++)
        members_add(&options.last, (uint32_t)(*last - '0'));
    memset(s, 0, sizeof *s);
    roster_init(&s->roster, &options);
}

/* From `view` of driver `incarnation`, which held `who`. */
static const char *returns_after(struct story *s, uint32_t node, uint32_t incarnation,
                                 uint32_t view, const char *members, int64_t round)
{
    struct members set = {{0}};
    for (; *members; members++)
        members_add(&set, (uint32_t)(*members - '0'));
    return step(s, (struct roster_event){.kind = ROSTER_RECONNECT,
                                         .node = node,
                                         .address = "host:1",
                                         .view = view,
                                         .incarnation = incarnation,
                                         .members = &set,
                                         .elders = &set,
                                         .round = round});
}

static const char *returns_from(struct story *s, uint32_t node, uint32_t incarnation, uint32_t view,
                                const char *members)
{
    return returns_after(s, node, incarnation, view, members, 0);
}

static const char *wait_ns(struct story *s, int64_t ns)
{
    s->now += ns;
    return step(s, (struct roster_event){.kind = ROSTER_TICK, .node = ROSTER_NO_NODE});
}

static void test_recovery_all_reconnect(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "025");
    assert_string_equal(returns_from(s, 5, 3, 7, "025"), "");
    assert_string_equal(returns_from(s, 0, 3, 7, "025"), "");
    assert_string_equal(returns_from(s, 2, 3, 7, "025"), "back 5; back 0; back 2; view 8: 0 2 5");
    assert_int_equal(s->roster.view.incarnation, 4);
    assert_string_equal(returns_from(s, 5, 3, 7, "025"), "rejoin 5"); /* it is in already */
}

/* A member that has not reconnected in time is dead; a reconnect after that is too late. */
static void test_recovery_wait_is_bounded(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "012");
    assert_string_equal(wait_ns(s, MS), "");
    assert_string_equal(returns_from(s, 1, 3, 7, "012"), "");
    assert_string_equal(wait_ns(s, SILENCE - 1), "");
    assert_string_equal(returns_from(s, 2, 3, 7, "012"), "");
    assert_string_equal(wait_ns(s, 1), "back 1; back 2; dead 0; want 1; view 8: 1 2");
    assert_string_equal(returns_from(s, 0, 3, 7, "012"), "rejoin 0");
}

/* Members that call several addresses may come a round of calls after each other, but no member is
 * awaited for longer than 5 s. */
static void test_recovery_waits_for_a_round_of_calls(void **state)
{
    struct story *s = *state;
    restart_driver(s, 2, 7, "01");
    assert_string_equal(wait_ns(s, MS), "");
    assert_string_equal(returns_after(s, 1, 3, 7, "01", 3 * SILENCE), "");
    assert_string_equal(wait_ns(s, 3 * SILENCE - 1), "");
    assert_string_equal(beats(s, 1, 0, false), "");
    assert_string_equal(wait_ns(s, 1), "back 1; dead 0; want 1; view 8: 1");
    restart_driver(s, 2, 7, "01");
    assert_string_equal(wait_ns(s, MS), "");
    assert_string_equal(returns_after(s, 1, 3, 7, "01", 100 * GRACE), "");
    assert_string_equal(wait_ns(s, GRACE - 1), "");
    assert_string_equal(beats(s, 1, 0, false), "");
    assert_string_equal(wait_ns(s, 1), "back 1; dead 0; want 1; view 8: 1");
}

/* Waiting workers replace lost ones, and replacements are requested: the total is the run's first
 * number of workers. */
static void test_recovery_refills_standbys(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "012");
    s->roster.options.standby = 2;
    assert_string_equal(returns_from(s, 1, 3, 7, "012"), "");
    assert_string_equal(joins(s, 4), "");
    assert_string_equal(joins(s, 5), "");
    assert_string_equal(wait_ns(s, SILENCE),
                        "back 1; dead 0; dead 2; want 2; view 8: 1; ask 1 for 4");
    restart_driver(s, 2, 7, "01");
    s->roster.options.standby = 1;
    assert_string_equal(wait_ns(s, MS), "");
    assert_string_equal(wait_ns(s, GRACE - 1), "");
    assert_string_equal(wait_ns(s, 1), "want 3"); /* nobody is left */
}

/* Only a leaf has received the newest view. It must rejoin, and no later view has that number. */
static void test_recovery_outnumbers_the_view_of_a_leaf(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "012");
    assert_string_equal(returns_from(s, 2, 3, 9, "0"), "rejoin 2");
    assert_string_equal(returns_from(s, 0, 3, 8, "01"), "");
    assert_string_equal(returns_from(s, 1, 3, 8, "01"), "back 0; back 1; want 1; view 10: 0 1");
}

/* The last driver made a view that not all have received: its members belong to the run, whatever
 * view they return with; removed ones do not. */
static void test_recovery_newest_view_counts(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 0, "");
    assert_string_equal(returns_from(s, 0, 3, 7, "0123"), "");
    assert_string_equal(returns_from(s, 2, 3, 7, "0123"), "");
    assert_string_equal(returns_from(s, 3, 3, 8, "013"), "");
    assert_string_equal(returns_from(s, 1, 3, 7, "0123"),
                        "back 0; rejoin 2; back 3; back 1; view 9: 0 1 3");
}

/* A view of an older driver is older, whatever its number; and no number is given twice. */
static void test_recovery_outranks_older_driver(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "01");
    assert_string_equal(returns_from(s, 2, 2, 20, "2"), "");
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "");
    assert_string_equal(returns_from(s, 1, 3, 7, "01"),
                        "rejoin 2; back 0; back 1; want 1; view 21: 0 1");
    restart_driver(s, 3, 7, "01");
    assert_string_equal(returns_from(s, 0, 4, 8, "01"), "rejoin 0"); /* another of our own rank */
    assert_string_equal(returns_from(s, 1, 5, 8, "01"), "rejoin 1"); /* it has met a newer one */
}

/* No member reconnects: the run starts from the driver's own state, with workers that join as new
 * members. */
static void test_recovery_without_reconnects(void **state)
{
    struct story *s = *state;
    restart_driver(s, 2, 7, "01");
    assert_string_equal(joins(s, 2), "");
    assert_string_equal(wait_ns(s, MS), "");
    for (int64_t waited = SILENCE / 2; waited < GRACE; waited += SILENCE / 2) {
        assert_string_equal(wait_ns(s, SILENCE / 2), "");
        assert_string_equal(beats(s, 2, 0, false), "");
    }
    assert_string_equal(wait_ns(s, SILENCE / 2), "join 2; want 1");
    assert_string_equal(joins(s, 3), "join 3; view 1: 2 3");
}

/* A worker that the newest view had excluded neither shortens the wait for others nor counts as a
 * member to continue with. */
static void test_recovery_of_an_excluded_member(void **state)
{
    struct story *s = *state;
    restart_driver(s, 2, 7, "01");
    assert_string_equal(returns_from(s, 2, 3, 6, "012"), "");
    assert_string_equal(wait_ns(s, MS), "");
    assert_string_equal(wait_ns(s, GRACE - 1), "");
    assert_string_equal(wait_ns(s, 1), "rejoin 2; want 2");
    assert_string_equal(returns_from(s, 1, 3, 7, "01"), "");
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "back 1; back 0; view 8: 0 1");
}

/* A driver without memory of the last view starts with joiners; until the first view has formed,
 * joiners wait for workers that reconnect. */
static void test_recovery_reconnects_before_joiners(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 0, "");
    assert_string_equal(joins(s, 4), "join 4");
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "");
    assert_string_equal(joins(s, 5), "");
    assert_string_equal(returns_from(s, 1, 3, 7, "01"), "back 0; back 1; view 8: 0 1; ask 0 for 4");
    restart_driver(s, 2, 0, "");
    joins(s, 4);
    assert_string_equal(joins(s, 5), "join 5; view 1: 4 5");
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "rejoin 0");
}

/* A returned worker dies before the others have returned; it may even return again. */
static void test_recovery_member_dies_during_wait(void **state)
{
    struct story *s = *state;
    restart_driver(s, 3, 7, "012");
    returns_from(s, 0, 3, 7, "012");
    returns_from(s, 1, 3, 7, "012");
    assert_string_equal(on_peer_down(s, 0), "drop 0");
    assert_string_equal(returns_from(s, 2, 3, 7, "012"), "");
    assert_string_equal(returns_from(s, 0, 3, 7, "012"), "back 0; back 1; back 2; view 8: 0 1 2");
    restart_driver(s, 2, 7, "01");
    returns_from(s, 0, 3, 7, "01");
    assert_string_equal(on_peer_down(s, 0), "drop 0");
    assert_string_equal(wait_ns(s, SILENCE), "want 2"); /* and no worker is left */
}

/* A driver that has a part in all lanes brings nothing to them when it returns. */
static void test_recovery_driver_lacks_the_result(void **state)
{
    struct story *s = *state;
    restart_driver(s, 2, 7, "01");
    s->roster.options.driver_takes_part = true;
    returns_from(s, 0, 3, 7, "01");
    returns_from(s, 1, 3, 7, "01");
    struct roster_event at = {
        .kind = ROSTER_LANE_AT, .view = 8, .completed = 0, .needs_sync = true};
    at.node = ROSTER_DRIVER;
    at.joined = true;
    assert_string_equal(step(s, at), "");
    at.needs_sync = at.joined = false;
    at.node = 0;
    at.completed = 5;
    assert_string_equal(step(s, at), "");
    at.node = 1;
    at.completed = 6;
    assert_string_equal(step(s, at), "go 0.8: 6 from 1 to 0 driver");
}

/* Members that do not reconnect, or never were members, do not matter. */
static void test_recovery_disabled_all_rejoin(void **state)
{
    struct story *s = *state;
    story_init(s, 2, false);
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "rejoin 0");
    assert_string_equal(joins(s, 2), "join 2");
    assert_string_equal(joins(s, 3), "join 3; view 1: 2 3");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Reconnects that no driver can have caused: an empty view, the largest numbers. */
static void test_recovery_ignores_invalid_reconnects(void **state)
{
    struct story *s = *state;
    restart_driver(s, 2, 7, "01");
    assert_string_equal(returns_from(s, 0, 3, 9, ""), "rejoin 0");
    assert_string_equal(returns_from(s, 0, 3, UINT32_MAX, "01"), "rejoin 0");
    assert_string_equal(returns_from(s, 0, 3, 0, "01"), "rejoin 0");
    assert_string_equal(returns_from(s, 0, 3, 7, "01"), "");
    assert_string_equal(returns_from(s, 1, 3, 7, "01"), "back 0; back 1; view 8: 0 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_recovery_all_reconnect),
        TEST(test_recovery_wait_is_bounded),
        TEST(test_recovery_waits_for_a_round_of_calls),
        TEST(test_recovery_refills_standbys),
        TEST(test_recovery_newest_view_counts),
        TEST(test_recovery_outnumbers_the_view_of_a_leaf),
        TEST(test_recovery_outranks_older_driver),
        TEST(test_recovery_without_reconnects),
        TEST(test_recovery_of_an_excluded_member),
        TEST(test_recovery_ignores_invalid_reconnects),
        TEST(test_recovery_reconnects_before_joiners),
        TEST(test_recovery_member_dies_during_wait),
        TEST(test_recovery_driver_lacks_the_result),
        TEST(test_recovery_disabled_all_rejoin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
