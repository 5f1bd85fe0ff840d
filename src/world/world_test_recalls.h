/* Conformance: sends that do not end well, or whose sender does: aborted, taken back, lost with
 * their peer. Part of world_test_suite.h. */
#ifndef PL_WORLD_WORLD_TEST_RECALLS_H
#define PL_WORLD_WORLD_TEST_RECALLS_H

#include "world/world_test_sends.h"

/* The next of node 0's messages in view 1 or 2: its tag, and the byte that all of it is. */
static inline int take_piece(struct world *w, size_t len, uint64_t *tag, unsigned char *value)
{
    const struct wait_for set[] = {{.kind = WAIT_MESSAGE, .from = 0, .view = 1},
                                   {.kind = WAIT_MESSAGE, .from = 0, .view = 2}};
    struct wake wake;
    int rc = world_wait(w, set, 2, suite_until(w, SUITE_PATIENCE), &wake);
    if (rc != OK)
        return rc;
    *tag = wake.msg->tag;
    *value = *(const unsigned char *)wake.msg->data;
    if (wake.msg->len != len || !bytes_are(wake.msg->data, len, *value))
        rc = ERR_PROTOCOL; /* torn */
    message_unref(wake.msg);
    return rc;
}

/* An abort while sends are queued ends those of older views, and their range is the caller's again:
 * what still arrives is whole, and the new view's comes behind. */
static inline int recalled_sender(struct world *w)
{
    struct sends s;
    CHECK(sends_open(&s, SENDS_MAX, MEGABYTE) == OK);
    uint32_t old = s.n - 2;
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 1, i < old ? 1 : 2, 200 + i) == OK);
    CHECK(world_sleep(w, suite_until(w, 2 * SUITE_MOMENT)) == OK);
    world_abort(w, 2);
    uint32_t gone = first_sends_that_are(&s, old, OK); /* those behind them may go at once */
    CHECK(gone <= CREDIT_PIECES && first_sends_that_are(&s, old, ERR_VIEW) == old - gone);
    CHECK(await_ended(w, &s.ended, old) == OK); /* and the new view's may be on their way */
    memset(s.range, 0xee, old * s.len);
    struct ended never = {0};
    struct send late = {.to = 1, .view = 1, .tag = 230, .from = s.range, .len = s.len};
    late.ended = &never;
    CHECK(world_post_send(w, &late) == ERR_VIEW && never.times == 0);
    CHECK(suite_send(w, 1, 0, GO, gone) == OK);
    CHECK(await_ended(w, &s.ended, s.n) == OK);
    CHECK(s.send[s.n - 2].status == OK && s.send[s.n - 1].status == OK);
    CHECK(suite_part(w, 2) == OK);
    free(s.range);
    return OK;
}

static inline int recalled_receiver(struct world *w)
{
    uint32_t gone, taken = 0;
    uint64_t tag = 0;
    CHECK(suite_receive(w, 0, 0, GO, &gone) == OK);
    while (tag != 200 + SENDS_MAX - 1) {
        unsigned char value;
        CHECK(take_piece(w, MEGABYTE, &tag, &value) == OK);
        CHECK(value == tag - 200 + 1);
        CHECK(tag - 200 == taken || tag - 200 >= SENDS_MAX - 2); /* none left out in between */
        taken++;
    }
    /* All that had gone, perhaps one that was half gone, and the two of the new view. */
    CHECK(taken == gone + 2 || taken == gone + 3);
    return suite_part(w, 2);
}

static inline void test_abort_of_sends(void **state)
{
    suite_play(state, 2, (const suite_main[]){recalled_sender, recalled_receiver});
}

