/* Seats of a model in slices, as stories (roster_story.h). */
#include "group/roster_story.h"

/* A group of `replicas` of `slices` in view 1, worker w on seat w. */
static void form_replicas(struct story *s, uint32_t replicas, uint32_t slices)
{
    story_init(s, replicas * slices, false);
    s->roster.options.slices = slices;
    s->roster.options.workers_max = replicas > 1 ? replicas * slices : 0;
    for (uint32_t node = 0; node < replicas * slices; node++)
        joins(s, node);
    assert_int_equal(s->roster.view.number, 1);
}

static void expect_seats(const struct story *s, const char *expected)
{
    const struct view *view = &s->roster.view;
    char text[256] = "";
    for (uint32_t seat = 0; seat < VIEW_MEMBERS_MAX; seat++) {
        uint32_t node = view_seated(view, seat);
        size_t used = strlen(text);
        if (node != VIEW_MEMBERS_MAX)
            snprintf(text + used, sizeof text - used, "%s%u:%u%s", used ? " " : "", seat, node,
                     members_has(&view->fresh, node) ? "*" : "");
    }
    assert_string_equal(text, expected);
}

static const char *has_state_of(struct story *s, uint32_t node, uint32_t view)
{
    return step(s, (struct roster_event){.kind = ROSTER_JOIN_COMPLETE, .node = node, .view = view});
}

static const char *has_state(struct story *s, uint32_t node)
{
    return has_state_of(s, node, s->roster.view.number);
}

static void test_workers_of_the_first_view_have_seats(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    expect_seats(s, "0:0 1:1 2:2 3:3");
}

static void test_a_successor_takes_the_free_seat(void **state)
{
    struct story *s = *state;
    story_init(s, 3, false);
    s->roster.options.slices = 3;
    joins(s, 0);
    joins(s, 1);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0");
    joins(s, 3);
    assert_string_equal(joins(s, 4), "join 4; view 1: 1 3 4");
    expect_seats(s, "0:3 1:1 2:4");
}

/* The slice that it has had since is also the one that it gets again. */
static void test_a_successor_keeps_its_slice(void **state)
{
    struct story *s = *state;
    story_init(s, 4, false);
    s->roster.options.slices = 2;
    s->roster.options.workers_max = 4;
    for (uint32_t node = 0; node < 3; node++)
        joins(s, node);
    on_peer_down(s, 1);
    joins(s, 3);
    joins(s, 4);
    expect_seats(s, "0:0 1:4 2:2 3:3");
    on_peer_down(s, 0);
    joins(s, 5);
    expect_seats(s, "0:5* 1:4* 2:2 3:3");
}

static void test_a_lost_slice_unseats_its_replica(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 3);
    assert_string_equal(on_peer_down(s, 4),
                        "dead 4; drop 4; unseated 3; unseated 5; view 2: 0 1 2 (3) (5)");
    expect_seats(s, "0:0 1:1 2:2");
    /* It is the last one: nobody has the slice, and the run ends. */
    assert_string_equal(on_peer_down(s, 1), "dead 1; drop 1; view 3: 0 2 (3) (5)");
    expect_seats(s, "0:0 2:2");
}

static void test_a_joiner_completes_a_replica(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    on_peer_down(s, 2);
    expect_seats(s, "0:0 1:1");
    assert_string_equal(joins(s, 7), "seated 3; join 7; view 3: 0 1 3 7");
    expect_seats(s, "0:0 1:1 2:7* 3:3*");
    assert_string_equal(has_state(s, 3), "");
    assert_string_equal(has_state(s, 7), "");
    /* From now on it can give its state away. */
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; unseated 1; view 4: (1) 3 7");
    expect_seats(s, "2:7 3:3");
}

/* A worker that waits is seated in the step in which the replica is lost. */
static void test_a_standby_is_seated_at_once(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    assert_string_equal(joins(s, 4), "");
    on_peer_down(s, 3);
    assert_int_equal(s->roster.view.number, 3);
    expect_seats(s, "0:0 1:1 2:2* 3:4*");
}

