/* When a driver is silent for too long, by the listener's clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "group/listener.h"

#include "wire/catalogue.h"

enum { PERIOD = 125, SILENCE = 1000 };

static void test_liveness_beat_keeps_driver_alive(void **state)
{
    (void)state;
    struct driver_liveness liveness = {.last_beat = 1000, .looked = 1000};
    for (int64_t now = 1000 + PERIOD; now < 20000; now += PERIOD) {
        if (now % 1000 == 0)
            liveness.last_beat = now;
        assert_false(driver_liveness_expired(&liveness, now, PERIOD, SILENCE));
    }
}

static void test_liveness_silence_expires(void **state)
{
    (void)state;
    struct driver_liveness liveness = {.last_beat = 1000, .looked = 1000};
    int64_t now = 1000 + PERIOD;
    while (!driver_liveness_expired(&liveness, now, PERIOD, SILENCE))
        now += PERIOD;
    assert_int_equal(now, 1000 + SILENCE + PERIOD);
}

/* A node that was stopped for an hour has received nothing, which does not count as silence. */
static void test_liveness_own_pause_is_not_counted(void **state)
{
    (void)state;
    struct driver_liveness liveness = {.last_beat = 1000, .looked = 1000};
    assert_false(driver_liveness_expired(&liveness, 1000 + PERIOD, PERIOD, SILENCE));
    int64_t now = 3600000;
    assert_false(driver_liveness_expired(&liveness, now, PERIOD, SILENCE));
    for (int i = 0; i < SILENCE / PERIOD - 2; i++)
        assert_false(driver_liveness_expired(&liveness, now += PERIOD, PERIOD, SILENCE));
    assert_true(driver_liveness_expired(&liveness, now += 2 * PERIOD, PERIOD, SILENCE));
}

static void test_group_return_is_decoded_whole(void **state)
{
    (void)state;
    enum {
        ELDERS = 8 + 8 * MEMBER_WORDS,
        SEATS = ELDERS + 8 * MEMBER_WORDS,
        HELLO = SEATS + 2 * 4
    };
    uint8_t bytes[HELLO + 4 + 3 + 8 * GROUP_REPORT + 4] = {7, 0, 0, 0, 3};
    struct group_return back;
    bytes[8] = 1 << 1 | 1 << 4;  /* two members, */
    bytes[ELDERS] = 1 << 4;      /* the second an elder, */
    bytes[SEATS + 4] = 6;        /* with a seat */
    bytes[HELLO] = 3;            /* the hello's length */
    bytes[sizeof bytes - 3] = 2; /* 512 ms */
    assert_int_equal(group_return_decode(bytes, sizeof bytes, &back), OK);
    assert_int_equal(back.view, 7);
    assert_int_equal(back.incarnation, 3);
    assert_int_equal(back.hello_len, 3);
    const struct members elder = members_only(4);
    assert_memory_equal(&back.elders, &elder, sizeof elder);
    assert_int_equal(back.seated[1], 0);
    assert_int_equal(back.seated[4], 6);
    assert_int_equal(back.round, 512 * (WORLD_SECOND / 1000));
    for (size_t n = 0; n < sizeof bytes; n++)
        assert_int_equal(group_return_decode(bytes, n, &back), ERR_PROTOCOL);
    bytes[HELLO + 3] = 0xff; /* a hello of gigabytes */
    assert_int_equal(group_return_decode(bytes, sizeof bytes, &back), ERR_PROTOCOL);
}

/* ---- a driver that hangs up ---- */

enum { NEWS_MAX = 4, CALLS_MAX = 8 };

/* A world in which the test connects and disconnects the driver, and time passes in waits alone. */
struct line {
    struct world world; /* first */
    struct group *group;
    int64_t now, called_at[CALLS_MAX];
    int calls, news, reported;
    bool up[NEWS_MAX]; /* each after so many calls: */
    int after[NEWS_MAX];
};

static int64_t line_now(struct world *w)
{
    return ((struct line *)w)->now;
}

