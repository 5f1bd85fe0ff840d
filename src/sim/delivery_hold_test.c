/* Nodes that stand still, and ways that are cut, broken or shuffled, timed by hand. */
#include "sim/scene.h"

#define LATENCY (100 * US)
#define BYTES   1000
#define SENT    (8 * US) /* a message's bytes on a gigabit link */

/* Worker 0 sends three messages to 1, and 1 answers each; each notes when it hears. */
static int exchange_three(struct scene *s, struct world *w)
{
    for (uint64_t i = 0; i < 3 && w->self == 0; i++)
        if (scene_send(w, 1, i, BYTES, CLASS_CONTROL) != OK)
            return ERR_PEER;
    for (uint64_t i = 0; i < 3 && w->self < 2; i++) {
        uint32_t from = 1 - w->self;
        int rc =
            scene_receive(w, from, i, BEGIN + 3 * WORLD_SECOND, &s->time[w->self * 10 + i], NULL);
        s->rc[w->self * 10 + i] = rc;
        if (w->self == 1 && rc == OK)
            scene_send(w, 0, i, BYTES, CLASS_CONTROL);
    }
    return world_sleep(w, BEGIN + 4 * WORLD_SECOND);
}

static struct scene play_scene(const char *cluster, int (*worker)(struct scene *s, struct world *w))
{
    struct scene s = {.cluster = cluster, .workers = 3, .worker = worker};
    assert_int_equal(scene_play(&s), OK);
    return s;
}

/* Messages that arrive while the node stands still are there when it continues, in their order. */
static void test_hold_halted_node_receives_later(void **state)
{
    (void)state;
    struct scene s =
        play_scene("node { count: 3 } fault { at: 9.9 pause: 1 for: 0.5 }", exchange_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(s.time[10 + i], BEGIN + 400 * MS);
    assert_int_equal(s.time[0], BEGIN + 400 * MS + SENT + LATENCY);
    assert_non_null(strstr(s.log, "pause 1\npause ends 1\n"));
}

static int work_a_second(struct scene *s, struct world *w)
{
    int rc = world_work(w, &(struct cost){1});
    s->time[w->self] = world_now(w);
    return rc;
}

static void test_work_stands_still_too(void **state)
{
    (void)state;
    struct scene s = play_scene("node { count: 3 } fault { at: 10.2 pause: 1 for: 0.3 }"
                                "fault { at: 10.4 pause: 1 for: 0.5 }",
                                work_a_second);
    assert_int_equal(s.time[0], BEGIN + WORLD_SECOND);
    assert_int_equal(s.time[1], BEGIN + 1700 * MS);
}

/* Killed while it stands, it unwinds at once. */
static void test_who_stands_still_can_die(void **state)
{
    (void)state;
    struct scene s = play_scene(
        "node { count: 3 } fault { at: 10.2 pause: 1 } fault { at: 10.3 kill: 1 }", work_a_second);
    assert_int_equal(s.time[1], BEGIN + 300 * MS);
}

static void test_a_cut_way_holds_what_is_on_it(void **state)
{
    (void)state;
    struct scene s =
        play_scene("node { count: 3 } fault { at: 9.9 part: 0 to: 1 for: 0.5 }", exchange_three);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.rc[10 + i], OK);
        assert_int_equal(s.time[10 + i], BEGIN + 400 * MS);
    }
    assert_int_equal(s.time[0], BEGIN + 400 * MS + SENT + LATENCY);
}