static void test_a_joiner_without_its_state_gives_none(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    joins(s, 4);
    on_peer_down(s, 3);
    has_state(s, 2); /* 4 has not said so */
    on_peer_down(s, 1);
    expect_seats(s, "0:0 2:2 3:4*");
}

/* It was sent before its replica was lost, and seated again. */
static void test_the_state_of_an_earlier_seat_counts_for_nothing(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    joins(s, 4);
    on_peer_down(s, 3);
    expect_seats(s, "0:0 1:1 2:2* 3:4*");
    uint32_t view = s->roster.view.number;
    on_peer_down(s, 2);
    joins(s, 5);
    expect_seats(s, "0:0 1:1 2:5* 3:4*");
    assert_string_equal(has_state_of(s, 4, view), "");
    assert_string_equal(has_state(s, 5), "");
    on_peer_down(s, 1);
    expect_seats(s, "0:0 2:5 3:4*"); /* that replica is not whole */
}

/* In the next view it receives all of its state again. */
static void test_the_state_of_an_earlier_view_counts_for_nothing(void **state)
{
    struct story *s = *state;
    form_replicas(s, 3, 2);
    joins(s, 6);
    on_peer_down(s, 3);
    uint32_t view = s->roster.view.number;
    on_peer_down(s, 4);
    has_state_of(s, 6, view);
    has_state_of(s, 2, view);
    on_peer_down(s, 0);
    expect_seats(s, "1:1 2:2* 3:6*");
}

static void test_a_joiner_is_lost(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    joins(s, 4);
    on_peer_down(s, 3);
    assert_string_equal(on_peer_down(s, 4), "dead 4; drop 4; unseated 2; view 4: 0 1 (2)");
    assert_string_equal(joins(s, 5), "seated 2; join 5; view 5: 0 1 2 5");
    expect_seats(s, "0:0 1:1 2:2* 3:5*");
}

/* Two members without a seat had the same slice: one gets another. */
static void test_members_without_a_seat_make_a_replica(void **state)
{
    struct story *s = *state;
    form_replicas(s, 3, 2);
    on_peer_down(s, 2);
    on_peer_down(s, 4);
    expect_seats(s, "0:0 1:1 2:5* 3:3*");
}

static void test_no_joiner_where_all_seats_are_taken(void **state)
{
    struct story *s = *state;
    form_replicas(s, 2, 2);
    assert_string_equal(joins(s, 4), "");
    assert_string_equal(joins(s, 5), "");
    assert_int_equal(s->roster.view.number, 1);
    assert_string_equal(leaves(s, 5), "drop 5");
}

/* ---- a recovered driver ---- */

/* The driver of two replicas of two slices restarts; view 7 was its last. */
static void restart_driver(struct story *s)
{
    struct roster_options options = {
        .workers = 4,
        .workers_max = 4,
        .slices = 2,
        .incarnation = 4,
        .silence_max = SILENCE,
        .stall_max = STALL,
        .recovers = true,
        .last_view = 7,
        .last_incarnation = 3,
    };
    for (uint32_t node = 0; node < 4; node++)
        members_add(&options.last, node);
    memset(s, 0, sizeof *s);
    roster_init(&s->roster, &options);
}

/* From that view, whose members 0 to 3 have these seats, '-' none or not its state. */
static const char *reconnects_from(struct story *s, uint32_t node, uint32_t view, const char *seats)
{
    struct members set = {{0}};
    uint32_t seated[VIEW_MEMBERS_MAX] = {0};
    for (uint32_t i = 0; seats[i]; i++) {
        members_add(&set, i);
        seated[i] = seats[i] == '-' ? 0 : (uint32_t)(seats[i] - '0') + 1;
    }
    return step(s, (struct roster_event){.kind = ROSTER_RECONNECT,
                                         .node = node,
                                         .address = "host:1",
                                         .view = view,
                                         .incarnation = 3,
                                         .members = &set,
                                         .elders = &set,
                                         .seated = seated});
}

