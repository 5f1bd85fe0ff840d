/* Conformance: messages between nodes, credit, and peers that come and go. Part of
 * world_test_suite.h. */
#ifndef PL_WORLD_WORLD_TEST_MESSAGES_H
#define PL_WORLD_WORLD_TEST_MESSAGES_H

#include "world/world_test_suite.h"

/* Messages of one class from one peer come in the order they were sent, whatever their sizes. */
enum { ORDER_MESSAGES = 100 };

static inline int order_sender(struct world *w)
{
    for (uint32_t i = 0; i < ORDER_MESSAGES; i++) {
        size_t len = i % 10 ? 4 : 200000; /* long ones would be overtaken, if they could be */
        struct message *m = message_new(1, 0, len);
        CHECK(m);
        memset(m->data, 0, len);
        memcpy(m->data, &i, sizeof i);
        CHECK(suite_send_bulk(w, 2, m) == OK);
        CHECK(suite_send(w, 2, 0, 2, i) == OK);
    }
    return suite_part(w, 3);
}

static inline int order_receiver(struct world *w)
{
    uint32_t next[2][CLASS_COUNT] = {{0}};
    const struct wait_for set[] = {
        {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 1, .mask = UINT64_MAX},
        {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 2, .mask = UINT64_MAX},
    };
    for (int i = 0; i < 4 * ORDER_MESSAGES; i++) {
        struct wake wake;
        CHECK(world_wait(w, set, 2, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        uint32_t from = wake.msg->from, value;
        CHECK(from < 2 && wake.msg->first_byte <= world_now(w));
        memcpy(&value, wake.msg->data, sizeof value);
        message_unref(wake.msg);
        CHECK(value == next[from][wake.which]++);
    }
    return suite_part(w, 3);
}

static inline void test_order_within_class(void **state)
{
    suite_play(state, 3, (const suite_main[]){order_sender, order_sender, order_receiver});
}

/* Tag, mask, view and sender all have to match; what does not stays for another wait. */
static inline int matching_sender(struct world *w)
{
    CHECK(suite_send(w, 1, 0, 0x0a01, 1) == OK);
    CHECK(suite_send(w, 1, 7, 0x0a02, 2) == OK);
    CHECK(suite_send(w, 1, 0, 0x0b03, 3) == OK);
    CHECK(suite_send(w, 1, 8, 0x0a02, 4) == OK);
    CHECK(suite_send(w, 1, 0, 0x0a05, 5) == OK);
    CHECK(suite_send(w, 1, 0, 0xffff, 6) == OK); /* all that was sent before is there by now */
    return suite_part(w, 2);
}

static inline int matching_receiver(struct world *w)
{
    uint32_t value;
    CHECK(suite_receive(w, 0, 0, 0xffff, &value) == OK && value == 6);
    CHECK(suite_receive_within(w, 0, 0, 0x0a02, SUITE_MOMENT, &value) ==
          ERR_TIMEOUT); /* no view 0 */
    CHECK(suite_receive_within(w, 0, 7, 0x0a01, SUITE_MOMENT, &value) == ERR_TIMEOUT);
    CHECK(suite_receive_within(w, 1, 0, 0x0a01, SUITE_MOMENT, &value) ==
          ERR_TIMEOUT); /* not from me */
    CHECK(suite_receive(w, 0, 8, 0x0a02, &value) == OK && value == 4);
    CHECK(suite_receive(w, 0, 7, 0x0a02, &value) == OK && value == 2);

    /* The first index that holds, then the order of arrival. */
    const struct wait_for set[] = {
        {.kind = WAIT_MESSAGE, .from = 0, .tag = 0x0c00, .mask = 0xff00},
        {.kind = WAIT_MESSAGE, .from = 0, .tag = 0x0b00, .mask = 0xff00},
        {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 0x0a00, .mask = 0xff00},
    };
    const struct {
        int which;
        uint64_t tag;
    } expected[] = {{1, 0x0b03}, {2, 0x0a01}, {2, 0x0a05}};
    for (int i = 0; i < 3; i++) {
        struct wake wake;
        CHECK(world_wait(w, set, 3, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(wake.which == expected[i].which && wake.msg->tag == expected[i].tag);
        CHECK(wake.msg->from == 0 && wake.msg->view == 0 && wake.msg->len == 4);
        message_unref(wake.msg);
    }
    return suite_part(w, 2);
}

static inline void test_matching(void **state)
{
    suite_play(state, 2, (const suite_main[]){matching_sender, matching_receiver});
}

/* One message to many, the sender keeping it: each receiver has its own header. */
static inline int shared_sender(struct world *w)
{
    struct message *m = message_new(3, 0, 4000);
    CHECK(m);
    memset(m->data, 0x5a, m->len);
    for (uint32_t to = 0; to < 3; to++)
        CHECK(world_send(w, to, message_ref(m), CLASS_BULK) == OK);
    struct wait_for own = {.kind = WAIT_MESSAGE, .from = 0, .tag = 3, .mask = UINT64_MAX};
    struct wake wake;
    CHECK(world_wait(w, &own, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK); /* to oneself */
    CHECK(wake.msg->len == 4000 && wake.msg->from == 0);
    CHECK(memcmp(wake.msg->data, m->data, m->len) == 0);
    message_unref(wake.msg);
    message_unref(m);
    return suite_part(w, 3);
}

/* And what was received can be sent on. */
static inline int shared_receiver(struct world *w)
{
    uint32_t other = 3 - w->self;
    for (int turn = 0; turn < 2; turn++) {
        struct wait_for want = {
            .kind = WAIT_MESSAGE, .from = turn ? other : 0, .tag = 3, .mask = UINT64_MAX};
        struct wake wake;
        CHECK(world_wait(w, &want, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(wake.msg->from == want.from && wake.msg->len == 4000);
        CHECK(((unsigned char *)wake.msg->data)[3999] == 0x5a);
        if (turn == 0)
            CHECK(world_send(w, other, message_ref(wake.msg), CLASS_BULK) == OK);
        CHECK(wake.msg->from == want.from);
        message_unref(wake.msg);
    }
    return suite_part(w, 3);
}

static inline void test_shared_message(void **state)
{
    suite_play(state, 3, (const suite_main[]){shared_sender, shared_receiver, shared_receiver});
}

/* A sender may be so far ahead and no further; taking half of it wakes it. */
static inline int credit_sender(struct world *w)
{
    const size_t len = 1024 * 1024;
    uint32_t sent = 0;
    int rc = OK;
    struct message *m = NULL;
    while (rc == OK) {
        m = message_new(4, 0, len);
        CHECK(m);
        memset(m->data, (int)sent, len);
        rc = world_send(w, 1, m, CLASS_BULK);
        sent += rc == OK;
        CHECK(sent * len <= WORLD_CREDIT);
    }
    CHECK(rc == ERR_FULL && sent * len >= WORLD_CREDIT / 2);
    CHECK(m->tag == 4 && m->len == len); /* still mine */
    struct wait_for credit = {.kind = WAIT_CREDIT, .peer = 1};
    struct wake wake;
    CHECK(world_wait(w, &credit, 1, suite_until(w, SUITE_MOMENT), &wake) == ERR_TIMEOUT);
    CHECK(suite_send(w, 1, 0, 5, sent + 1) == OK); /* the other class has credit of its own */
    CHECK(world_wait(w, &credit, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(world_send(w, 1, m, CLASS_BULK) == OK);
    return suite_part(w, 2);
}

static inline int credit_receiver(struct world *w)
{
    uint32_t count;
    CHECK(suite_receive(w, 0, 0, 5, &count) == OK);
    for (uint32_t i = 0; i < count; i++) {
        struct wait_for want = {.kind = WAIT_MESSAGE, .from = 0, .tag = 4, .mask = UINT64_MAX};
        struct wake wake;
        CHECK(world_wait(w, &want, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        const unsigned char *bytes = wake.msg->data;
        CHECK(bytes[0] == i && bytes[wake.msg->len - 1] == i);
        message_unref(wake.msg);
    }
    return suite_part(w, 2);
}

static inline void test_credit(void **state)
{
    suite_play(state, 2, (const suite_main[]){credit_sender, credit_receiver});
}

/* Peers come up without being asked for, go down when they end, and stay down when dropped. */
static inline int peers_stayer(struct world *w)
{
    for (uint32_t seen = 0; seen != 6;) { /* 1 and 2, in any order, perhaps after others */
        uint32_t peer;
        bool up;
        CHECK(suite_peer(w, &peer, &up) == OK);
        if (peer == 1 || peer == 2) {
            CHECK(up && !(seen & 1u << peer));
            seen |= 1u << peer;
        }
    }
    char range[4];
    struct recv lost = {.from = 2, .view = 1, .tag = 9, .into = range, .len = 4};
    struct recv dropped = {.from = 1, .view = 1, .tag = 9, .into = range, .len = 4};
    CHECK(world_post_recv(w, &lost) == OK && world_post_recv(w, &dropped) == OK);
    CHECK(suite_send(w, 2, 0, 1, 0) == OK);
    uint32_t peer, value;
    bool up;
    CHECK(suite_peer(w, &peer, &up) == OK && peer == 2 && !up);
    CHECK(lost.status == ERR_PEER && dropped.status == POST_PENDING);
    CHECK(suite_receive(w, 2, 0, 2, &value) == OK && value == 22); /* its last words stay */
    CHECK(suite_send(w, 2, 0, 1, 0) == ERR_PEER);
    CHECK(suite_send(w, 12345, 0, 1, 0) == ERR_PEER); /* there never was one */
    struct wait_for credit = {.kind = WAIT_CREDIT, .peer = 2};
    struct wake wake;
    CHECK(world_wait(w, &credit, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(world_post_recv(w, &lost) == OK);
    struct wait_for end = {.kind = WAIT_RECV, .recv = &lost};
    CHECK(world_wait(w, &end, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(lost.status == ERR_PEER);

    CHECK(suite_receive(w, 1, 0, 3, &value) == OK);
    world_peer_drop(w, 1);
    CHECK(dropped.status == ERR_PEER);
    CHECK(suite_send(w, 1, 0, 1, 0) == ERR_PEER);
    world_peer_drop(w, 1);
    world_peer_drop(w, 12345);
    return world_sleep(w, suite_until(w, 5 * SUITE_MOMENT));
}

static inline int peers_dropped(struct world *w)
{
    CHECK(suite_peer_is(w, 2, false) == OK);
    CHECK(suite_send(w, 0, 0, 3, 0) == OK);
    CHECK(suite_peer_is(w, 0, false) == OK);
    CHECK(suite_send(w, 0, 0, 1, 0) == ERR_PEER);
    return OK;
}

static inline int peers_leaver(struct world *w)
{
    uint32_t value;
    CHECK(suite_peer_is(w, 1, true) == OK);
    CHECK(suite_receive(w, 0, 0, 1, &value) == OK);
    return suite_send(w, 0, 0, 2, 22);
}

static inline void test_peers(void **state)
{
    suite_play(state, 3, (const suite_main[]){peers_stayer, peers_dropped, peers_leaver});
}

/* A storm: every node sends 200 messages of random sizes to the two others and checks what comes.
 */
enum { STORM_MESSAGES = 200, STORM_BYTES_MAX = 100000 };

static inline struct message *storm_message(struct world *w, uint32_t i)
{
    size_t len = 16 + (size_t)(world_random(w, 70, i) % STORM_BYTES_MAX);
    struct message *m = message_new(i, 0, len);
    if (!m)
        return NULL;
    unsigned char *bytes = m->data;
    uint64_t r = world_random(w, 71, i);
    for (size_t k = 8; k < len; k++) {
        r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[k] = (unsigned char)(r >> 56);
    }
    uint64_t sum = hash_bytes(bytes + 8, len - 8);
    memcpy(bytes, &sum, sizeof sum);
    return m;
}

static inline int storm_task(void *arg)
{
    struct world *w = arg;
    for (uint32_t i = 0; i < STORM_MESSAGES; i++) {
        struct message *m = storm_message(w, i);
        CHECK(m);
        CHECK(suite_send_bulk(w, (w->self + 1) % 3, message_ref(m)) == OK);
        CHECK(suite_send_bulk(w, (w->self + 2) % 3, m) == OK);
    }
    return OK;
}

static inline int storm_node(struct world *w)
{
    struct task *sender;
    uint32_t next[3] = {0};
    CHECK(world_spawn(w, "storm", storm_task, w, &sender) == OK);
    for (int i = 0; i < 2 * STORM_MESSAGES; i++) {
        struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .mask = ~UINT64_C(0xff)};
        struct wake wake;
        CHECK(world_wait(w, &any, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        const struct message *m = wake.msg;
        uint64_t sum;
        CHECK(m->from < 3 && m->from != w->self && m->tag == next[m->from]++ && m->len >= 16);
        memcpy(&sum, m->data, sizeof sum);
        CHECK(sum == hash_bytes((const char *)m->data + 8, m->len - 8));
        message_unref(wake.msg);
    }
    int result = -1;
    CHECK(world_join(w, sender, suite_until(w, SUITE_PATIENCE), &result) == OK && result == OK);
    return suite_part(w, 3);
}

static inline void test_storm(void **state)
{
    suite_play(state, 3, (const suite_main[]){storm_node, storm_node, storm_node});
}

#define WORLD_SUITE_MESSAGES(f)                                                              \
    cmocka_unit_test_prestate(test_order_within_class, f),                                   \
        cmocka_unit_test_prestate(test_matching, f),                                         \
        cmocka_unit_test_prestate(test_shared_message, f),                                   \
        cmocka_unit_test_prestate(test_credit, f), cmocka_unit_test_prestate(test_peers, f), \
        cmocka_unit_test_prestate(test_storm, f)

#endif
