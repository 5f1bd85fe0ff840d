/* Conformance: sends posted from the caller's memory, and ends that are counted. Part of
 * world_test_suite.h. */
#ifndef PL_WORLD_WORLD_TEST_SENDS_H
#define PL_WORLD_WORLD_TEST_SENDS_H

#include "world/world_test_receives.h"

enum { MEGABYTE = 1024 * 1024, CREDIT_PIECES = WORLD_CREDIT / MEGABYTE, SENDS_MAX = 24 };

/* Sends of `len` bytes each, side by side in one range: piece i is all (i + 1). */
struct sends {
    unsigned char *range;
    struct send send[SENDS_MAX];
    struct ended ended;
    uint32_t n;
    size_t len;
};

static inline int sends_open(struct sends *s, uint32_t n, size_t len)
{
    *s = (struct sends){.n = n, .len = len, .range = malloc(n * len)};
    for (uint32_t i = 0; s->range && i < n; i++)
        memset(s->range + i * len, (int)i + 1, len);
    return s->range ? OK : ERR_NOMEM;
}

static inline int sends_post(struct world *w, struct sends *s, uint32_t i, uint32_t to,
                             uint32_t view, uint64_t tag)
{
    s->send[i] = (struct send){.to = to,
                               .view = view,
                               .tag = tag,
                               .from = s->range + i * s->len,
                               .len = s->len,
                               .ended = &s->ended};
    return world_post_send(w, &s->send[i]);
}

/* Of the first n. */
static inline uint32_t first_sends_that_are(const struct sends *s, uint32_t n, int status)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += s->send[i].status == status;
    return count;
}

static inline uint32_t sends_that_are(const struct sends *s, int status)
{
    return first_sends_that_are(s, s->n, status);
}