static int line_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                     struct wake *out)
{
    struct line *line = (struct line *)w;
    assert_int_equal(set[n - 1].kind, WAIT_PEER);
    if (line->reported < line->news && line->calls >= line->after[line->reported]) {
        *out =
            (struct wake){.which = n - 1, .peer = WORLD_DRIVER, .up = line->up[line->reported++]};
        return OK;
    }
    if (line->calls == CALLS_MAX)
        return ERR_CANCELLED;
    line->now = deadline;
    return ERR_TIMEOUT;
}

static int line_add(struct world *w, uint32_t peer, const char *address)
{
    struct line *line = (struct line *)w;
    (void)address;
    assert_int_equal(peer, WORLD_DRIVER);
    line->called_at[line->calls++] = line->now;
    return OK;
}

static void line_drop(struct world *w, uint32_t peer)
{
    (void)w, (void)peer;
}

static void line_raise(struct world *w, uint32_t signal)
{
    (void)w, (void)signal;
}

static void line_abort(struct world *w, uint32_t view)
{
    (void)w, (void)view;
}

static int line_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    (void)w, (void)peer, (void)class;
    message_unref(m);
    return OK;
}

static int no_meeting(void *user, const struct message *m, uint32_t *incarnation, struct buf *hello)
{
    (void)user, (void)m, (void)incarnation, (void)hello;
    return ERR_PROTOCOL;
}

/* A member of a view, with something to return with. */
static void open_line(struct line *line, struct group *group)
{
    static const struct world_ops ops = {
        .now = line_now,
        .wait = line_wait,
        .peer_add = line_add,
        .peer_drop = line_drop,
        .raise = line_raise,
        .abort = line_abort,
        .send = line_send,
    };
    static const struct group_timing timing = {.heartbeat = WORLD_SECOND,
                                               .silence_max = 5 * WORLD_SECOND};
    const struct view view = {.number = 1, .incarnation = 1, .count = 1, .node = {3}};
    const uint64_t word = 1;
    line->world = (struct world){.ops = &ops, .self = 3};
    group_init(group, &line->world, NULL, &timing);
    group->driver.retry = 60 * WORLD_SECOND;
    group->driver.handshake.handshake = no_meeting;
    assert_int_equal(group_set_view(group, &view), OK);
    group_set_recovery_report(group, &word, 1);
}

static void test_listener_redials_after_hang_up(void **state)
{
    (void)state;
    struct line line = {.news = 3, .up = {false, true, false}, .after = {0, 1, 1}};
    struct group group;
    open_line(&line, &group);
    assert_int_equal(group_listener(&group), ERR_CANCELLED);
    for (int i = 1; i < CALLS_MAX; i++)
        assert_true(line.called_at[i] - line.called_at[i - 1] <= WORLD_SECOND);
    group_release(&group);
}

/* It hung before its first beat: the connection stays, and nothing arrives. */
static void test_listener_calls_a_driver_that_never_beats(void **state)
{
    (void)state;
    struct line line = {.news = 0};
    struct group group;
    open_line(&line, &group);
    int64_t silence_max = group.timing.silence_max;
    assert_int_equal(group_listener(&group), ERR_CANCELLED);
    assert_int_equal(line.calls, CALLS_MAX);
    assert_in_range(line.called_at[0], 4 * silence_max, 5 * silence_max);
    group_release(&group);
}

/* That is its reply to a member's goodbye. */
static void test_listener_leaver_does_not_redial(void **state)
{
    (void)state;
    struct line line = {.news = 1, .up = {false}, .after = {0}};
    struct group group;
    open_line(&line, &group);
    atomic_store(&group.leave.done, true);
    group_send_leave(&group, true);
    assert_int_equal(group_listener(&group), ERR_DRIVER);
    assert_int_equal(line.calls, 0);
    assert_true(atomic_load(&group.end.over));
    group_release(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_liveness_beat_keeps_driver_alive),
        cmocka_unit_test(test_liveness_silence_expires),
        cmocka_unit_test(test_liveness_own_pause_is_not_counted),
        cmocka_unit_test(test_group_return_is_decoded_whole),
        cmocka_unit_test(test_listener_redials_after_hang_up),
        cmocka_unit_test(test_listener_calls_a_driver_that_never_beats),
        cmocka_unit_test(test_listener_leaver_does_not_redial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