static void test_all_return_to_their_seats(void **state)
{
    struct story *s = *state;
    restart_driver(s);
    reconnects_from(s, 2, 7, "1032");
    reconnects_from(s, 0, 7, "1032");
    reconnects_from(s, 3, 7, "1032");
    assert_string_equal(reconnects_from(s, 1, 7, "1032"),
                        "back 2; back 0; back 3; back 1; view 8: 0 1 2 3");
    expect_seats(s, "0:1 1:0 2:3 3:2");
}

/* The replica of one that does not return waits for another worker. */
static void test_a_replica_returns_without_a_slice(void **state)
{
    struct story *s = *state;
    restart_driver(s);
    for (uint32_t node = 0; node < 3; node++)
        assert_string_equal(reconnects_from(s, node, 7, "0123"), "");
    assert_string_equal(ticks(s, s->now + SILENCE),
                        "back 0; back 1; back 2; dead 3; unseated 2; want 1; view 8: 0 1 (2)");
    expect_seats(s, "0:0 1:1");
    assert_string_equal(joins(s, 7), "seated 2; join 7; view 9: 0 1 2 7");
    expect_seats(s, "0:0 1:1 2:2* 3:7*");
}

/* Others do not know that a joiner has got its state; and one that has none gets it again. */
static void test_joiners_return_with_and_without_their_state(void **state)
{
    struct story *s = *state;
    restart_driver(s);
    reconnects_from(s, 0, 7, "01--");
    reconnects_from(s, 2, 7, "012-");
    reconnects_from(s, 1, 7, "01--");
    reconnects_from(s, 3, 7, "01-3");
    expect_seats(s, "0:0 1:1 2:2 3:3");
    restart_driver(s);
    reconnects_from(s, 3, 7, "01-3");
    reconnects_from(s, 2, 7, "01--");
    reconnects_from(s, 1, 7, "01--");
    assert_string_equal(reconnects_from(s, 0, 7, "01--"),
                        "back 3; back 2; back 1; back 0; unseated 3; unseated 2; "
                        "view 9: 0 1 2 3; seated 2; seated 3; view 9: 0 1 2 3");
    expect_seats(s, "0:0 1:1 2:2* 3:3*");
}

/* In the newest view it has another seat, whose state it has not got. */
static void test_an_old_seat_does_not_count(void **state)
{
    struct story *s = *state;
    restart_driver(s);
    reconnects_from(s, 2, 6, "0123");
    reconnects_from(s, 0, 7, "01-3");
    reconnects_from(s, 1, 6, "0123");
    reconnects_from(s, 3, 7, "01-3");
    expect_seats(s, "0:0 1:1 2:2* 3:3*");
}

/* Each slice is there, and no replica: all join again, and have seats in the first view. */
static void test_no_replica_returns_whole(void **state)
{
    struct story *s = *state;
    restart_driver(s);
    assert_string_equal(reconnects_from(s, 0, 7, "0123"), "");
    assert_string_equal(reconnects_from(s, 3, 7, "0123"), "");
    assert_string_equal(joins(s, 9), "");
    assert_string_equal(ticks(s, s->now + SILENCE), "rejoin 0; rejoin 3; join 9; want 3");
    for (uint32_t node = 4; node < 6; node++)
        joins(s, node);
    assert_string_equal(joins(s, 6), "join 6; view 1: 4 5 6 9");
    expect_seats(s, "0:9 1:4 2:5 3:6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_workers_of_the_first_view_have_seats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_successor_takes_the_free_seat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_successor_keeps_its_slice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_slice_unseats_its_replica, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_joiner_completes_a_replica, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_standby_is_seated_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_joiner_without_its_state_gives_none, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_state_of_an_earlier_seat_counts_for_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_state_of_an_earlier_view_counts_for_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_joiner_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_members_without_a_seat_make_a_replica, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_joiner_where_all_seats_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_return_to_their_seats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_replica_returns_without_a_slice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joiners_return_with_and_without_their_state, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_old_seat_does_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_replica_returns_whole, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