/* Sends taken back one by one: those that had not begun never arrive, the others are in order. */
static inline int unsent_sender(struct world *w)
{
    struct sends s;
    const uint32_t full = CREDIT_PIECES;
    CHECK(sends_open(&s, full + 4, MEGABYTE) == OK);
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 1, 1, 200 + i) == OK);
    world_unsend(w, &s.send[full + 3]);
    world_unsend(w, &s.send[full + 1]); /* from between the others */
    CHECK(s.send[full + 3].status == ERR_CANCELLED && s.send[full + 1].status == ERR_CANCELLED);
    world_unsend(w, &s.send[full + 1]); /* not pending: nothing */
    CHECK(sends_that_are(&s, ERR_CANCELLED) == 2);
    memset(s.range + (full + 1) * s.len, 0xee, s.len);
    memset(s.range + (full + 3) * s.len, 0xee, s.len);
    CHECK(suite_send(w, 1, 0, GO, 0) == OK);
    CHECK(await_ended(w, &s.ended, s.n) == OK && s.ended.times == s.n);
    CHECK(sends_that_are(&s, OK) == full + 2);

    /* In the middle of four megabytes: whole or not at all, and the connection is as good as new.
     */
    unsigned char *piece = s.range;
    memset(piece, 1, WORLD_MESSAGE_MAX);
    struct send half = {.to = 1, .view = 2, .tag = 300, .from = piece, .len = WORLD_MESSAGE_MAX};
    CHECK(world_post_send(w, &half) == OK);
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT / 2)) == OK);
    world_unsend(w, &half);
    CHECK(half.status == ERR_CANCELLED || half.status == OK);
    memset(piece, 2, WORLD_MESSAGE_MAX);
    struct send again = half;
    again.tag = 301;
    CHECK(world_post_send(w, &again) == OK);
    CHECK(suite_part(w, 2) == OK);
    CHECK(again.status == OK);
    free(s.range);
    return OK;
}

static inline int unsent_receiver(struct world *w)
{
    uint32_t value;
    uint64_t tag = 0;
    CHECK(suite_receive(w, 0, 0, GO, &value) == OK);
    for (uint32_t i = 0; i <= CREDIT_PIECES + 2; i++) {
        unsigned char byte;
        if (i == CREDIT_PIECES + 1)
            continue;
        CHECK(take_piece(w, MEGABYTE, &tag, &byte) == OK);
        CHECK(tag == 200 + i && byte == i + 1);
    }
    while (tag != 301) {
        unsigned char byte;
        CHECK(take_piece(w, WORLD_MESSAGE_MAX, &tag, &byte) == OK);
        CHECK((tag == 300 && byte == 1) || (tag == 301 && byte == 2));
    }
    return suite_part(w, 2);
}

static inline void test_unsend(void **state)
{
    suite_play(state, 2, (const suite_main[]){unsent_sender, unsent_receiver});
}

/* A send that there is no room for holds up what is behind it, until it is taken back or its view
 * ends: a short one then has room enough. */
enum { SLACK = 4096, SHORT = 100 };

static inline int way_sender(struct world *w)
{
    struct sends s;
    uint32_t value;
    CHECK(sends_open(&s, CREDIT_PIECES + 1, MEGABYTE) == OK);
    for (uint32_t i = 0; i < CREDIT_PIECES; i++) {
        s.len = MEGABYTE - (i == 0 ? SLACK : 0);
        CHECK(sends_post(w, &s, i, 1, 2, 200 + i) == OK);
    }
    s.len = MEGABYTE;
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct send last = {.to = 1,
                            .view = 2,
                            .tag = 300 + turn,
                            .from = s.range,
                            .len = SHORT,
                            .ended = &s.ended};
        CHECK(sends_post(w, &s, CREDIT_PIECES, 1, 1, 400) == OK);
        CHECK(world_post_send(w, &last) == OK);
        CHECK(world_sleep(w, suite_until(w, 5 * SUITE_MOMENT)) == OK);
        CHECK(s.send[CREDIT_PIECES].status == POST_PENDING && last.status == POST_PENDING);
        if (turn == 0)
            world_unsend(w, &s.send[CREDIT_PIECES]);
        else
            world_abort(w, 2);
        CHECK(s.send[CREDIT_PIECES].status == (turn == 0 ? ERR_CANCELLED : ERR_VIEW));
        CHECK(await_ended(w, &s.ended, CREDIT_PIECES + 2 * (turn + 1)) == OK && last.status == OK);
        CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    }
    CHECK(suite_part(w, 2) == OK);
    free(s.range);
    return OK;
}