/* Until `count` posts have ended. */
static inline int await_ended(struct world *w, const struct ended *ended, uint64_t count)
{
    for (uint64_t seen; (seen = ended->times) < count;) {
        struct wait_for more = {.kind = WAIT_ENDED, .ended = ended, .seen = seen};
        struct wake wake;
        int rc = world_wait(w, &more, 1, suite_until(w, SUITE_PATIENCE), &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static inline bool bytes_are(const void *range, size_t n, unsigned char value)
{
    const unsigned char *bytes = range;
    return n == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* A posted send arrives unchanged: into a range that waits, as a message, of any length, to two
 * nodes from one range, by any stripe; and afterwards the range is free for other uses. */
enum { LENGTHS = 6 };

static const size_t piece_len[LENGTHS] = {4, 0, 100000, 12, WORLD_MESSAGE_MAX, 5};

static inline int content_sender(struct world *w)
{
    unsigned char *range = malloc(WORLD_MESSAGE_MAX);
    struct ended ended = {0};
    struct send send[LENGTHS][2];
    CHECK(range);
    for (size_t i = 0; i < WORLD_MESSAGE_MAX; i++)
        range[i] = (unsigned char)(i * 7 + (i >> 8));
    for (uint32_t i = 0; i < LENGTHS; i++)
        for (uint32_t to = 1; to < 3; to++) {
            send[i][to - 1] = (struct send){.to = to,
                                            .view = 3,
                                            .tag = 80 + i,
                                            .from = range,
                                            .len = piece_len[i],
                                            .stripe = i % 4,
                                            .ended = &ended};
            CHECK(world_post_send(w, &send[i][to - 1]) == OK);
        }
    CHECK(await_ended(w, &ended, 2 * LENGTHS) == OK && ended.times == 2 * LENGTHS);
    for (uint32_t i = 0; i < LENGTHS; i++)
        CHECK(send[i][0].status == OK && send[i][1].status == OK);
    memset(range, 0xee, WORLD_MESSAGE_MAX);
    CHECK(suite_part(w, 3) == OK);
    world_unsend(w, &send[0][0]); /* ended long ago: nothing */
    CHECK(send[0][0].status == OK && ended.times == 2 * LENGTHS);
    free(range);
    return OK;
}

static inline bool content_is_right(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != (unsigned char)(i * 7 + (i >> 8)))
            return false;
    return true;
}

static inline int content_receiver(struct world *w)
{
    unsigned char *range = malloc(WORLD_MESSAGE_MAX);
    CHECK(range);
    for (uint32_t i = 0; i < LENGTHS; i++) {
        if ((i + w->self) % 2) {
            struct wait_for want = {
                .kind = WAIT_MESSAGE, .from = 0, .view = 3, .tag = 80 + i, .mask = UINT64_MAX};
            struct wake wake;
            CHECK(world_wait(w, &want, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
            CHECK(wake.msg->len == piece_len[i] && wake.msg->from == 0);
            CHECK(content_is_right(wake.msg->data, wake.msg->len));
            message_unref(wake.msg);
            continue;
        }
        struct recv recv = {
            .from = 0, .view = 3, .tag = 80 + i, .into = range, .len = piece_len[i]};
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(await_recv(w, &recv) == OK && recv.landed == piece_len[i]);
        CHECK(content_is_right(range, piece_len[i]));
    }
    free(range);
    return suite_part(w, 3);
}

static inline void test_send_content(void **state)
{
    suite_play(state, 3, (const suite_main[]){content_sender, content_receiver, content_receiver});
}

/* Sends and messages to one peer keep their order, past the credit too: neither waits for the other
 * for ever, though messages have their credit while they stand behind a send that has none. */
enum { MIXED = 48, MIXED_LONG = 512 * 1024 };

static inline size_t mixed_len(uint32_t i)
{
    return i % 3 ? MIXED_LONG : 4;
}

static inline int mixed_sender(struct world *w)
{
    unsigned char *range = malloc(MIXED * MIXED_LONG);
    struct send send[MIXED];
    struct ended ended = {0};
    uint64_t posts = 0;
    CHECK(range);
    for (uint32_t i = 0; i < MIXED; i++) {
        unsigned char *piece = range + (size_t)i * MIXED_LONG;
        memset(piece, (int)i, mixed_len(i));
        if (i % 4 < 2) {
            send[posts] = (struct send){
                .to = 1, .tag = 90, .from = piece, .len = mixed_len(i), .ended = &ended};
            CHECK(world_post_send(w, &send[posts++]) == OK);
            continue;
        }
        struct message *m = message_new(90, 0, mixed_len(i));
        CHECK(m);
        memcpy(m->data, piece, m->len);
        CHECK(suite_send_bulk(w, 1, m) == OK);
    }
    CHECK(await_ended(w, &ended, posts) == OK && ended.times == posts);
    for (uint64_t i = 0; i < posts; i++)
        CHECK(send[i].status == OK);
    memset(range, 0xee, MIXED * MIXED_LONG);
    CHECK(suite_part(w, 2) == OK);
    free(range);
    return OK;
}

static inline int mixed_receiver(struct world *w)
{
    CHECK(world_sleep(w, suite_until(w, 10 * SUITE_MOMENT)) == OK); /* until there is no credit */
    for (uint32_t i = 0; i < MIXED; i++) {
        struct wait_for want = {.kind = WAIT_MESSAGE, .from = 0, .tag = 90, .mask = UINT64_MAX};
        struct wake wake;
        CHECK(world_wait(w, &want, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(wake.msg->len == mixed_len(i));
        CHECK(bytes_are(wake.msg->data, wake.msg->len, (unsigned char)i));
        message_unref(wake.msg);
    }
    return suite_part(w, 2);
}

static inline void test_send_order(void **state)
{
    suite_play(state, 2, (const suite_main[]){mixed_sender, mixed_receiver});
}

/* Three times the credit in one go: what the peer has no room for waits, posted, until the peer
 * takes. */
static inline int ahead_sender(struct world *w)
{
    struct sends s;
    CHECK(sends_open(&s, SENDS_MAX, MEGABYTE) == OK);
    for (uint32_t i = 0; i < s.n; i++)
        CHECK(sends_post(w, &s, i, 1, 1, 100 + i) == OK);
    CHECK(world_sleep(w, suite_until(w, 5 * SUITE_MOMENT)) == OK);
    CHECK(s.ended.times <= CREDIT_PIECES && sends_that_are(&s, OK) <= CREDIT_PIECES);
    CHECK(s.send[CREDIT_PIECES].status == POST_PENDING);
    CHECK(suite_send(w, 1, 0, GO, 0) == OK); /* the other class has credit of its own */
    CHECK(await_ended(w, &s.ended, s.n) == OK && sends_that_are(&s, OK) == s.n);
    memset(s.range, 0xee, s.n * s.len);
    CHECK(suite_part(w, 2) == OK);
    free(s.range);
    return OK;
}

static inline int ahead_receiver(struct world *w)
{
    uint32_t value;
    unsigned char *range = malloc(MEGABYTE);
    CHECK(range);
    CHECK(suite_receive(w, 0, 0, GO, &value) == OK);
    for (uint32_t i = 0; i < SENDS_MAX; i++) {
        struct recv recv = {.from = 0, .view = 1, .tag = 100 + i, .into = range, .len = MEGABYTE};
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(await_recv(w, &recv) == OK && bytes_are(range, MEGABYTE, (unsigned char)(i + 1)));
    }
    free(range);
    return suite_part(w, 2);
}

static inline void test_send_past_credit(void **state)
{
    suite_play(state, 2, (const suite_main[]){ahead_sender, ahead_receiver});
}

/* Two nodes at once, many posts of both kinds, one count for all of them: each end is counted once,
 * and a look at the statuses tells whose it was. */
enum { CROWD_POSTS = 32, CROWD_FLOATS = 20000 };

struct crowd_posts {
    float out[CROWD_POSTS][CROWD_FLOATS], in[CROWD_POSTS][CROWD_FLOATS];
    struct send send[CROWD_POSTS];
    struct recv recv[CROWD_POSTS];
    struct ended ended;
};

static inline int crowd_post(struct world *w, struct crowd_posts *c, uint32_t i)
{
    uint32_t other = 1 - w->self;
    for (uint32_t k = 0; k < CROWD_FLOATS; k++) {
        c->out[i][k] = (float)(w->self * 1000 + i);
        c->in[i][k] = 1;
    }
    c->recv[i] = (struct recv){.from = other,
                               .view = 1,
                               .tag = 130 + i,
                               .into = c->in[i],
                               .len = sizeof c->in[i],
                               .land = i % 2 ? land_sum_floats : NULL,
                               .ended = &c->ended};
    c->send[i] = (struct send){.to = other,
                               .view = 1,
                               .tag = 130 + i,
                               .from = c->out[i],
                               .len = sizeof c->out[i],
                               .stripe = i % 3,
                               .ended = &c->ended};
    int rc = world_post_recv(w, &c->recv[i]);
    return rc == OK ? world_post_send(w, &c->send[i]) : rc;
}

static inline int crowd_node(struct world *w)
{
    struct crowd_posts *c = calloc(1, sizeof *c);
    CHECK(c);
    for (uint32_t i = 0; i < CROWD_POSTS; i++)
        CHECK(crowd_post(w, c, i) == OK);
    for (uint64_t seen = 0; seen < 2 * CROWD_POSTS;) {
        struct wait_for set[] = {{.kind = WAIT_SIGNAL, .signal = 3},
                                 {.kind = WAIT_ENDED, .ended = &c->ended, .seen = seen}};
        struct wake wake;
        CHECK(world_wait(w, set, 2, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(wake.which == 1 && c->ended.times > seen);
        seen = c->ended.times;
        uint64_t over = 0;
        for (uint32_t i = 0; i < CROWD_POSTS; i++)
            over +=
                (uint64_t)(c->send[i].status != POST_PENDING) + (c->recv[i].status != POST_PENDING);
        CHECK(over >= seen); /* a status is there before it is counted */
    }
    float from = (float)((1 - w->self) * 1000);
    for (uint32_t i = 0; i < CROWD_POSTS; i++) {
        CHECK(c->send[i].status == OK && c->recv[i].status == OK);
        CHECK(floats_are(c->in[i], CROWD_FLOATS, from + (float)(i + i % 2), 0));
    }
    struct wait_for more = {.kind = WAIT_ENDED, .ended = &c->ended, .seen = 2 * CROWD_POSTS};
    struct wake wake;
    CHECK(world_wait(w, &more, 1, suite_until(w, SUITE_MOMENT), &wake) == ERR_TIMEOUT);
    CHECK(suite_part(w, 2) == OK);
    free(c);
    return OK;
}

static inline void test_ends_are_counted(void **state)
{
    suite_play(state, 2, (const suite_main[]){crowd_node, crowd_node});
}

/* Ends of receives: landed, of another length, taken back, of a view that has ended. */
static inline int ends_sender(struct world *w)
{
    uint32_t value;
    CHECK(send_floats(w, 1, 1, 40, 10, 1) == OK);
    CHECK(send_floats(w, 1, 1, 41, 20, 1) == OK);
    CHECK(suite_receive(w, 1, 0, GO, &value) == OK);
    return suite_part(w, 2);
}

static inline int ends_receiver(struct world *w)
{
    float x[4][10];
    struct ended ended = {0};
    struct recv recv[4];
    for (uint32_t i = 0; i < 4; i++) {
        recv[i] = (struct recv){
            .from = 0, .view = 1, .tag = 40 + i, .into = x[i], .len = sizeof x[i], .ended = &ended};
        CHECK(world_post_recv(w, &recv[i]) == OK);
    }
    CHECK(await_ended(w, &ended, 2) == OK && ended.times == 2);
    CHECK(recv[0].status == OK && recv[1].status == ERR_PROTOCOL);
    world_unpost(w, &recv[2]);
    CHECK(recv[2].status == ERR_CANCELLED && await_ended(w, &ended, 3) == OK);
    world_unpost(w, &recv[2]);
    world_abort(w, 2);
    CHECK(recv[3].status == ERR_VIEW && await_ended(w, &ended, 4) == OK);
    CHECK(world_post_recv(w, &recv[3]) == ERR_VIEW && ended.times == 4); /* was not posted */
    CHECK(suite_send(w, 0, 0, GO, 0) == OK);
    return suite_part(w, 2);
}

static inline void test_ends_of_receives(void **state)
{
    suite_play(state, 2, (const suite_main[]){ends_sender, ends_receiver});
}

#define WORLD_SUITE_SENDS(f)                                 \
    cmocka_unit_test_prestate(test_send_content, f),         \
        cmocka_unit_test_prestate(test_send_order, f),       \
        cmocka_unit_test_prestate(test_send_past_credit, f), \
        cmocka_unit_test_prestate(test_ends_are_counted, f), \
        cmocka_unit_test_prestate(test_ends_of_receives, f)

#endif
