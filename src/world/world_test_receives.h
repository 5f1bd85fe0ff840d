/* Conformance: posted receives, and the line that an abort draws. Part of world_test_suite.h. */
#ifndef PL_WORLD_WORLD_TEST_RECEIVES_H
#define PL_WORLD_WORLD_TEST_RECEIVES_H

#include "world/world_test_suite.h"

enum { FLOATS = 1000, GO = 0x60 };

static inline int send_floats(struct world *w, uint32_t to, uint32_t view, uint64_t tag, size_t n,
                              float value)
{
    struct message *m = message_new(tag, view, n * sizeof(float));
    if (!m)
        return ERR_NOMEM;
    float *x = m->data;
    for (size_t i = 0; i < n; i++)
        x[i] = value + (float)i;
    return suite_send_bulk(w, to, m);
}

static inline bool floats_are(const float *x, size_t n, float value, float slope)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != value + slope * (float)i)
            return false;
    return true;
}

static inline void land_sum_floats(void *user, void *at, const void *bytes, size_t n)
{
    (void)user;
    float *x = at;
    for (size_t i = 0; i < n / sizeof *x; i++) {
        float y;
        memcpy(&y, (const char *)bytes + i * sizeof y, sizeof y);
        x[i] += y;
    }
}

static inline int await_recv(struct world *w, struct recv *recv)
{
    struct wait_for done = {.kind = WAIT_RECV, .recv = recv};
    struct wake wake;
    int rc = world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake);
    return rc == OK ? recv->status : rc;
}

/* Posted before the message comes and after; copied and summed; several at once. */
static inline int landing_sender(struct world *w)
{
    uint32_t value;
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    CHECK(send_floats(w, 1, 2, 30, FLOATS, 1) == OK);
    CHECK(send_floats(w, 1, 2, 31, FLOATS, 10) == OK);
    CHECK(send_floats(w, 1, 2, 31, FLOATS, 100) == OK);
    CHECK(send_floats(w, 1, 2, 32, 0, 0) == OK);
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    CHECK(send_floats(w, 1, 2, 33, FLOATS, 7) == OK);
    CHECK(send_floats(w, 1, 2, 34, 1, 8) == OK); /* when this is there, so is the one before */
    return suite_part(w, 2);
}

static inline int landing_receiver(struct world *w)
{
    static const char nothing = 0;
    float x[FLOATS], y[FLOATS];
    memset(y, 0, sizeof y);
    struct recv copy = {.from = 0, .view = 2, .tag = 30, .into = x, .len = sizeof x};
    struct recv sum[2];
    for (int i = 0; i < 2; i++)
        sum[i] = (struct recv){
            .from = 0, .view = 2, .tag = 31, .into = y, .len = sizeof y, .land = land_sum_floats};
    struct recv empty = {.from = 0, .view = 2, .tag = 32, .into = (void *)(uintptr_t)&nothing};
    CHECK(world_post_recv(w, &copy) == OK && copy.status == POST_PENDING);
    CHECK(world_post_recv(w, &sum[0]) == OK && world_post_recv(w, &sum[1]) == OK);
    CHECK(world_post_recv(w, &empty) == OK);
    int64_t asked = world_now(w);
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    CHECK(await_recv(w, &sum[1]) == OK && sum[0].status == OK && copy.status == OK);
    CHECK(await_recv(w, &empty) == OK);
    CHECK(copy.landed == sizeof x && copy.first_byte >= asked && copy.first_byte <= world_now(w));
    CHECK(floats_are(x, FLOATS, 1, 1) && floats_are(y, FLOATS, 110, 2));

    struct recv last = {.from = 0, .view = 2, .tag = 34, .into = y, .len = sizeof *y};
    CHECK(world_post_recv(w, &last) == OK);
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    CHECK(await_recv(w, &last) == OK && y[0] == 8);
    struct recv late = {.from = 0, .view = 2, .tag = 33, .into = x, .len = sizeof x};
    CHECK(world_post_recv(w, &late) == OK);
    CHECK(await_recv(w, &late) == OK && floats_are(x, FLOATS, 7, 1));
    return suite_part(w, 2);
}