static inline int way_receiver(struct world *w)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        unsigned char bytes[SHORT];
        struct recv recv = {
            .from = 0, .view = 2, .tag = 300 + turn, .into = bytes, .len = sizeof bytes};
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(await_recv(w, &recv) == OK && bytes_are(bytes, sizeof bytes, 1));
        CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    }
    return suite_part(w, 2);
}

static inline void test_unsend_makes_way(void **state)
{
    suite_play(state, 2, (const suite_main[]){way_sender, way_receiver});
}

/* A peer that goes, is dropped or never was: sends to it end, and are told as ends. */
static inline int bereft_sender(struct world *w)
{
    struct sends s;
    uint32_t value;
    CHECK(suite_receive(w, 2, 0, GO, &value) == OK); /* who is to be dropped has met everybody */
    CHECK(sends_open(&s, CREDIT_PIECES + 4, MEGABYTE) == OK);
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 1, 1, 200 + i) == OK);
    unsigned char lost[4];
    struct recv recv = {
        .from = 1, .view = 1, .tag = 9, .into = lost, .len = sizeof lost, .ended = &s.ended};
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(suite_send(w, 1, 0, GO, 0) == OK); /* it goes without taking any */
    CHECK(await_ended(w, &s.ended, s.n + 1) == OK && recv.status == ERR_PEER);
    uint32_t gone = sends_that_are(&s, OK);
    CHECK(gone <= CREDIT_PIECES && sends_that_are(&s, ERR_PEER) == s.n - gone);

    CHECK(suite_peer_is(w, 1, false) == OK);
    CHECK(sends_post(w, &s, 0, 1, 1, 200) == OK); /* after it has gone */
    CHECK(sends_post(w, &s, 1, 12345, 1, 200) == OK);
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(await_ended(w, &s.ended, s.n + 4) == OK && s.ended.times == s.n + 4);
    CHECK(s.send[0].status == ERR_PEER && s.send[1].status == ERR_PEER);
    CHECK(recv.status == ERR_PEER);

    s.ended.times = 0;
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 2, 1, 200 + i) == OK);
    world_peer_drop(w, 2);
    CHECK(await_ended(w, &s.ended, s.n) == OK && s.ended.times == s.n);
    gone = sends_that_are(&s, OK);
    CHECK(gone <= CREDIT_PIECES && sends_that_are(&s, ERR_PEER) == s.n - gone);
    free(s.range);
    return OK;
}

static inline int bereft_leaver(struct world *w)
{
    uint32_t value;
    CHECK(suite_receive(w, 0, 0, GO, &value) == OK);
    return OK;
}

static inline int bereft_dropped(struct world *w)
{
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    CHECK(suite_peer_is(w, 0, false) == OK);
    return OK;
}

static inline void test_sends_to_the_dead(void **state)
{
    suite_play(state, 3, (const suite_main[]){bereft_sender, bereft_leaver, bereft_dropped});
}

/* A send that has ended with OK has been handed over: it arrives, though its sender disconnects at
 * once. */
static inline int hasty_sender(struct world *w)
{
    struct sends s;
    CHECK(sends_open(&s, 4, 100000) == OK);
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 1, 1, 200 + i) == OK);
    CHECK(await_ended(w, &s.ended, s.n) == OK && sends_that_are(&s, OK) == s.n);
    free(s.range);
    return OK;
}

static inline int hasty_receiver(struct world *w)
{
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT)) == OK);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t tag;
        unsigned char value;
        CHECK(take_piece(w, 100000, &tag, &value) == OK);
        CHECK(tag == 200 + i && value == i + 1);
    }
    return OK;
}

static inline void test_sent_and_gone(void **state)
{
    suite_play(state, 2, (const suite_main[]){hasty_sender, hasty_receiver});
}

#define WORLD_SUITE_RECALLS(f)                                                                    \
    cmocka_unit_test_prestate(test_abort_of_sends, f), cmocka_unit_test_prestate(test_unsend, f), \
        cmocka_unit_test_prestate(test_unsend_makes_way, f),                                      \
        cmocka_unit_test_prestate(test_sends_to_the_dead, f),                                     \
        cmocka_unit_test_prestate(test_sent_and_gone, f)

#endif
