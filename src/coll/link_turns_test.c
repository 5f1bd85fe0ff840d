/* Turns on a link, by hand: a link of 4 bytes/ns, and transfers of 1000 bytes. */
#include "coll/link_turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define BYTES 1000.0

enum { PEERS = 4, ALONE = 250 }; /* ns of a transfer that has the link alone */

static struct link_peer peer[PEERS];

static void begin_transfer(struct link_turns *t, int i, int64_t now)
{
    link_turns_begin(t, &peer[i], BYTES, now);
}

static void end_transfer(struct link_turns *t, int i, int64_t now)
{
    link_turns_end(t, &peer[i], BYTES, now);
}

/* Bursts of all peers at once, each of which takes `took`. */
static int64_t play_bursts(struct link_turns *t, int count, int64_t took, int64_t now)
{
    for (int k = 0; k < count; k++, now += took) {
        for (int i = 0; i < PEERS; i++) {
            assert_true(link_turns_free(t, &peer[i], now));
            begin_transfer(t, i, now);
        }
        for (int i = 0; i < PEERS; i++)
            end_transfer(t, i, now + took);
    }
    return now;
}

/* Transfers of peer 0 that have the link alone, up to the next window. */
static int64_t fill_window(struct link_turns *t, int64_t took, int64_t now)
{
    for (uint32_t window = t->windows; t->windows == window; now += took) {
        assert_true(link_turns_free(t, &peer[0], now));
        begin_transfer(t, 0, now);
        end_transfer(t, 0, now + took);
    }
    return now;
}

static int setup(void **state)
{
    (void)state;
    memset(peer, 0, sizeof peer);
    return 0;
}

/* A full link: at first all share it, and then one follows another. */
static void test_a_full_link(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = play_bursts(&t, 2, PEERS * ALONE, 0);
    assert_int_equal(t.windows, 1);
    assert_true(t.rate == BYTES / ALONE);
    begin_transfer(&t, 0, now);
    assert_false(link_turns_free(&t, &peer[1], now));
    assert_int_equal(t.free_at, now + ALONE);
    end_transfer(&t, 0, now + ALONE);
    assert_true(peer[0].rate == BYTES / ALONE);
    assert_true(link_turns_free(&t, &peer[1], now + ALONE));
}

/* A peer that has stopped holds the link for as long as its transfer should take. */
static void test_a_stopped_peer(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = play_bursts(&t, 2, PEERS * ALONE, 0);
    begin_transfer(&t, 0, now);
    assert_false(link_turns_free(&t, &peer[1], now + ALONE - 1));
    assert_true(link_turns_free(&t, &peer[1], now + ALONE));
    begin_transfer(&t, 1, now + ALONE);
    assert_false(link_turns_free(&t, &peer[2], now + ALONE));
    link_turns_end(&t, &peer[0], 0, now + ALONE * 2); /* cancelled */
    assert_int_equal(t.active, 1);
    assert_true(peer[0].rate == 0);
}

/* A peer that has become slow no longer counts as one that fills the link. */
static void test_a_peer_that_becomes_slower(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = play_bursts(&t, 2, PEERS * ALONE, 0);
    begin_transfer(&t, 0, now);
    end_transfer(&t, 0, now + ALONE);
    assert_true(peer[0].rate == BYTES / ALONE);
    now += 100 * ALONE; /* the link idles, so its rate stays */
    for (int k = 0; k < 40; k++, now += 100 * ALONE) {
        begin_transfer(&t, 0, now);
        end_transfer(&t, 0, now + 10 * ALONE);
    }
    assert_true(t.rate == BYTES / ALONE);
    assert_true(peer[0].rate < 0.12 * BYTES / ALONE);
    double slow = peer[0].rate;
    begin_transfer(&t, 1, now);
    begin_transfer(&t, 0, now + 1);
    end_transfer(&t, 1, now + ALONE);
    end_transfer(&t, 0, now + 40 * ALONE); /* it shared the link */
    assert_true(peer[0].rate == slow);
}

/* A link that carries four peers at once: they take turns until their own rates are known. */
static void test_a_link_with_room(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = play_bursts(&t, 2, ALONE, 0); /* 16 bytes/ns together */
    assert_true(t.rate == PEERS * BYTES / ALONE);
    begin_transfer(&t, 0, now);
    assert_false(link_turns_free(&t, &peer[1], now));
    assert_true(link_turns_free(&t, &peer[1], t.free_at));
    end_transfer(&t, 0, now + ALONE);
    now += ALONE;
    for (int i = 1; i < PEERS; i++, now += ALONE) {
        begin_transfer(&t, i, now);
        end_transfer(&t, i, now + ALONE);
    }
    for (int i = 0; i < PEERS; i++) {
        assert_true(peer[i].rate == BYTES / ALONE);
        assert_true(link_turns_free(&t, &peer[i], now));
        begin_transfer(&t, i, now);
    }
}

/* A link that was thought to be slower, as if transfers had never met: the window that explores
 * finds that it carries two at once. */
static void test_a_link_that_carries_more(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = 0;
    while (t.windows < 7)
        now = fill_window(&t, ALONE, now);
    assert_true(t.rate == BYTES / ALONE);
    for (int k = 0; k < 4; k++, now += 2 * ALONE) { /* each alone for a half, and with the other */
        begin_transfer(&t, 0, now);
        assert_true(link_turns_free(&t, &peer[1], now + ALONE / 2));
        begin_transfer(&t, 1, now + ALONE / 2);
        end_transfer(&t, 0, now + ALONE);
        end_transfer(&t, 1, now + ALONE * 3 / 2);
    }
    assert_int_equal(t.windows, 8);
    assert_true(t.rate > 1.3 * BYTES / ALONE && t.rate < 1.4 * BYTES / ALONE);
}

/* A full link that becomes slower is known as such after some windows, an idle one is not. */
static void test_a_link_that_becomes_slower(void **state)
{
    (void)state;
    struct link_turns t = {0};
    int64_t now = fill_window(&t, ALONE, 0);
    double before = t.rate;
    for (int k = 0; k < 8; k++, now += 10 * ALONE) {
        begin_transfer(&t, 0, now);
        end_transfer(&t, 0, now + 2 * ALONE);
    }
    assert_true(t.rate == before);
    while (t.windows < 30)
        now = fill_window(&t, 2 * ALONE, now);
    assert_true(t.rate < 0.55 * before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_full_link, setup),
        cmocka_unit_test_setup(test_a_stopped_peer, setup),
        cmocka_unit_test_setup(test_a_peer_that_becomes_slower, setup),
        cmocka_unit_test_setup(test_a_link_with_room, setup),
        cmocka_unit_test_setup(test_a_link_that_carries_more, setup),
        cmocka_unit_test_setup(test_a_link_that_becomes_slower, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