static inline void test_landing(void **state)
{
    suite_play(state, 2, (const suite_main[]){landing_sender, landing_receiver});
}

/* A message of another length than agreed is an error of the peer's and lands nowhere; a receive
 * that is taken back leaves the message to others. */
static inline int wrong_sender(struct world *w)
{
    uint32_t value;
    CHECK(send_floats(w, 1, 1, 40, 20, 1) == OK);
    CHECK(send_floats(w, 1, 1, 41, 5, 1) == OK);
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    CHECK(suite_send(w, 1, 0, 42, 43) == OK);
    return suite_part(w, 2);
}

static inline int wrong_receiver(struct world *w)
{
    float x[20];
    for (int i = 0; i < 20; i++)
        x[i] = -1;
    struct recv shorter = {.from = 0, .view = 1, .tag = 40, .into = x, .len = 10 * sizeof *x};
    struct recv longer = {.from = 0, .view = 1, .tag = 41, .into = x, .len = 10 * sizeof *x};
    CHECK(world_post_recv(w, &shorter) == OK && world_post_recv(w, &longer) == OK);
    CHECK(await_recv(w, &shorter) == ERR_PROTOCOL && await_recv(w, &longer) == ERR_PROTOCOL);
    CHECK(floats_are(x, 20, -1, 0));

    struct recv back = {.from = 0, .tag = 42, .into = x, .len = sizeof *x};
    CHECK(world_post_recv(w, &back) == OK);
    world_unpost(w, &back);
    world_unpost(w, &back);    /* not pending: nothing */
    world_unpost(w, &shorter); /* ended long ago: nothing */
    CHECK(back.status != POST_PENDING && shorter.status == ERR_PROTOCOL);
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    uint32_t value;
    CHECK(suite_receive(w, 0, 0, 42, &value) == OK && value == 43);
    CHECK(floats_are(x, 20, -1, 0));
    return suite_part(w, 2);
}

static inline void test_wrong_length_and_unpost(void **state)
{
    suite_play(state, 2, (const suite_main[]){wrong_sender, wrong_receiver});
}

/* An abort ends old receives, drops old messages, come or still to come, and keeps all others. */
static inline int abort_sender(struct world *w)
{
    uint32_t value;
    for (uint32_t view = 0; view < 4; view++)
        CHECK(suite_send(w, 1, view, 50, view) == OK);
    CHECK(suite_send(w, 1, 0, 51, 0) == OK);
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK); /* it has moved on to view 2 */
    for (uint32_t view = 0; view < 4; view++)
        CHECK(suite_send(w, 1, view, 52, view) == OK);
    CHECK(suite_send(w, 1, 0, 53, 0) == OK);
    return suite_part(w, 2);
}

static inline int receive_from_view_2(struct world *w, uint64_t tag)
{
    uint32_t value;
    CHECK(suite_receive_within(w, 0, 1, tag, SUITE_MOMENT, &value) == ERR_TIMEOUT);
    CHECK(suite_receive(w, 0, 3, tag, &value) == OK && value == 3);
    CHECK(suite_receive(w, 0, 2, tag, &value) == OK && value == 2);
    CHECK(suite_receive(w, 0, 0, tag, &value) == OK && value == 0);
    return OK;
}

static inline int abort_receiver(struct world *w)
{
    uint32_t value;
    float x = -1;
    struct recv old = {.from = 0, .view = 1, .tag = 54, .into = &x, .len = sizeof x};
    struct recv now = {.from = 0, .view = 2, .tag = 54, .into = &x, .len = sizeof x};
    struct recv none = {.from = 0, .view = 0, .tag = 54, .into = &x, .len = sizeof x};
    CHECK(suite_receive(w, 0, 0, 51, &value) == OK);
    CHECK(world_post_recv(w, &old) == OK && world_post_recv(w, &now) == OK &&
          world_post_recv(w, &none) == OK);
    world_abort(w, 2);
    CHECK(old.status == ERR_VIEW && now.status == POST_PENDING && none.status == POST_PENDING);
    CHECK(await_recv(w, &old) == ERR_VIEW);
    CHECK(world_post_recv(w, &old) == ERR_VIEW);
    CHECK(receive_from_view_2(w, 50) == OK);
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    CHECK(suite_receive(w, 0, 0, 53, &value) == OK);
    CHECK(receive_from_view_2(w, 52) == OK);
    world_abort(w, 1); /* a line is never taken back */
    CHECK(world_post_recv(w, &old) == ERR_VIEW);
    world_unpost(w, &now);
    world_unpost(w, &none);
    CHECK(x == -1);
    return suite_part(w, 2);
}