/* The second cut begins while the first holds, and ends later: the order stays. */
static void test_cuts_overlap(void **state)
{
    (void)state;
    struct scene s = play_scene("node { count: 3 } fault { at: 9.9 mute: 0 to: 1 for: 0.3 }"
                                "fault { at: 10.1 mute: 0 to: 1 for: 0.6 }",
                                exchange_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(s.time[10 + i], BEGIN + 700 * MS);
}

static void test_hold_mute_node_still_receives(void **state)
{
    (void)state;
    struct scene s =
        play_scene("node { count: 3 } fault { at: 9.9 mute: 1 to: 0 for: 0.5 }", exchange_three);
    assert_int_equal(s.time[10], BEGIN + SENT + LATENCY);
    assert_int_equal(s.time[0], BEGIN + 400 * MS);
}

/* Notes when its first peer goes. */
static int watch_peers(struct scene *s, struct world *w)
{
    const struct wait_for change = {.kind = WAIT_PEER};
    struct wake wake = {.up = true};
    while (wake.up && world_wait(w, &change, 1, BEGIN + 8 * WORLD_SECOND, &wake) == OK)
        ;
    if (wake.up)
        return OK;
    s->time[w->self] = world_now(w);
    s->time[10 + w->self] = wake.peer;
    s->rc[w->self] = scene_send(w, wake.peer, 1, BYTES, CLASS_CONTROL);
    return world_sleep(w, BEGIN + 8 * WORLD_SECOND);
}

static void test_who_does_not_answer_is_gone(void **state)
{
    (void)state;
    struct scene s = play_scene("node { count: 3 } fault { at: 11 mute: 0 to: 2 }", watch_peers);
    assert_int_equal(s.time[0], BEGIN + 6 * WORLD_SECOND);
    assert_int_equal(s.time[2], BEGIN + 6 * WORLD_SECOND);
    assert_int_equal(s.time[10], 2);
    assert_int_equal(s.time[12], 0);
    assert_int_equal(s.time[1], 0);
    /* Unless the way is open again before. */
    s = play_scene("node { count: 3 } fault { at: 11 part: 0 to: 2 for: 4.9 }", watch_peers);
    assert_int_equal(s.time[0], 0);
}

static void test_a_connection_breaks(void **state)
{
    (void)state;
    struct scene s = play_scene("node { count: 3 } fault { at: 11 reset: 2 to: 1 }", watch_peers);
    assert_int_equal(s.time[1], BEGIN + WORLD_SECOND);
    assert_int_equal(s.time[2], BEGIN + WORLD_SECOND);
    assert_int_equal(s.rc[1], ERR_PEER);
    assert_int_equal(s.rc[2], ERR_PEER);
    assert_int_equal(s.time[0], 0);
}

enum { CHAT = 20 };

/* Worker 0 sends CHAT messages of each class to 1, in turn. */
static int send_both_classes(struct scene *s, struct world *w)
{
    for (uint64_t i = 0; i < CHAT && w->self == 0; i++) {
        scene_send(w, 1, i, BYTES, CLASS_CONTROL);
        scene_send(w, 1, 100 + i, BYTES, CLASS_BULK);
    }
    for (uint64_t i = 0; i < 2 * CHAT && w->self == 1; i++) {
        const struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY};
        struct wake wake;
        int rc = world_wait(w, &any, 1, BEGIN + WORLD_SECOND, &wake);
        if (rc != OK)
            return rc;
        s->time[i] = (int64_t)wake.msg->tag;
        message_unref(wake.msg);
    }
    return world_sleep(w, BEGIN + 2 * WORLD_SECOND);
}

static int count_overtakings(const struct scene *s)
{
    int n = 0;
    int64_t next[2] = {0, 100};
    for (int i = 0; i < 2 * CHAT; i++) {
        int class = s->time[i] >= 100;
        assert_int_equal(s->time[i], next[class]); /* within a class: once, in order */
        next[class]++;
        int64_t ahead = (next[0]) - (next[1] - 100);
        n += ahead > 2 || ahead < -2;
    }
    return n;
}

static void test_shuffled_classes_overtake_each_other(void **state)
{
    (void)state;
    struct scene s = play_scene("node { count: 3 }", send_both_classes);
    assert_int_equal(count_overtakings(&s), 0);
    s = play_scene("node { count: 3 } fault { at: 9.9 shuffle: 0 seconds: 0.01 }",
                   send_both_classes);
    assert_true(count_overtakings(&s) > 0);
}

/* Sleeps until a time of its clock, and measures how long a leap makes it. */
static int sleep_over_leap(struct scene *s, struct world *w)
{
    int64_t slept = BEGIN + 3 * WORLD_SECOND;
    int rc = world_sleep(w, slept);
    s->time[w->self] = world_now(w) - slept;
    if (rc == OK && w->self == 0)
        scene_send(w, 1, 1, BYTES, CLASS_CONTROL);
    if (rc != OK || w->self != 1)
        return rc;
    const struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY};
    struct wake wake;
    rc = world_wait(w, &any, 1, world_now(w) + 10 * WORLD_SECOND, &wake);
    if (rc == OK)
        message_unref(wake.msg);
    s->time[3] = world_now(w) - slept;
    return rc;
}

/* Node 1's clock leaps by 2 s while both sleep for 3 s: it wakes up 2 s early, and on time by its
 * clock. Of a sleep that ends within the leap it wakes up late by its clock. */
static void test_a_clock_leaps(void **state)
{
    (void)state;
    struct scene s =
        play_scene("node { count: 3 } fault { at: 11 leap: 1 seconds: 2 }", sleep_over_leap);
    assert_int_equal(s.time[0], 0);
    assert_int_equal(s.time[1], 0);
    assert_true(s.time[3] >= 2 * WORLD_SECOND && s.time[3] < 2 * WORLD_SECOND + 10 * MS);
    s = play_scene("node { count: 3 } fault { at: 12 leap: 1 seconds: 2 }", sleep_over_leap);
    assert_int_equal(s.time[1], WORLD_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold_halted_node_receives_later),
        cmocka_unit_test(test_work_stands_still_too),
        cmocka_unit_test(test_who_stands_still_can_die),
        cmocka_unit_test(test_a_cut_way_holds_what_is_on_it),
        cmocka_unit_test(test_cuts_overlap),
        cmocka_unit_test(test_hold_mute_node_still_receives),
        cmocka_unit_test(test_who_does_not_answer_is_gone),
        cmocka_unit_test(test_a_connection_breaks),
        cmocka_unit_test(test_shuffled_classes_overtake_each_other),
        cmocka_unit_test(test_a_clock_leaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