static inline void test_abort(void **state)
{
    suite_play(state, 2, (const suite_main[]){abort_sender, abort_receiver});
}

/* An abort while four megabytes are coming in: from its return on the range stays as it is, and
 * what belongs to the new view comes in behind. */
static inline int torrent_sender(struct world *w)
{
    uint32_t value;
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    CHECK(send_floats(w, 1, 1, 60, WORLD_MESSAGE_MAX / sizeof(float), 1) == OK);
    CHECK(send_floats(w, 1, 2, 60, FLOATS, 5) == OK);
    return suite_part(w, 2);
}

static inline int torrent_receiver(struct world *w)
{
    float *x = calloc(2, WORLD_MESSAGE_MAX), y[FLOATS];
    CHECK(x);
    float *then = x + WORLD_MESSAGE_MAX / sizeof *x;
    struct recv old = {.from = 0, .view = 1, .tag = 60, .into = x, .len = WORLD_MESSAGE_MAX};
    struct recv now = {.from = 0, .view = 2, .tag = 60, .into = y, .len = sizeof y};
    CHECK(world_post_recv(w, &old) == OK);
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT / 2)) == OK);
    world_abort(w, 2);
    CHECK(old.status == ERR_VIEW || old.status == OK); /* OK on a network that is fast enough */
    memcpy(then, x, WORLD_MESSAGE_MAX);
    CHECK(world_post_recv(w, &now) == OK);
    CHECK(await_recv(w, &now) == OK && floats_are(y, FLOATS, 5, 1));
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT)) == OK);
    CHECK(memcmp(then, x, WORLD_MESSAGE_MAX) == 0);
    free(x);
    return suite_part(w, 2);
}

static inline void test_abort_in_mid_message(void **state)
{
    suite_play(state, 2, (const suite_main[]){torrent_sender, torrent_receiver});
}

/* Posted receives give credit back as waits do: a stream of three times the credit goes through. */
enum { STREAM_PIECES = 24 };

static inline int stream_sender(struct world *w)
{
    for (uint32_t i = 0; i < STREAM_PIECES; i++)
        CHECK(send_floats(w, 1, 1, 70 + i, 1024 * 1024 / sizeof(float), (float)i) == OK);
    return suite_part(w, 2);
}

static inline int stream_receiver(struct world *w)
{
    const size_t n = 1024 * 1024 / sizeof(float);
    float *x = calloc(n, sizeof *x);
    CHECK(x);
    for (uint32_t i = 0; i < STREAM_PIECES; i++) {
        struct recv piece = {.from = 0, .view = 1, .tag = 70 + i, .into = x, .len = n * sizeof *x};
        CHECK(world_post_recv(w, &piece) == OK);
        CHECK(await_recv(w, &piece) == OK && floats_are(x, n, (float)i, 1));
    }
    free(x);
    return suite_part(w, 2);
}

static inline void test_stream(void **state)
{
    suite_play(state, 2, (const suite_main[]){stream_sender, stream_receiver});
}

#define WORLD_SUITE_RECEIVES(f)                                     \
    cmocka_unit_test_prestate(test_landing, f),                     \
        cmocka_unit_test_prestate(test_wrong_length_and_unpost, f), \
        cmocka_unit_test_prestate(test_abort, f),                   \
        cmocka_unit_test_prestate(test_abort_in_mid_message, f),    \
        cmocka_unit_test_prestate(test_stream, f)

#endif
